"""Did new weights really arrive? What engines' weight checkers do, for tensors of any library."""

from __future__ import annotations

import ctypes
import typing

from . import _tensors, errors
from .windows import Memory


def _is_far(tensor: typing.Any) -> bool:
    """Is it where the processor cannot touch it?"""
    return str(getattr(_tensors.local(tensor), "device", "cpu")).partition(":")[0] not in ("cpu", "meta")


def _flat(name: typing.Any, tensor: typing.Any) -> typing.Any:
    """A tensor of torch's as bytes, where it lies."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    here = _tensors.local(tensor).detach()
    if not here.is_contiguous():
        raise errors.Refused(
            f"'{name}' of shape {list(here.shape)} has strides {list(here.stride())}; it must be contiguous"
        )
    return here.view(-1).view(torch.uint8)


def _copy(name: typing.Any, tensor: typing.Any) -> typing.Any:
    """The bytes of a tensor that is far, in host memory."""
    return tensor.read_bytes() if isinstance(tensor, Memory) else memoryview(_flat(name, tensor).cpu().numpy())


def _room_for(name: typing.Any, tensor: typing.Any) -> int:
    """How many bytes a tensor that is far takes. It may be written."""
    if not isinstance(tensor, Memory):
        return len(_flat(name, tensor))
    if not tensor.writable:
        raise errors.Refused(f"'{name}' is read-only, and cannot be reset")
    return tensor.nbytes


def _give(name: typing.Any, tensor: typing.Any, values: bytearray) -> None:
    """A tensor that is far gets these bytes."""
    if isinstance(tensor, Memory):
        tensor.write(bytes(values))
        return
    import torch

    _flat(name, tensor).copy_(torch.frombuffer(values, dtype=torch.uint8))


def _repeat(block: bytes, to: memoryview) -> None:
    for at in range(0, len(to), len(block)):
        part = to[at : at + len(block)]
        part[:] = block[: len(part)]


def _bytes_of(name: typing.Any, tensor: typing.Any) -> typing.Any:
    """The memory of a tensor as bytes, which may be read-only; of one that is far a copy."""
    if _is_far(tensor):
        return _copy(name, tensor)
    if isinstance(tensor, Memory):
        tensor._check()  # who looks does not fill
    if isinstance(tensor, (bytearray, memoryview)):
        return memoryview(tensor).cast("B")
    if getattr(getattr(tensor, "flags", None), "writeable", True) is False:
        return memoryview(tensor).cast("B")
    given = _tensors.given(name, tensor)
    if not given.writable:
        return (
            memoryview((ctypes.c_uint8 * given.nbytes).from_address(given.address)).toreadonly()
            if given.nbytes
            else b""
        )
    return (ctypes.c_uint8 * given.nbytes).from_address(given.address) if given.nbytes else bytearray()


class Checker:
    """Says which of some tensors have other bits than they had.

    named_tensors: a dict or pairs of names and tensors: torch's, numpy's or treadle's, contiguous; those of devices are
    copied to the host. Typical use: snapshot(), reset(0), an update that should bring the same weights again, and
    compare() == []."""

    def __init__(self, named_tensors: _tensors.Named) -> None:
        self._tensors = dict(_tensors.pairs(named_tensors))
        self._snapshot: dict[typing.Any, str] | None = None

    def checksum(self) -> dict[typing.Any, str]:
        """By name, a hash of the bytes (BLAKE2b, 16 hexadecimal digits)."""
        import hashlib

        return {
            name: hashlib.blake2b(_bytes_of(name, tensor), digest_size=8).hexdigest()
            for name, tensor in self._tensors.items()
        }

    def snapshot(self) -> None:
        """Remembers what the tensors hold now."""
        self._snapshot = self.checksum()

    def reset(self, seed: int) -> None:
        """Overwrites all tensors with random bytes, the same for the same seed and names. Raises Refused, before
        anything is written, for memory that is read-only. (A torch tensor of such memory cannot say so: writing it ends
        the process.)"""
        import hashlib

        far = {name: _room_for(name, tensor) for name, tensor in self._tensors.items() if _is_far(tensor)}
        near = {
            name: memoryview(_bytes_of(name, tensor)).cast("B")
            for name, tensor in self._tensors.items()
            if name not in far
        }
        for name, buffer in near.items():
            if buffer.readonly:
                raise errors.Refused(f"'{name}' is read-only, and cannot be reset")
        for name, tensor in self._tensors.items():
            block = hashlib.shake_128(f"{seed} {name}".encode()).digest(1 << 16)
            if name in near:
                if isinstance(tensor, Memory):
                    tensor._hand_out()
                _repeat(block, near[name])
            elif far[name]:
                room = bytearray(far[name])
                _repeat(block, memoryview(room))
                _give(name, tensor, room)

    def compare(self) -> list[typing.Any]:
        """The names of tensors that differ from the snapshot."""
        if self._snapshot is None:
            raise errors.State("Checker: compare without a snapshot")
        return [name for name, sum_ in self.checksum().items() if sum_ != self._snapshot[name]]
