"""Windows: the memory of a switch, as torch tensors, numpy arrays and DLPack, without a copy."""

from __future__ import annotations

import ctypes
import math
import typing

from . import _abi, _device, _dlpack, _library, _tensors, errors
from .model import DTYPE_BYTES

if typing.TYPE_CHECKING:
    import numpy
    import torch  # type: ignore[import-not-found,unused-ignore]

    from .group import Group
    from .layout import Layout

    Array = numpy.ndarray[typing.Any, typing.Any]

# numpy has neither bf16 nor fp8: their bits.
_NUMPY = {
    "float32": "float32",
    "float16": "float16",
    "int32": "int32",
    "uint8": "uint8",
    "bfloat16": "uint16",
    "float8_e4m3fn": "uint8",
}
_TYPES = {"float32": "<f4", "float16": "<f2", "int32": "<i4", "uint8": "|u1"}  # of __cuda_array_interface__


_WORDS = {_abi.TREADLE_PARAMS: "params", _abi.TREADLE_GRADS: "gradients", _abi.TREADLE_OPTIMIZER: "optimizer state"}


class Origin(typing.Protocol):
    """What windows and their memory are of: a switch, or a window of another process."""

    device: _device.Device

    def check(self, which: int) -> None:
        """May tensors be made of this window now?"""

    def given(self, which: int, number: int) -> None:
        """A storage tensor is handed out to be written."""

    def read(self, which: int, offset: int, count: int, to: int) -> None:
        """Copies bytes of a window to an address of the host."""

    def write(self, which: int, offset: int, count: int, source: typing.Any) -> None:
        """Copies bytes of the host to a window."""


class Source:
    """A switch, as what windows are of. It does not refer to the Python object, which refers to it."""

    __slots__ = ("object", "group", "words", "device", "closed")

    def __init__(self, object_: _library.Object, group: Group, words: str, device: _device.Device) -> None:
        self.object, self.group, self.words, self.device = object_, group, words, device
        self.closed = False

    def use(self, what: str) -> ctypes.c_void_p:
        if self.closed:
            raise errors.State(f"{what}: the switch is closed")
        return self.object.use(what)

    def mode(self, pointer: ctypes.c_void_p) -> str:
        return _library.text(_library.value("treadle_mode_text", _library.value("treadle_switch_mode", pointer)))

    def check_train(self, what: str) -> None:
        """Is it in mode TRAIN, and no arrow runs?"""
        mode = self.mode(self.use(what))
        if self.group._user == self.words:
            raise errors.State(f"{what}: rank {self.group.rank}: an arrow of this switch runs: wait for it first")
        if mode != "train":
            raise errors.State(f"{what}: rank {self.group.rank}: in mode {mode}; switch to train first")

    def check(self, which: int) -> None:
        """Of the windows of mode INFER at any time: an engine makes its tensors once, before the first arrow. Of others
        where their bytes are on the device; while an arrow runs nobody can say."""
        pointer = self.use("windows")
        words = _WORDS.get(which)
        if words is None or self.group._user == self.words or _library.value("treadle_switch_resident", pointer, which):
            return
        raise errors.State(
            f"rank {self.group.rank}: in mode {self.mode(pointer)} {words} are not on the device: switch to train first"
        )

    def given(self, which: int, number: int) -> None:
        """Who has a tensor of the train window fills it."""
        if which == _abi.TREADLE_PARAMS and number >= 0:
            _library.call("treadle_switch_tensor_filled", self.use("windows"), number)

    def read(self, which: int, offset: int, count: int, to: int) -> None:
        self.device.order()
        _library.call("treadle_switch_read", self.use("read"), which, offset, count, to)

    def write(self, which: int, offset: int, count: int, source: typing.Any) -> None:
        self.device.order()
        _library.call("treadle_switch_write", self.use("write"), which, offset, count, source)


class Place(typing.NamedTuple):
    """Where memory lies in a window."""

    origin: Origin
    which: int  #: treadle_class
    offset: int  #: bytes, in the window
    number: int = -1  #: of the storage tensor; -1: it is none
    own: bool = False  #: it is the caller's own tensor in place of that part of the window


class Memory:
    """A row-major tensor in a window. Its address never changes. It may be used in the modes that hold its window; what
    is in it in others is undefined, and who writes it then spoils what else lies there: nobody checks tensors that were
    made already. torch(), numpy() and DLPack raise State for params, gradients and optimizer state in a mode in which
    they are not on the device.

    Tensors made of it refer to the switch's memory, which stays until the last of them is gone. A tensor of the train
    window of which one was made counts as filled (Switch.filled).

    On a CUDA device it gives torch(), DLPack and __cuda_array_interface__, and its address is the device's: the
    processor must not touch it. read() and write() copy to and from the host, wherever it lies."""

    __slots__ = ("address", "shape", "dtype", "writable", "_owner", "_place")

    def __init__(
        self, owner: object, address: int, shape: tuple[int, ...], dtype: str, writable: bool, place: Place
    ) -> None:
        self._owner = owner
        self._place = place
        self.address = address  #: of the first byte
        self.shape = shape
        self.dtype = dtype  #: torch's name; "uint8" for bytes
        self.writable = writable

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * DTYPE_BYTES.get(self.dtype, 1)

    @property
    def device(self) -> str:
        """Where it lies: "cpu" or "cuda:1"."""
        return self._place.origin.device.text

    def _check(self) -> None:
        if self.nbytes and not self._place.own:
            self._place.origin.check(self._place.which)

    def _hand_out(self) -> None:
        """Who gets it may write it."""
        self._check()
        if self.nbytes and not self._place.own and self.writable:
            self._place.origin.given(self._place.which, self._place.number)

    def _buffer(self) -> typing.Any:
        """Its bytes as a buffer of Python's that keeps the memory: on the host."""
        buffer: typing.Any = (ctypes.c_uint8 * self.nbytes).from_address(self.address)
        buffer._owner = self._owner
        return buffer

    def _view(self) -> torch.Tensor:
        """A torch tensor on this memory, which has been checked."""
        import torch
        from torch.utils.dlpack import from_dlpack  # type: ignore[import-not-found,unused-ignore]

        kind, device = getattr(torch, self.dtype), self._place.origin.device
        if self.nbytes == 0:
            return torch.empty(self.shape, dtype=kind, device=device.text)
        if device.is_host:
            return torch.frombuffer(self._buffer(), dtype=kind).view(self.shape)
        torch.cuda.current_device()  # starts torch's CUDA: where that fails in from_dlpack, nothing says why
        bits = "uint8" if self.dtype.startswith("float8") else self.dtype  # older ones do not take fp8 by DLPack
        capsule = _dlpack.capsule(self._owner, device.dlpack, self.address, self.shape, bits, False, None)
        return from_dlpack(capsule).view(kind)

    def torch(self) -> torch.Tensor:
        """A torch tensor on this memory, on the device that has it. (torch has no tensors that are read-only: what the
        switch calls so must not be written.)"""
        self._hand_out()
        return self._view()

    def numpy(self) -> Array:
        """A numpy array on this memory: bf16 as uint16 and fp8 as uint8, which are their bits. Read-only where the
        window is. Raises Refused for memory of a device, which numpy cannot touch."""
        import numpy

        if not self._place.origin.device.is_host:
            raise errors.Refused(
                f"numpy: the memory is on device '{self.device}', where numpy has no arrays: "
                "read() copies it to the host"
            )
        kind = numpy.dtype(_NUMPY[self.dtype])
        if self.nbytes == 0:
            return numpy.empty(self.shape, kind)
        self._hand_out()
        array = numpy.frombuffer(self._buffer(), kind).reshape(self.shape)
        array.flags.writeable = self.writable
        return array

    def read(self) -> Array:
        """A copy in host memory, as a numpy array with the types of numpy(). Raises State in a mode that does not hold
        it, and while an arrow runs."""
        import numpy

        array = numpy.empty(self.shape, numpy.dtype(_NUMPY[self.dtype]))
        self._read(array.ctypes.data)
        return array

    def read_bytes(self) -> bytes:
        """Does what read() does, without numpy."""
        room = ctypes.create_string_buffer(max(1, self.nbytes))
        self._read(ctypes.addressof(room))
        return room.raw[: self.nbytes]

    def _read(self, to: int) -> None:
        self._place.origin.read(self._place.which, self._place.offset, self.nbytes, to)

    def write(self, values: Array | bytes) -> None:
        """Copies an array with the shape and type that read() gives, or as many bytes, from host memory. A tensor of
        the train window counts as filled then. Raises Refused for others, and for what is read-only; State as read()
        does, and in mode FORWARD."""
        if not self.writable:
            raise errors.Refused("write: the memory is read-only")
        source: typing.Any = values
        if isinstance(values, bytes):
            if len(values) != self.nbytes:
                raise errors.Refused(f"write: {len(values)} bytes; they must be {self.nbytes}")
        else:
            if tuple(values.shape) != self.shape or str(values.dtype) != _NUMPY[self.dtype]:
                raise errors.Refused(
                    f"write: an array of shape {list(values.shape)} and {values.dtype}; "
                    f"it must have {list(self.shape)} and {_NUMPY[self.dtype]}"
                )
            source = values.ctypes.data if values.flags.c_contiguous else values.tobytes()
        self._place.origin.write(self._place.which, self._place.offset, self.nbytes, source)

    def __dlpack__(
        self,
        *,
        stream: typing.Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule for numpy.from_dlpack, torch.from_dlpack and others. On a CUDA device the consumer's stream (None
        and 1: the legacy default stream; 2: the thread's; -1: none) waits for the switch's, where torch is used. Raises
        BufferError for what cannot be given: a copy, another device, stream 0, and memory that is read-only to a
        consumer that knows DLPack before 1.0, in which nothing says so."""
        if copy:
            raise BufferError("the memory of a window is given as it is, and not copied")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(
                f"the memory of a window is on device {self.__dlpack_device__()}, "
                f"and is not copied to {tuple(dl_device)}"
            )
        device = self._place.origin.device
        device.lead(stream)
        self._hand_out()
        return _dlpack.capsule(
            self._owner, device.dlpack, self.address, self.shape, self.dtype, not self.writable, max_version
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._place.origin.device.dlpack

    @property
    def __cuda_array_interface__(self) -> dict[str, typing.Any]:
        """Version 3, for cupy, numba and others; its stream is the switch's. Raises AttributeError for memory of the
        host, for types that it has no name for (bf16 and fp8), and where torch() raises State, so that hasattr() works.
        A tensor of the train window counts as filled after it, also if hasattr() asked."""
        device = self._place.origin.device
        if device.is_host:
            raise AttributeError("__cuda_array_interface__: the memory is on the host")
        if self.dtype not in _TYPES:
            raise AttributeError(f"__cuda_array_interface__ has no name for {self.dtype}: use torch() or DLPack")
        try:
            device.order()
            self._hand_out()
        except errors.Error as error:
            raise AttributeError(f"__cuda_array_interface__: {error}") from error
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": _TYPES[self.dtype],
            "data": (self.address if self.nbytes else 0, not self.writable),
            "strides": None,
            "stream": device.consumers_stream,
        }

    def __repr__(self) -> str:
        return f"<treadle.Memory {list(self.shape)} {self.dtype} at {self.address:#x} of {self.device}>"


class Window(typing.Mapping[typing.Any, Memory]):
    """The window of one class of bytes: names of storage tensors, or (chunk, name) of later virtual stages, to memory.
    Windows without tensors (gradients, optimizer, KV cache) have one entry, "bytes"."""

    def __init__(
        self,
        entries: dict[typing.Any, Memory],
        nbytes: int,
        address: int,
        device: _device.Device,
        source: Source | None = None,
        which: int = -1,
        layout: Layout | None = None,
    ) -> None:
        self._entries = entries
        self._source, self._which = source, which  # None: of another process
        self._layout = layout  # whose storage tensors they are
        self.nbytes = nbytes  #: of the whole window
        self.address = address  #: on its device
        self.device = device.text  #: "cpu" or "cuda:1"

    def __getitem__(self, name: typing.Any) -> Memory:
        return self._entries[name]

    def __iter__(self) -> typing.Iterator[typing.Any]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def torch(self) -> dict[typing.Any, torch.Tensor]:
        """All tensors, by name. Raises State as Memory.torch does."""
        return {name: memory.torch() for name, memory in self._entries.items()}

    def numpy(self) -> dict[typing.Any, Array]:
        """All tensors as numpy arrays, by name. Raises Refused and State as Memory.numpy does."""
        return {name: memory.numpy() for name, memory in self._entries.items()}

    def read(self) -> dict[typing.Any, Array]:
        """Copies of all tensors in host memory, by name. Raises State as Memory.read does."""
        return {name: memory.read() for name, memory in self._entries.items()}

    def adopt(self, module: _tensors.Module) -> None:
        """Makes the parameters of a plain module, which it has on the meta device, views of the train window, and so
        its persistent buffers that the layout has. Parameters that are one stay one. Names are as those of own tensors.
        What the layout has no tensor for, as other buffers, stays as it is.

            with torch.device("meta"):
                net = Net(config).to(torch.bfloat16)
            switch.train.adopt(net)
            switch.load()  # or the module makes up its own values, and switch.filled()

        They are new Parameter objects, so optimizers are made afterwards; they may be used in the modes that hold
        params. They do not count as filled. Raises Refused, with names, before anything is changed: parameters that
        have memory, DTensors and Megatron's flat buffers (which are given to the switch as train_tensors), other shapes
        or types, and another window; State outside of mode TRAIN and while an arrow runs."""
        from . import _adopt

        if self._source is None or self._which != _abi.TREADLE_PARAMS or self._layout is None:
            raise errors.Refused("adopt: only the train window of a switch takes the parameters of a module")
        self._source.check_train("adopt")
        _adopt.adopt(self, self._layout, module)

    def handle(self) -> bytes:
        """Bytes by which another process on this machine, of the same user, attaches to this window of this rank
        (treadle.attach): infer parameters only. They may be sent in any way. Raises Refused, and State while an arrow
        runs or when the switch is closed."""
        if self._source is None:
            raise errors.Refused(
                "handle: only windows of a switch have handles: pass on the one by which this was attached"
            )
        room = ctypes.create_string_buffer(_abi.TREADLE_HANDLE_BYTES)
        count = ctypes.c_size_t()
        _library.call(
            "treadle_switch_handle", self._source.use("handle"), self._which, room, len(room), ctypes.byref(count)
        )
        return room.raw[: count.value]

    def __repr__(self) -> str:
        return f"<treadle.Window of {len(self)} tensors, {self.nbytes:,} bytes on {self.device}>"
