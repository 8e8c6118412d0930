"""The weights of another process on this machine, read where they lie."""

from __future__ import annotations

import ctypes
import typing

from . import _abi, _device, _library, errors
from .layout import key_of, storage_of
from .windows import Memory, Place, Window

if typing.TYPE_CHECKING:
    import types

    import torch  # type: ignore[import-not-found,unused-ignore]

    from .windows import Array


class _Source:
    """A window of another process, as what its memory is of. It does not refer to the Python object, which refers to
    it."""

    __slots__ = ("object", "device")

    def __init__(self, object_: _library.Object) -> None:
        info = _library.sized(_abi.treadle_attached_info)
        _library.value("treadle_attached_get_info", object_.pointer, ctypes.byref(info))
        self.object, self.device = object_, _device.Device(info.memory.kind, info.memory.device)

    def check(self, which: int) -> None:
        """At any time: addresses stay, and a hold says whose bytes are there."""

    def given(self, which: int, number: int) -> None:
        """Nobody fills it."""

    def read(self, which: int, offset: int, count: int, to: int) -> None:
        _library.call("treadle_attached_read", self.object.use("read"), offset, count, to)

    def write(self, which: int, offset: int, count: int, source: typing.Any) -> None:
        raise errors.Refused("write: the memory is read-only")


class Attached(typing.Mapping[typing.Any, Memory]):
    """A window of infer parameters of another process, mapped read-only at one address for its life, on the device that
    has it: names of storage tensors to memory. Made by attach.

        with treadle.attach(handle) as weights:
            version = weights.wait(1)
            weights.hold()               # the bytes stay as they are
            generate(weights.torch())
            weights.release()"""

    def __init__(self, pointer: ctypes.c_void_p) -> None:
        self._object: _library.Object | None = _library.Object(pointer, "treadle_detach")
        self._held: list[int] = []
        count = ctypes.c_size_t()
        address = _library.value("treadle_attached_window", pointer, ctypes.byref(count)) or 0
        self._source = _Source(self._object)
        info = _library.sized(_abi.treadle_storage_info)
        entries: dict[typing.Any, Memory] = {}
        for number in range(_library.value("treadle_attached_storage_count", pointer)):
            _library.call("treadle_attached_storage", pointer, number, ctypes.byref(info))
            storage = storage_of(info)
            entries[key_of(storage)] = Memory(
                self._object,
                address + storage.offset_bytes,
                storage.shape,
                storage.dtype,
                False,
                Place(self._source, _abi.TREADLE_INFER_PARAMS, storage.offset_bytes),
            )
        self._window = Window(entries, count.value, address, self._source.device)

    def _use(self) -> ctypes.c_void_p:
        if self._object is None:
            raise errors.State("attach: it is closed")
        return self._object.use("attach")

    def _tensors(self) -> Window:
        self._use()
        return self._window

    @property
    def version(self) -> int:
        """The last version that was committed, in the window or not; 0: none."""
        return int(_library.value("treadle_attached_version", self._use()))

    @property
    def valid(self) -> bool:
        """Is it in the window now?"""
        return bool(_library.value("treadle_attached_is_valid", self._use()))

    def wait(self, version: int, *, timeout: float = 60) -> int:
        """Waits until a version of at least `version` is in the window; the last one that was committed then. Raises
        Timeout, and Peer when the owner died or ended its switch."""
        _library.call("treadle_attached_wait", self._use(), version, timeout, _library.watcher(), None)
        return self.version

    def hold(self) -> int:
        """The version that is in the window, whose bytes stay until release(): the owner's next arrow waits, until its
        time limit. Raises State when none is there."""
        version = ctypes.c_uint64()
        _library.call("treadle_attached_hold", self._use(), ctypes.byref(version))
        self._held.append(version.value)
        return version.value

    def release(self) -> None:
        """Ends the last hold. On a device it first waits until torch's current stream there, if torch is used, has done
        its work. Work on other streams must be done already. Raises Refused if that stream is capturing a graph."""
        pointer = self._use()
        if not self._held:
            raise errors.State("release: nothing is held")
        self._source.device.finish()
        _library.call("treadle_attached_release", pointer, self._held.pop())

    def torch(self) -> dict[typing.Any, torch.Tensor]:
        """All tensors, by name. They must not be written."""
        return self._tensors().torch()

    def numpy(self) -> dict[typing.Any, Array]:
        """All tensors as numpy arrays, by name; read-only. Raises Refused for memory of a device."""
        return self._tensors().numpy()

    def read(self) -> dict[typing.Any, Array]:
        """Copies of all tensors in host memory, by name. They are of one version as long as that is held."""
        return self._tensors().read()

    @property
    def device(self) -> str:
        """Where the window lies, as this process numbers it: "cpu" or "cuda:1"."""
        return self._source.device.text

    @property
    def nbytes(self) -> int:
        """Of the window."""
        return self._tensors().nbytes

    def close(self) -> None:
        """Lets go of what is held. The window stays mapped until the last tensor that was made of it is gone."""
        try:
            while self._object is not None and self._object.is_here and self._held:
                self.release()
        finally:
            self._window = Window({}, 0, 0, self._source.device)
            self._object = None

    def __getitem__(self, name: typing.Any) -> Memory:
        return self._tensors()[name]

    def __iter__(self) -> typing.Iterator[typing.Any]:
        return iter(self._tensors())

    def __len__(self) -> int:
        return len(self._tensors())

    def __enter__(self) -> Attached:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._object is None:
            return "<treadle.Attached, closed>"
        return f"<treadle.Attached of {len(self)} tensors, version {self.version}>"


def attach(handle: bytes, *, timeout: float = 60) -> Attached:
    """Attaches to the window of a handle (Switch.infer.handle()), in any process of the same user on the machine. The
    pages are mapped, and not touched. A window on a device is found by the device itself, whatever number it has here.
    Raises Refused for a handle that was cut or altered, or is of another machine, user or version, or of a device that
    this process does not have; Peer when its process is gone."""
    pointer = ctypes.c_void_p()
    given = memoryview(handle).tobytes()  # of a number, bytes() would make that many zeros
    _library.call("treadle_attach", given, len(given), timeout, ctypes.byref(pointer))
    return Attached(pointer)
