"""adopt: the parameters of a plain module become views of the train window.

A first pass finds what each parameter becomes and refuses what cannot be, so that a module is changed whole or not at
all. A parameter that several parts of the module share has several names, of which one or more are storage tensors;
more than one would be two copies of what is one."""

from __future__ import annotations

import typing

from . import _tensors, errors
from ._own import nearest
from .layout import Layout
from .windows import Memory, Window


class _Found(typing.NamedTuple):
    """A tensor of the module, and where it stands."""

    names: list[str]
    tensor: typing.Any
    holders: list[tuple[dict[str, typing.Any], str]]  #: dicts of parameters or buffers, with the name there


def _tensors_of(module: typing.Any) -> list[_Found]:
    """Each once, with all its names: parameters, then persistent buffers."""
    found: dict[int, _Found] = {}
    parts = list(module.named_modules())
    for of, temporary in (("_parameters", False), ("_buffers", True)):
        for path, part in parts:
            for name, tensor in getattr(part, of).items():
                if tensor is None or (temporary and name in part._non_persistent_buffers_set):
                    continue
                one = found.setdefault(id(tensor), _Found([], tensor, []))
                one.names.append(f"{path}.{name}" if path else name)
                one.holders.append((getattr(part, of), name))
    return list(found.values())


def _is_parameter(tensor: typing.Any) -> bool:
    import torch  # type: ignore[import-not-found,unused-ignore]

    return isinstance(tensor, torch.nn.Parameter)


def _check_plain(name: str, tensor: typing.Any) -> None:
    give = "give it to the switch as one of train_tensors"
    if hasattr(tensor, "placements"):
        raise errors.Refused(f"adopt: {name!r} is a DTensor, whose shard is memory of its own: {give}")
    if hasattr(tensor, "_is_flat_param"):
        raise errors.Refused(f"adopt: {name!r} is a flat parameter of FSDP1: {give}")
    if hasattr(tensor, "main_grad"):
        raise errors.Refused(f"adopt: {name!r} lies in a flat buffer of Megatron's: {give}")
    if tensor.device.type != "meta":
        raise errors.Refused(
            f"adopt: {name!r} has memory on device {tensor.device}; make the module on the meta device, or {give}"
        )


def _memory_for(found: _Found, window: Window, layout: Layout) -> Memory | None:
    """What it becomes. None: the caller leaves it out, or it is a buffer that the layout does not have."""
    keys: list[typing.Any] = list(
        dict.fromkeys(
            key
            for key in (_tensors.model_name(n, found.tensor, layout._rename) for n in found.names)
            if key is not None
        )
    )
    known = [key for key in keys if key in window]
    name = found.names[0]
    if not keys or not (known or _is_parameter(found.tensor)):
        return None
    _check_plain(name, found.tensor)
    if len(known) > 1:
        raise errors.Refused(
            f"adopt: {' and '.join(map(repr, found.names))} are one tensor of the module, "
            f"and {len(known)} of {layout.text}"
        )
    if not known:
        raise errors.Refused(f"adopt: {name!r} is not a storage tensor of {layout.text}{nearest(keys[0], window)}")
    memory = window[known[0]]
    if memory._place.own:
        raise errors.Refused(f"adopt: {name!r} was given to the switch as one of train_tensors")
    shape, dtype = tuple(found.tensor.shape), str(found.tensor.dtype).removeprefix("torch.")
    if shape != memory.shape:
        raise errors.Refused(
            f"adopt: {name!r} has shape {list(shape)}, and {layout.text} has {list(memory.shape)} there"
        )
    if dtype != memory.dtype:
        raise errors.Refused(f"adopt: {name!r} is of {dtype}, and {layout.text} has {memory.dtype} there")
    return memory


def _made_of(memory: Memory, old: typing.Any) -> typing.Any:
    """A parameter, with what the module has noted on the one before it, or a buffer."""
    import torch

    view = memory._view()
    if not _is_parameter(old):
        return view
    new = torch.nn.Parameter(view, requires_grad=old.requires_grad)
    vars(new).update(vars(old))
    return new


def adopt(window: Window, layout: Layout, module: typing.Any) -> None:
    """Window.adopt."""
    if not _tensors.is_module(module):
        raise errors.Refused(f"adopt: a {type(module).__name__} is not a module of torch")
    taken: dict[int, str] = {}
    plan = []
    for found in _tensors_of(module):
        memory = _memory_for(found, window, layout)
        if memory is None:
            continue
        if (other := taken.setdefault(id(memory), found.names[0])) != found.names[0]:
            raise errors.Refused(
                f"adopt: {found.names[0]!r} and {other!r} are two tensors of the module, and one of "
                f"{layout.text}: tie them first"
            )
        memory._check()
        plan.append((found, memory))
    for found, memory in plan:
        new = _made_of(memory, found.tensor)
        for holder, name in found.holders:
            holder[name] = new
