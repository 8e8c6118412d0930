"""The net "torch": messages between nodes by isend and irecv of a process group of torch.distributed.

What torch once began to receive it cannot take back: a work that is given up may write later. So messages lie in
tensors of their own, and are copied from and to the memory of the library. Tensors of works that were given up are kept
until the process ends, and their process group is not used again.

gloo says that a work has ended to who waits for it, and to nobody who only asks (is_completed). So a thread waits for
each message under way; there are a few of them at a time. Works that are still waited for when Python ends would wake
up in the middle of that; so then their connections are closed, by a wait that is too short."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import itertools
import queue
import threading
import typing
import weakref

from . import _abi, _library, errors

# Bits of a tag: torch has 31, the library 40; and one says that it is the second part of a message.
_EPOCH, _NUMBER = 11, 19
_LAST_WAIT = 1.0  # seconds, when Python ends


class _Waiters:
    """Threads that wait for works; as many as there are works that are waited for at a time."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[typing.Callable[[], None]] = queue.SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()

    def take(self, job: typing.Callable[[], None]) -> None:
        with self._lock:
            needed = self._idle == 0
            self._idle -= not needed
        if needed:
            threading.Thread(target=self._run, name="treadle-torch", daemon=True).start()
        self._jobs.put(job)

    def _run(self) -> None:
        while True:
            self._jobs.get()()
            with self._lock:
                self._idle += 1


class _Request:
    """A message under way."""

    def __init__(self, net: _Open, peer: int, buffer: typing.Any, into: list[tuple[int, int]] | None) -> None:
        self.net, self.peer, self.buffer = net, peer, buffer
        self.into = into  # of a receive: where its bytes go
        self.work: typing.Any = None
        self.host: typing.Any = None  # what was received, in memory of the processor
        self.error: BaseException | None = None
        self.done = False

    def wait(self) -> None:
        try:
            self.work.wait()
            if self.into is not None:
                self.host = self.buffer.cpu()
        except BaseException as error:  # noqa: BLE001
            self.error = error
        self.done = True
        self.net.moved.set()


class _Open:
    """The net of one switch, from open to close."""

    def __init__(self) -> None:
        self.requests: dict[int, _Request] = {}
        self.connected: set[int] = set()
        self.moved = threading.Event()  # a work has ended


_waiters = _Waiters()
# Process groups, and why they are not used again.
_spent: weakref.WeakKeyDictionary[typing.Any, str] = weakref.WeakKeyDictionary()
_given_up: list[tuple[Torch, _Request]] = []


class Torch:
    """The row: its table for the library, in `table`. It and its callbacks stay as long as the group does."""

    def __init__(self, group: typing.Any) -> None:
        import torch  # type: ignore[import-not-found,unused-ignore]
        import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]
        from torch.distributed import distributed_c10d

        self._torch, self._dist, self._group = torch, dist, group
        self._of_group = group if group is not None else distributed_c10d._get_default_group()
        self._members = dist.get_process_group_ranks(self._of_group)
        self._rank = dist.get_rank(group)
        self._name = str(getattr(self._of_group, "group_name", ""))
        kinds = [str(getattr(kind, "type", kind)) for kind in getattr(self._of_group, "_device_types", [])]
        self._device = "cpu" if not kinds or "cpu" in kinds else kinds[0]
        self._nets: dict[int, _Open] = {}
        self._numbers = itertools.count(1)
        self._free: list[typing.Any] = []  # buffers; with those in use never more than were in use at a time
        self.callbacks = _library.Callbacks()
        names = ("open", "address", "connect", "send", "receive", "test", "wait", "cancel", "close")
        self.table = _library.sized(
            _abi.treadle_net_ops,
            name=b"torch",
            memory=_abi.TREADLE_NET_HOST,
            most_parts=8,  # each is a copy by Python
            **{
                name: self.callbacks.function(_library.field(_abi.treadle_net_ops, name), getattr(self, "_" + name))
                for name in names
            },
        )

    def refusal(self) -> str:
        """Why the process group is not to be used again; "": it may be."""
        why = _spent.get(self._of_group)
        return (
            ""
            if why is None
            else (
                f"net torch: rank {self._rank}: process group '{self._name}' was used in an attempt that failed "
                f"({why}), and may still deliver messages of it: make a "
                "new one on all ranks (torch.distributed.new_group), and a new Group with it"
            )
        )

    def _words_of(self, rank: int) -> bytes:
        """What a rank says of itself."""
        words = f"{self._name}/{','.join(map(str, self._members))}"
        return b"torch" + hashlib.blake2b(words.encode(), digest_size=16).digest() + rank.to_bytes(4, "little")

    # ---- The table ----

    def _open(self, options: typing.Any, net_p: typing.Any) -> int:
        def work() -> None:
            if said := self.refusal():
                raise errors.Refused(said)
            number = next(self._numbers)
            self._nets[number] = _Open()
            net_p[0] = number

        return self.callbacks.guard(work)

    def _address(self, _net: int, room: int, capacity: int, bytes_p: typing.Any) -> int:
        def work() -> None:
            words = self._words_of(self._rank)
            ctypes.memmove(room, words, min(len(words), capacity))
            bytes_p[0] = len(words)

        return self.callbacks.guard(work)

    def _connect(self, net: int, peer: int, address: int, count: int) -> int:
        def work() -> None:
            if ctypes.string_at(address, count) != self._words_of(peer):
                raise errors.Refused(
                    f"net torch: rank {peer} has another net, or another process group than '{self._name}' of "
                    f"{len(self._members)} ranks: all ranks have to give the same one"
                )
            self._nets[net].connected.add(peer)

        return self.callbacks.guard(work)

    def _send(self, net: int, peer: int, tag: int, parts: typing.Any, count: int, request_p: typing.Any) -> int:
        def work() -> None:
            places = [(parts[i].at, parts[i].bytes) for i in range(count)]
            buffer = self._buffer(sum(size for _, size in places))
            at = 0
            for place, size in places:
                if size:
                    buffer[at : at + size].copy_(self._view(place, size))
                at += size
            self._begin(net, peer, tag, buffer, None, request_p)

        return self.callbacks.guard(work)

    def _receive(self, net: int, peer: int, tag: int, parts: typing.Any, count: int, request_p: typing.Any) -> int:
        def work() -> None:
            places = [(parts[i].at, parts[i].bytes) for i in range(count)]
            self._begin(net, peer, tag, self._buffer(sum(size for _, size in places)), places, request_p)

        return self.callbacks.guard(work)

    def _begin(
        self,
        net: int,
        peer: int,
        tag: int,
        buffer: typing.Any,
        into: list[tuple[int, int]] | None,
        request_p: typing.Any,
    ) -> None:
        opened = self._nets[net]
        if peer not in opened.connected:
            raise errors.State(f"net torch: rank {peer} is not connected")
        request = _Request(opened, peer, buffer, into)
        begin, number = self._dist.isend if into is None else self._dist.irecv, next(self._numbers)
        try:
            request.work = begin(buffer, self._members[peer], group=self._group, tag=_tag_of(tag))
        except Exception as error:
            self._lose(request, error)
        opened.requests[number] = request
        _waiters.take(request.wait)
        request_p[0] = number

    def _test(self, net: int, number: int, done_p: typing.Any) -> int:
        def work() -> None:
            opened = self._nets[net]
            request = opened.requests[number]
            done_p[0] = request.done
            if not request.done:
                return
            del opened.requests[number]
            if request.error is not None:
                self._lose(request, request.error)
            at = 0
            for place, size in request.into or ():
                if size:
                    self._view(place, size).copy_(request.host[at : at + size])
                at += size
            self._keep(request.buffer)

        return self.callbacks.guard(work)

    def _wait(self, net: int, seconds: float) -> None:
        try:
            moved = self._nets[net].moved
            moved.wait(seconds)
            moved.clear()  # whoever was set by then is found by the tests that follow
        except BaseException as error:  # noqa: BLE001
            _library.keep_raised(error)

    def _cancel(self, net: int, number: int) -> None:
        try:
            self._give_up(self._nets[net].requests.pop(number), "it was given up")
        except BaseException as error:  # noqa: BLE001
            _library.keep_raised(error)

    def _close(self, net: int) -> None:
        try:
            for request in self._nets.pop(net).requests.values():
                self._give_up(request, "it was given up")
        except BaseException as error:  # noqa: BLE001
            _library.keep_raised(error)

    # ---- Failures ----

    def _lose(self, request: _Request, error: BaseException) -> typing.NoReturn:
        self._spend(str(error))
        what = "sent to" if request.into is None else "received from"
        raise errors.Peer(f"net torch: a message {what} rank {request.peer}: {error}") from error

    def _spend(self, why: str) -> None:
        _spent.setdefault(self._of_group, why if len(why) < 120 else why[:117] + "...")

    def _give_up(self, request: _Request, why: str) -> None:
        if request.done and request.error is None:
            return
        self._spend(f"a message {'to' if request.into is None else 'from'} rank {request.peer}: {request.error or why}")
        _given_up.append((self, request))

    def end(self, request: _Request) -> None:
        """Python ends: ends a work that was given up."""
        import datetime

        try:
            work: typing.Any = self._dist.irecv(
                self._buffer(1), self._members[request.peer], group=self._group, tag=_tag_of(-1)
            )
            work.wait(datetime.timedelta(milliseconds=1))
        except Exception:  # noqa: BLE001, S110
            pass

    # ---- Memory ----

    def _buffer(self, size: int) -> typing.Any:
        """Of this many bytes, and at least one: the smallest free one in which they fit, or a new one in place of
        another."""
        size = max(1, size)
        self._free.sort(key=lambda buffer: int(buffer.numel()))
        at = next((i for i, buffer in enumerate(self._free) if buffer.numel() >= size), None)
        if at is not None:
            return self._free.pop(at)[:size]
        if self._free:
            self._free.pop()
        return self._torch.empty(-(-size // 4096) * 4096, dtype=self._torch.uint8, device=self._device)[:size]

    def _keep(self, buffer: typing.Any) -> None:
        """For another message."""
        self._free.append(buffer if buffer._base is None else buffer._base)

    def _view(self, at: int, size: int) -> typing.Any:
        return self._torch.frombuffer((ctypes.c_char * size).from_address(at), dtype=self._torch.uint8)


def _tag_of(tag: int) -> int:
    """Of an attempt, the number of a message between two ranks, and its part (net.c). A pair has never more under way
    than have different tags."""
    return (tag >> 28 & (1 << _EPOCH) - 1) << _NUMBER + 1 | (tag >> 39 & 1) << _NUMBER | tag & (1 << _NUMBER) - 1


@atexit.register
def _end_waits() -> None:
    import time

    end = time.monotonic() + _LAST_WAIT
    for torch, request in _given_up:
        if not request.done:
            torch.end(request)
    while time.monotonic() < end and any(not request.done for _, request in _given_up):
        time.sleep(0.005)
