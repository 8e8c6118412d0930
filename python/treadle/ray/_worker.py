"""The worker's side: the base of workers' classes, and the actor that hosts one or several of them in a process."""

from __future__ import annotations

import contextvars
import inspect
import os
import socket
import typing

from .. import errors
from ._futures import Result
from ._ray import exceptions, here, ray, said
from ._register import Mode
from ._rows import register_batches, unpadded
from ._shares import Length, Spec, shares_of

ENVIRONMENT = (
    "WORLD_SIZE",
    "RANK",
    "WG_PREFIX",
    "WG_BACKEND",
    "WG_NODES",
    "RAY_LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)

_padding: contextvars.ContextVar[int] = contextvars.ContextVar("treadle_padding", default=0)


class Worker:
    """What a worker knows of its place. A class need not derive from it; a worker inside of another one knows the same.

    The environment of its process has WORLD_SIZE, RANK, WG_PREFIX, WG_BACKEND ("ray"), WG_NODES (on how many nodes the
    workers are), RAY_LOCAL_WORLD_SIZE (slots of the pool's first entry), MASTER_ADDR and MASTER_PORT (a port that was
    free on rank 0's node)."""

    @property
    def rank(self) -> int:
        return int(said_by_group("RANK"))

    @property
    def world_size(self) -> int:
        return int(said_by_group("WORLD_SIZE"))

    def get_master_addr_port(self) -> tuple[str, int]:
        return said_by_group("MASTER_ADDR"), int(said_by_group("MASTER_PORT"))

    def get_visible_devices(self) -> list[int]:
        """The GPUs that Ray gave to this process, by their numbers on the node."""
        return [int(number) for number in ray.get_runtime_context().get_accelerator_ids().get("GPU", [])]

    @property
    def padding(self) -> int:
        """In a method: how many of the rows that it got are padding, the last ones. They do not come back."""
        return _padding.get()

    def register_mesh(self, name: str, dp_rank: int, collects: bool = True) -> None:
        """Says which rows this worker gets in a mesh (nd_mesh), and whether its results come back. Raises Refused if it
        has said so before."""
        meshes: dict[str, tuple[int, bool]] = self.__dict__.setdefault("_treadle_meshes", {})
        if name in meshes:
            raise errors.Refused(
                f"mesh_name {name} has been registered: rank {self.rank} has dp rank {meshes[name][0]} in it"
            )
        meshes[name] = dp_rank, collects


def said_by_group(name: str) -> str:
    if name not in os.environ:
        raise errors.State(f"{name} is not in the environment: a WorkerGroup sets it in its workers' processes")
    return os.environ[name]


class Call(typing.NamedTuple):
    """What a host has to know of a call, beside its arguments."""

    key: str  # of the member
    method: str  # FUNCTION: the first argument is a function, which is called with the member
    rank: int
    given: int = 0  # rows, padding among them
    padding: int = 0
    unpads: bool = False  # one batch comes back
    counts: bool = False  # its number of rows comes back, too
    materialize: bool = True
    spec: Spec | None = None  # of a call whose rows are not known before its arguments are there
    lengths: tuple[Length, ...] = ()  # of which those of futures are None


FUNCTION = ""


class Host:
    """The actor. First it only enters its place: a member's class is imported when the environment is set. Actors are
    of a class derived from it that has the group's methods, too (host_class)."""

    def __init__(self) -> None:
        register_batches()
        self._members: dict[str, typing.Any] = {}

    def treadle_address(self) -> tuple[str, int, str]:
        """The node's address, a port that is free there now, and the node in words."""
        address, node = here()
        with socket.socket() as found:
            found.bind(("", 0))
            port = int(found.getsockname()[1])
        return address, port, node

    def treadle_enter(self, environment: dict[str, str]) -> None:
        os.environ.update(environment)

    def treadle_start(self, members: dict[str, typing.Any]) -> None:
        """Makes the members: {key: (class, arguments, named arguments)}."""
        for key, (cls, arguments, named) in members.items():
            self._members[key] = cls(*arguments, **named)

    def treadle_mesh(self, key: str, name: str) -> tuple[int, bool] | None:
        found: tuple[int, bool] | None = getattr(self._members[key], "_treadle_meshes", {}).get(name)
        return found

    def treadle_ping(self) -> None:
        pass

    def treadle_call(self, call: Call, *arguments: typing.Any, **named: typing.Any) -> typing.Any:
        given, padding = call.given, call.padding
        results = [value for value in (*arguments, *named.values()) if isinstance(value, Result)]
        if results:
            try:
                if call.spec is not None:
                    given, padding = _narrow(call, call.spec, [*arguments, *named.values()])
                if call.materialize:
                    arguments = tuple(map(_fetched, arguments))
                    named = {key: _fetched(value) for key, value in named.items()}
            except exceptions.RayError as error:
                whose = ", ".join(f"'{result.what}'" for result in results)
                raise errors.Peer(f"its argument, the result of {whose}, failed: {said(error)}") from None
        member = self._members[call.key]
        token = _padding.set(padding)
        try:
            if call.method == FUNCTION:
                result = arguments[0](member, *arguments[1:], **named)
            else:
                result = getattr(member, call.method)(*arguments, **named)
        finally:
            _padding.reset(token)
        if call.unpads:
            result = unpadded(result, given, padding, f"worker {call.rank}")
        return (len(result), result) if call.counts else result


def host_class(name: str, methods: typing.Mapping[str, tuple[str, Mode]], members: typing.Mapping[str, type]) -> type:
    """A host with the methods of a group: (member, mode) by name. Without a Call among its arguments an empty call
    costs what Ray's own does. members: classes by key."""

    def made(key: str, mode: Mode) -> typing.Any:
        call = Call(key, mode.name, 0, materialize=mode.materialize)

        def method(self: Host, *arguments: typing.Any, **named: typing.Any) -> typing.Any:
            return self.treadle_call(call, *arguments, **named)

        signature = inspect.signature(getattr(members[key], mode.name))
        bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
        method.__signature__ = inspect.Signature(bare)  # type: ignore[attr-defined]  # by which Ray checks arguments
        return method

    return type(name, (Host,), {public: made(key, mode) for public, (key, mode) in methods.items()})


def _fetched(value: typing.Any) -> typing.Any:
    return value.get() if isinstance(value, Result) else value


def _narrow(call: Call, spec: Spec, values: list[typing.Any]) -> tuple[int, int]:
    """Futures to the rows of this worker: how many rows it gets, and how many of them are padding."""
    lengths = tuple(
        (kind, value.rows() if kind == "rows" and isinstance(value, Result) else count)
        for (kind, count), value in zip(call.lengths, values)
    )
    share = shares_of(spec, lengths)[call.rank]
    for value in values:
        if isinstance(value, Result) and value.form == "rows":
            value.narrow(share.rows, spec.pad_with_first)
    return len(share.rows), share.padding
