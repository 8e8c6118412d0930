"""Classes of workers with their arguments, alone or several in one process."""

from __future__ import annotations

import typing

from .. import errors
from ._register import Mode, modes_of

ALONE = ""  #: the key of a member that has its process for itself


class ClassWithInitArgs:
    """A class, or an actor class made by ray.remote, and what each worker's __init__ gets."""

    def __init__(self, cls: typing.Any, *arguments: typing.Any, **named: typing.Any) -> None:
        described = getattr(cls, "__ray_metadata__", None)
        self.cls: type = described.modified_class if described is not None else cls
        if not isinstance(self.cls, type):
            raise errors.Refused(f"ClassWithInitArgs: {cls!r} is not a class")
        self.arguments, self.named = arguments, named

    @property
    def name(self) -> str:
        return self.cls.__name__.removeprefix("Class(").removesuffix(")")

    @property
    def members(self) -> dict[str, ClassWithInitArgs]:
        return {ALONE: self}

    def methods(self) -> dict[str, tuple[str, Mode]]:
        """Of a group: (member, mode) by the method's name."""
        return {name: (ALONE, mode) for name, mode in modes_of(self.cls).items()}


class ColocatedClasses:
    """Several classes that share a process on each slot."""

    def __init__(self, members: dict[str, ClassWithInitArgs]) -> None:
        self.members = members

    @property
    def name(self) -> str:
        return "_".join(self.members)

    def methods(self) -> dict[str, tuple[str, Mode]]:
        return {
            f"{key}_{name}": (key, mode)
            for key, member in self.members.items()
            for name, mode in modes_of(member.cls).items()
        }


def create_colocated_worker_cls(class_dict: typing.Mapping[str, ClassWithInitArgs]) -> ColocatedClasses:
    """What a WorkerGroup takes to have a worker of each class in every process, by prefix. A method of the group is
    called PREFIX_METHOD; group.spawn(prefixes) gives a group for each, with the methods' own names."""
    if not class_dict:
        raise errors.Refused("create_colocated_worker_cls: no classes")
    for key, member in class_dict.items():
        if not key or not isinstance(member, ClassWithInitArgs):
            raise errors.Refused(
                f"create_colocated_worker_cls: '{key}' is {type(member).__name__}; give ClassWithInitArgs"
            )
    made = ColocatedClasses(dict(class_dict))
    expected = sum(len(modes_of(member.cls)) for member in class_dict.values())
    if len(made.methods()) != expected:
        raise errors.Refused(f"create_colocated_worker_cls: prefixes {', '.join(class_dict)} give two methods one name")
    return made
