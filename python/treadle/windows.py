"""Windows: the memory of a switch, as torch tensors, numpy arrays and DLPack, without a copy."""

from __future__ import annotations

import ctypes
import math
import typing

from . import _abi, _dlpack, _library, errors
from .model import DTYPE_BYTES

if typing.TYPE_CHECKING:
    import numpy
    import torch  # type: ignore[import-not-found,unused-ignore]

    from .group import Group

_NUMPY = {"float32": "float32", "float16": "float16", "int32": "int32", "uint8": "uint8",
          "bfloat16": "uint16", "float8_e4m3fn": "uint8"}  # numpy has neither bf16 nor fp8: their bits


_WORDS = {_abi.TREADLE_PARAMS: "params", _abi.TREADLE_GRADS: "gradients", _abi.TREADLE_OPTIMIZER: "optimizer state"}


class Source:
    """What windows and their memory are of: a switch. It does not refer to the Python object, which refers to it."""

    __slots__ = ("object", "group", "words", "closed")

    def __init__(self, object_: _library.Object, group: Group, words: str) -> None:
        self.object, self.group, self.words = object_, group, words
        self.closed = False

    def use(self, what: str) -> ctypes.c_void_p:
        if self.closed:
            raise errors.State(f"{what}: the switch is closed")
        return self.object.use(what)

    def check(self, which: int) -> None:
        """May tensors be made of this window now? Of the windows of mode INFER at any time: an engine does so once, before the first arrow. Of others where their
        bytes are on the device; while an arrow runs nobody can say."""
        pointer = self.use("windows")
        words = _WORDS.get(which)
        if words is None or self.group._user == self.words or _library.value("treadle_switch_resident", pointer, which):
            return
        mode = _library.text(_library.value("treadle_mode_text", _library.value("treadle_switch_mode", pointer)))
        raise errors.State(f"rank {self.group.rank}: in mode {mode} {words} are not on the device: switch to train first")

    def given(self, which: int, number: int) -> None:
        """A tensor of the train window is handed out to be written: who has it fills it."""
        if which == _abi.TREADLE_PARAMS and number >= 0:
            _library.call("treadle_switch_tensor_filled", self.use("windows"), number)


class Memory:
    """A row-major tensor in a window. Its address never changes. It may be used in the modes that hold its window; what is in it in others is
    undefined, and who writes it then spoils what else lies there: nobody checks tensors that were made already. torch(), numpy() and DLPack raise State
    for params, gradients and optimizer state in a mode in which they are not on the device.

    Tensors made of it refer to the switch's memory, which stays until the last of them is gone. A tensor of the train window of which one was made
    counts as filled (Switch.filled)."""

    __slots__ = ("address", "shape", "dtype", "writable", "_owner", "_source", "_which", "_number")

    def __init__(self, owner: object, address: int, shape: tuple[int, ...], dtype: str, writable: bool, source: Source | None = None,
                 which: int = -1, number: int = -1) -> None:
        self._owner = owner
        self._source, self._which = source, which  # None: memory of the caller, or of another process
        self._number = number  # of the storage tensor; -1: it is none
        self.address = address  #: of the first byte
        self.shape = shape
        self.dtype = dtype  #: torch's name; "uint8" for bytes
        self.writable = writable

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * DTYPE_BYTES.get(self.dtype, 1)

    def _check(self) -> None:
        if self._source is not None and self.nbytes:
            self._source.check(self._which)
            if self.writable:
                self._source.given(self._which, self._number)

    def _buffer(self) -> typing.Any:
        """Its bytes as a buffer of Python's that keeps the memory."""
        self._check()
        buffer: typing.Any = (ctypes.c_uint8 * self.nbytes).from_address(self.address)
        buffer._owner = self._owner
        return buffer

    def torch(self) -> torch.Tensor:
        """A torch tensor on this memory. (torch has no tensors that are read-only: what the switch calls so must not be written.)"""
        import torch

        kind = getattr(torch, self.dtype)
        if self.nbytes == 0:
            return torch.empty(self.shape, dtype=kind)
        return torch.frombuffer(self._buffer(), dtype=kind).view(self.shape)

    def numpy(self) -> numpy.ndarray[typing.Any, typing.Any]:
        """A numpy array on this memory: bf16 as uint16 and fp8 as uint8, which are their bits. Read-only where the window is."""
        import numpy

        kind = numpy.dtype(_NUMPY[self.dtype])
        if self.nbytes == 0:
            return numpy.empty(self.shape, kind)
        array = numpy.frombuffer(self._buffer(), kind).reshape(self.shape)
        array.flags.writeable = self.writable
        return array

    def __dlpack__(self, *, stream: object = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None,
                   copy: bool | None = None) -> object:
        """A capsule for numpy.from_dlpack, torch.from_dlpack and others. Raises BufferError for what cannot be given: a copy, another device, and memory that
        is read-only to a consumer that knows DLPack before 1.0, in which nothing says so."""
        if copy:
            raise BufferError("the memory of a window is given as it is, and not copied")
        if dl_device is not None and dl_device != self.__dlpack_device__():
            raise BufferError(f"the memory of a window is on device {self.__dlpack_device__()}, and is not copied to {dl_device}")
        self._check()
        return _dlpack.capsule(self._owner, self.address, self.shape, self.dtype, not self.writable, max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU

    def __repr__(self) -> str:
        return f"<treadle.Memory {list(self.shape)} {self.dtype} at {self.address:#x}>"


class Window(typing.Mapping[typing.Any, Memory]):
    """The window of one class of bytes: names of storage tensors, or (chunk, name) of later virtual stages, to memory. Windows without
    tensors (gradients, optimizer, KV cache) have one entry, "bytes"."""

    def __init__(self, entries: dict[typing.Any, Memory], nbytes: int, address: int, source: Source | None = None, which: int = -1) -> None:
        self._entries = entries
        self._source, self._which = source, which
        self.nbytes = nbytes  #: of the whole window
        self.address = address

    def __getitem__(self, name: typing.Any) -> Memory:
        return self._entries[name]

    def __iter__(self) -> typing.Iterator[typing.Any]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def torch(self) -> dict[typing.Any, torch.Tensor]:
        """All tensors, by name. Raises State as Memory.torch does."""
        return {name: memory.torch() for name, memory in self._entries.items()}

    def numpy(self) -> dict[typing.Any, numpy.ndarray[typing.Any, typing.Any]]:
        """All tensors as numpy arrays, by name. Raises State as Memory.numpy does."""
        return {name: memory.numpy() for name, memory in self._entries.items()}

    def handle(self) -> bytes:
        """Bytes by which another process on this machine, of the same user, attaches to this window of this rank (treadle.attach): infer parameters
        only. They may be sent in any way. Raises Refused, and State while an arrow runs or when the switch is closed."""
        if self._source is None:
            raise errors.Refused("handle: only windows of a switch have handles: pass on the one by which this was attached")
        room = ctypes.create_string_buffer(_abi.TREADLE_HANDLE_BYTES)
        count = ctypes.c_size_t()
        _library.call("treadle_switch_handle", self._source.use("handle"), self._which, room, len(room), ctypes.byref(count))
        return room.raw[: count.value]

    def __repr__(self) -> str:
        return f"<treadle.Window of {len(self)} tensors, {self.nbytes:,} bytes>"
