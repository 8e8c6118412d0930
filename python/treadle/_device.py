"""Devices: in which memory windows lie, and which of the caller's work comes before treadle's.

A switch on a CUDA device is given one stream of the caller's when it is made: what that stream was given before a call
is done before the call's own work, and a call returns when its work is done. torch, which this package does not import,
has a current stream, which may be another one at each call. So before each call the switch's stream waits for torch's
current one, if that differs (order)."""

from __future__ import annotations

import sys
import typing

from . import _abi, _library, errors

if typing.TYPE_CHECKING:
    from .group import Group

_KINDS = {_abi.TREADLE_MEMORY_HOST: "cpu", _abi.TREADLE_MEMORY_CUDA: "cuda"}
_DLPACK = {_abi.TREADLE_MEMORY_HOST: 1, _abi.TREADLE_MEMORY_CUDA: 2}  # kDLCPU, kDLCUDA
_LEGACY = 1  # the default stream, as DLPack and __cuda_array_interface__ number it
_NO_STREAM = -1  # of DLPack: the consumer orders the work itself


def _torch_cuda() -> typing.Any:
    """torch.cuda, if this process uses it. Otherwise None: no stream of torch has been given anything."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def _stream(cuda: typing.Any, handle: int, number: int) -> typing.Any:
    """A stream of a device as torch's. torch refuses odd handles, so also that of the default stream; 2 is the
    thread's, which it takes."""
    return cuda.default_stream(number) if handle in (0, _LEGACY) else cuda.ExternalStream(handle, device=number)


def _check_not_capturing(cuda: typing.Any, number: int) -> None:
    """What is queued while a graph is captured becomes part of the graph, and does not run."""
    with cuda.device(number):
        if cuda.is_current_stream_capturing():
            handle = cuda.current_stream(number).cuda_stream
            words = f"torch's current stream {handle:#x} of cuda:{number} is capturing a graph"
            raise errors.Refused(f"{words}: call treadle before or after the capture")


class Device(typing.NamedTuple):
    """A device that windows lie on."""

    kind: int  #: treadle_memory_kind
    number: int = 0  #: among those of its kind, as this process sees them
    stream: int = 0  #: CUDA: the handle of the caller's; 0: the default stream
    follows: bool = False  #: torch's current stream comes first, too

    @property
    def is_host(self) -> bool:
        return self.kind == _abi.TREADLE_MEMORY_HOST

    @property
    def text(self) -> str:
        """As torch writes it: "cpu" or "cuda:1"."""
        return "cpu" if self.is_host else f"{_KINDS[self.kind]}:{self.number}"

    @property
    def dlpack(self) -> tuple[int, int]:
        return _DLPACK[self.kind], self.number

    @property
    def consumers_stream(self) -> int:
        """The stream that a consumer waits for, as __cuda_array_interface__ gives it."""
        return self.stream or _LEGACY

    def memory(self) -> typing.Any:
        return _abi.treadle_memory(kind=self.kind, device=self.number, stream=self.stream or None)

    def order(self) -> None:
        """What torch's current stream was given comes before the next call's work. Raises Refused if it is capturing a
        graph."""
        cuda = _torch_cuda() if self.follows else None
        if cuda is None:
            return
        _check_not_capturing(cuda, self.number)
        current = cuda.current_stream(self.number)
        if current.cuda_stream != self.stream:
            _stream(cuda, self.stream, self.number).wait_stream(current)

    def finish(self) -> None:
        """Waits until torch's current stream has done what it was given. Raises Refused if it is capturing a graph."""
        cuda = None if self.is_host else _torch_cuda()
        if cuda is None:
            return
        _check_not_capturing(cuda, self.number)
        cuda.current_stream(self.number).synchronize()

    def lead(self, stream: typing.Any) -> None:
        """By the rules of DLPack for `stream`, a consumer's: it waits for what this device's stream was given. Nothing
        of treadle's own is under way then. Without torch nobody here can tell one stream to wait for another. Raises
        Refused if torch's current stream is capturing a graph."""
        if self.is_host:
            return
        if stream is not None and (not isinstance(stream, int) or isinstance(stream, bool)):
            raise TypeError(f"stream is a {type(stream).__name__}, and must be None or the number of a stream")
        if stream == 0 or (stream is not None and stream < _NO_STREAM):
            raise BufferError(
                f"stream is {stream}: 1 is the legacy default stream, 2 that of the thread, "
                "-1 is for consumers that need not wait"
            )
        cuda = _torch_cuda() if stream != _NO_STREAM else None
        consumer = _LEGACY if stream is None else stream
        if cuda is None:
            return
        _check_not_capturing(cuda, self.number)
        self.order()
        if consumer != self.consumers_stream:
            _stream(cuda, consumer, self.number).wait_stream(_stream(cuda, self.stream, self.number))


HOST = Device(_abi.TREADLE_MEMORY_HOST)


def _number_here(group: Group) -> int:
    """This rank's number among those of its machine, which may have several nodes. Collective."""
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        machines = group.gather(file.read().strip())
    return machines[: group.rank].count(machines[group.rank])


def _handle(what: str, stream: typing.Any, number: int) -> int:
    """torch's streams, which know their device, and others as numbers."""
    found = getattr(stream, "cuda_stream", stream)
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise errors.Refused(
            f"{what}: stream is {stream!r}, and must be a stream of torch or the handle of a CUDA stream"
        )
    index = getattr(getattr(stream, "device", None), "index", None)
    if index not in (None, number):
        raise errors.Refused(
            f"{what}: stream is of device cuda:{index}, and the windows lie on cuda:{number}; "
            f"give a stream of cuda:{number}"
        )
    return found


def is_cuda(what: str, device: typing.Any) -> bool:
    """Is it a CUDA device, of any number? device: as for choose."""
    return _read(what, device)[0] == _abi.TREADLE_MEMORY_CUDA


def _read(what: str, device: typing.Any) -> tuple[int, int | None]:
    """The kind and the number that a text or a torch.device has. None: any."""
    text = str(device)
    kind, colon, number = text.partition(":")
    if text == "auto":
        some = _library.value("treadle_machine_device_count") > 0
        return _abi.TREADLE_MEMORY_CUDA if some else _abi.TREADLE_MEMORY_HOST, None
    if text in ("cpu", "cpu:0"):
        return _abi.TREADLE_MEMORY_HOST, None
    if kind != "cuda":
        raise errors.Refused(f"{what}: device is {text!r}: it is 'cpu', 'cuda', 'cuda:I', 'auto' or a torch.device")
    if colon and not (number.isascii() and number.isdigit() and len(number) < 6):
        raise errors.Refused(
            f"{what}: device is {text!r}: a CUDA device is 'cuda' or 'cuda:I', with one number, from 0: 'cuda:1'"
        )
    return _abi.TREADLE_MEMORY_CUDA, int(number) if colon else None


def choose(what: str, device: typing.Any, stream: typing.Any, group: Group) -> Device:
    """The device of this rank. "cuda" without a number, and "auto": ranks of a machine take its devices in turn. A
    device that is not there is refused by whoever opens it, on all ranks. Collective."""
    turn = _number_here(group)  # whatever others are told to take
    kind, number = _read(what, device)
    if kind == _abi.TREADLE_MEMORY_HOST:
        if stream is not None:
            raise errors.Refused(f"{what}: device {str(device)!r} is host memory, which has no streams")
        return HOST
    if number is None:
        number = turn % max(1, _library.value("treadle_machine_device_count"))
    if stream is not None:
        return Device(kind, number, _handle(what, stream, number))
    cuda = _torch_cuda()
    knows = cuda is not None and number < cuda.device_count()
    return Device(kind, number, cuda.current_stream(number).cuda_stream if knows else 0, follows=True)
