"""Tensors of other libraries: torch's (DTensors too), numpy's and treadle's, as names, addresses, shapes and types."""

from __future__ import annotations

import typing

from . import errors
from ._device import HOST, Device


class Module(typing.Protocol):
    """What is asked of a torch.nn.Module."""

    def named_parameters(self) -> typing.Iterable[tuple[str, typing.Any]]: ...

    def named_modules(self) -> typing.Iterable[tuple[str, typing.Any]]: ...


#: A module of torch, a dict, or pairs of names and tensors.
Named = typing.Union[
    Module, typing.Mapping[typing.Any, typing.Any], typing.Iterable[typing.Tuple[typing.Any, typing.Any]]
]
#: Names of one's own to those of the model: a dict, or a function. None: the tensor is left out.
Rename = typing.Union[typing.Mapping[str, typing.Optional[str]], typing.Callable[[str], typing.Optional[str]]]

_WRAPPERS = frozenset(("_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"))
_BUFFERS = frozenset(("inv_freq", "original_inv_freq", "masked_bias", "causal_mask"))


def is_module(named_tensors: typing.Any) -> bool:
    return hasattr(named_tensors, "named_parameters") and hasattr(named_tensors, "named_modules")


def _of_module(module: typing.Any) -> list[tuple[str, typing.Any]]:
    """Its parameters, then its persistent buffers, which a state dict has, too: a routing bias is one. What is shared
    has its first name."""
    found = list(module.named_parameters())
    for path, part in module.named_modules():
        for name, buffer in part._buffers.items():
            if buffer is not None and name not in part._non_persistent_buffers_set:
                found.append((f"{path}.{name}" if path else name, buffer))
    return found


def pairs(named_tensors: Named) -> list[tuple[typing.Any, typing.Any]]:
    """A module, a dict or pairs, as pairs."""
    if is_module(named_tensors):
        return _of_module(named_tensors)
    return _listed(named_tensors)  # type: ignore[arg-type]


def _listed(
    named_tensors: typing.Mapping[typing.Any, typing.Any] | typing.Iterable[tuple[typing.Any, typing.Any]],
) -> list[tuple[typing.Any, typing.Any]]:
    return list(named_tensors.items() if isinstance(named_tensors, typing.Mapping) else named_tensors)


def plain_name(name: str) -> str:
    """A module's name without what FSDP1, compile, checkpointing and DDP put into it."""
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    while len(parts) > 1 and parts[0] == "module":
        del parts[0]
    return ".".join(parts)


def model_name(name: str, tensor: typing.Any, rename: Rename | None) -> str | None:
    """The model's name for it. None: it is not a parameter of the model, or the caller leaves it out."""
    name = plain_name(name)
    last = name.rsplit(".", 1)[-1]
    if last == "_extra_state" or tensor is None:
        return None
    if rename is not None:
        return rename(name) if callable(rename) else rename.get(name, name)
    return None if last in _BUFFERS else name


class Given(typing.NamedTuple):
    """Memory of a tensor."""

    name: typing.Any
    tensor: typing.Any
    address: int  #: 0 where it has no bytes
    nbytes: int
    shape: tuple[int, ...]
    dtype: str  #: torch's name; numpy's for numpy
    writable: bool  #: torch does not know tensors that are not


def local(tensor: typing.Any) -> typing.Any:
    """What this rank has of a DTensor; other tensors are what they are."""
    return tensor.to_local() if hasattr(tensor, "to_local") and hasattr(tensor, "placements") else tensor


def address_of(tensor: typing.Any) -> int:
    """Of its first byte, now."""
    tensor = local(tensor)
    if hasattr(tensor, "data_ptr"):
        return int(tensor.data_ptr())
    if hasattr(tensor, "address"):
        return int(tensor.address)
    return int(tensor.__array_interface__["data"][0])


def places(named: Named) -> tuple[tuple[str, int, tuple[int, ...], str], ...]:
    """Where tensors lie, and as what: name, address, shape and type of what this rank has of each. Equal as long as
    they stay."""
    return tuple(
        (str(name), address_of(tensor), tuple(local(tensor).shape), str(local(tensor).dtype))
        for name, tensor in pairs(named)
    )


def given(name: typing.Any, tensor: typing.Any, words: str | None = None, device: Device = HOST) -> Given:
    """Raises Refused, with `words` for the tensor, for memory that is not on the device, not contiguous or not
    there."""
    here, words = local(tensor), words or f"'{name}'"
    if hasattr(here, "data_ptr"):
        try:
            return _given_torch(name, tensor, here, words, device)
        except (RuntimeError, ValueError) as error:  # a FakeTensor, a parameter that is not initialised yet
            if isinstance(error, errors.Error):
                raise
            raise errors.Refused(
                f"{words} is a {type(here).__name__} that has no memory: {str(error).splitlines()[0]}"
            ) from error
    if hasattr(here, "address"):
        _check_device(here.device, words, device)
        return Given(
            name,
            tensor,
            int(here.address) if here.nbytes else 0,
            here.nbytes,
            tuple(here.shape),
            str(here.dtype),
            bool(here.writable),
        )
    if hasattr(here, "__array_interface__"):
        about = here.__array_interface__
        _check_device("cpu", words, device)
        if about["strides"] is not None:
            raise errors.Refused(
                f"{words} of shape {list(here.shape)} has strides {about['strides']} (bytes); it must be contiguous"
            )
        address, read_only = about["data"]
        return Given(
            name,
            tensor,
            int(address) if here.nbytes else 0,
            here.nbytes,
            tuple(here.shape),
            str(here.dtype),
            not read_only,
        )
    raise errors.Refused(f"{words} is a {type(here).__name__}, and no tensor of torch, numpy or treadle")


def _check_device(found: str, words: str, device: Device) -> None:
    if found != device.text:
        raise errors.Refused(f"{words} is on device {found}; it must be on {device.text}")


def _given_torch(name: typing.Any, tensor: typing.Any, here: typing.Any, words: str, device: Device) -> Given:
    _check_device("cpu" if here.device.type == "cpu" else str(here.device), words, device)
    if str(here.layout) != "torch.strided":
        raise errors.Refused(f"{words} has torch's layout {here.layout}; it must be torch.strided")
    if not here.is_contiguous():
        raise errors.Refused(
            f"{words} of shape {list(here.shape)} has strides {list(here.stride())}; it must be contiguous"
        )
    nbytes = here.numel() * here.element_size()
    if nbytes and here.untyped_storage().nbytes() < nbytes + here.storage_offset() * here.element_size():
        raise errors.Refused(
            f"{words} has {nbytes} bytes, and its storage {here.untyped_storage().nbytes()}: it was freed or resized"
        )
    address = int(here.data_ptr()) if nbytes else 0
    if nbytes and not address:
        raise errors.Refused(f"{words} is a {type(here).__name__} that has no memory")
    return Given(name, tensor, address, nbytes, tuple(here.shape), str(here.dtype).removeprefix("torch."), True)
