"""What generators, trainers and actors have in common: an object that one call at a time uses, functions of Python's
that such a call calls, values as structs of the library, and memory that is given to it."""

from __future__ import annotations

import array
import contextlib
import ctypes
import dataclasses
import functools
import signal
import threading
import types
import typing

from . import _abi, _columns, _library, _tensors, errors
from .group import Group, held, refuse
from .layout import Layout
from .windows import Window

Progress = typing.Callable[[str, int, int], object]
Stop = typing.Callable[[], object]

# ---- Functions of Python's -----------------------------------------------------------------------------------


class Calls(_library.Callbacks):
    """Functions of Python's that a call calls. What the first one raises ends the call, and is raised again from it, as
    it is.

    Python handles a signal when such a function starts, before the first line in which its exception could be caught,
    and ctypes drops it. So while a call runs, what a handler raises outside of the caller's functions is kept: it ends
    the call as soon as the library asks, and is raised then."""

    __slots__ = ("_inside", "_keeps")

    def __init__(self) -> None:
        super().__init__()
        self._inside = False  # of a function of the caller's
        self._keeps = False  # what a handler raises

    def work(self, function: typing.Callable[..., object], *given: typing.Any) -> object:
        """Calls a function of the caller's."""
        try:
            self._inside = True
            return function(*given)
        finally:
            self._inside = False

    def guard(self, work: typing.Callable[[], object], expected: tuple[type[BaseException], ...] = ()) -> int:
        before = self.raised
        status = super().guard(work, (*expected, _Signalled))
        if before is not None:
            self.raised = before
        return status

    def check(self) -> None:
        """In a function that guard calls: raises where the call is to end."""
        if _library.is_signalled():
            raise _Signalled("a signal came")

    def run(self, group: Group | None, name: str, *given: typing.Any) -> None:
        """Calls a function of the library. `group`: whose net may have functions of Python's, too."""
        self.raised = None
        failure: errors.Error | None = None
        net = group._net.callbacks if group is not None and group._net is not None else None
        try:
            with self._listening():
                _library.call(name, *given, callbacks=net)
        except errors.Error as error:
            failure = error
        raised = self.take()
        if raised is not None:
            raise raised
        if failure is not None:
            raise failure

    @contextlib.contextmanager
    def _listening(self) -> typing.Iterator[None]:
        """In the main thread; others get no signals."""
        handlers: dict[int, tuple[typing.Any, typing.Any]] = {}
        late: BaseException | None = None
        try:
            if threading.current_thread() is threading.main_thread():
                self._keeps = True
                for number in signal.valid_signals():
                    if callable(before := _Handler.below(signal.getsignal(number))):
                        handlers[number] = before, _Handler(self, before)
                        signal.signal(number, handlers[number][1])
            yield
        finally:
            self._keeps = False
            while handlers:
                try:
                    which, (before, mine) = next(iter(handlers.items()))
                    if signal.getsignal(which) is mine:  # nobody has set another one meanwhile
                        signal.signal(which, before)
                    del handlers[which]
                except BaseException as error:  # noqa: BLE001
                    late = error  # of a signal that has come now
            if late is not None:
                raise late

    def observer(self, progress: Progress | None, stop: Stop | None) -> typing.Any:
        """Who is told of a call and may end it. Python handles signals when it is asked."""
        kind = _abi.treadle_observer

        def tell(_context: object, what: bytes, done: int, total: int) -> None:
            try:
                if self.raised is None and progress is not None:
                    self.work(progress, _library.text(what), done, total)
            except BaseException as error:  # noqa: BLE001
                self.raised = error

        def asked(_context: object) -> bool:
            try:
                if self.raised is not None or _library.is_signalled():
                    return True
                return bool(stop is not None and self.work(stop))
            except BaseException as error:  # noqa: BLE001
                self.raised = error
                return True

        type_ = _library.field(kind, "progress")
        return _library.sized(
            kind,
            progress=type_(tell) if progress is not None else type_(),
            stop=_library.field(kind, "stop")(asked),
        )


class _Handler:
    """Keeps what a signal's handler raises, while a call runs and outside of the caller's functions."""

    __slots__ = ("_calls", "_before")

    def __init__(self, calls: Calls, before: typing.Any) -> None:
        self._calls, self._before = calls, before

    @staticmethod
    def below(handler: typing.Any) -> typing.Any:
        """Without those that calls have left, which a signal has ended as they put their handlers back."""
        while isinstance(handler, _Handler) and not handler._calls._keeps:
            handler = handler._before
        return handler

    def __call__(self, number: int, frame: typing.Any) -> None:
        try:
            self._before(number, frame)
        except BaseException as error:
            if self._calls._inside or not self._calls._keeps:
                raise
            _library.keep_raised(error)


class _Signalled(errors.Cancelled):
    """A signal has ended the call, and what its handler raised is kept already."""


# ---- Objects -------------------------------------------------------------------------------------------------

_Method = typing.TypeVar("_Method", bound=typing.Callable[..., typing.Any])


def collective(method: _Method) -> _Method:
    """A method of an Engine that all ranks call: what Python refuses on one of them fails on all."""

    @functools.wraps(method)
    def call(self: Engine, *given: typing.Any, **named: typing.Any) -> typing.Any:
        told = self._told
        try:
            return method(self, *given, **named)
        except Exception as error:
            if self._told == told:
                self._refuse(error)
            raise

    return typing.cast(_Method, call)


class Engine:
    """An object of the library that one call at a time uses, on the ranks of a group. It keeps group and layouts."""

    _word = "engine"
    _instead = "make it in the other process"  # of pickling it
    _group: Group | None = None
    _told = 0  # how often the other ranks have heard of a call: it was made, or refused

    def __init__(self, layout: Layout, group: Group | None) -> None:
        self._layout, self._group = layout, group
        self._rank = group.rank if group is not None else 0
        self._words = f"the {self._word} of {layout.text} ({id(self):#x})"
        self._calls = Calls()
        self._lock = threading.Lock()
        self._runs: object = None  # the call that runs; a signal may come between any two lines
        self._object: _library.Object | None = None

    def _make(self, name: str, end: str, keep: typing.Iterable[object], *given: typing.Any) -> None:
        pointer = ctypes.c_void_p()
        with held(self._group, self._words) as group:
            self._told += 1
            self._calls.run(self._group, name, group, *given, ctypes.byref(pointer))
        kept = [self._group._object] if self._group is not None else []
        self._object = _library.Object(pointer, end, *kept, *keep)

    def _check(self, what: str) -> _library.Object:
        if (here := self._object) is None:
            raise errors.State(f"{what}: the {self._word} is closed")
        return here

    def _call(self, what: str, name: str, *given: typing.Any) -> None:
        """Calls a function whose first argument is this object."""
        pointer = self._check(what).use(what)
        mine = object()
        try:
            self._take(mine, f"{what}: another")
            with held(self._group, self._words):
                self._told += 1
                self._calls.run(self._group, name, pointer, *given)
        finally:
            if self._runs is mine:
                self._runs = None

    def _refuse(self, error: Exception) -> None:
        """The other ranks wait for this one in a call, whose arguments Python has refused here."""
        mine = object()
        try:
            self._take(mine, "another")
            with held(self._group, self._words) as group:
                self._told += 1
                if group is not None:
                    refuse(group, error)
        except errors.Error:
            pass  # another call runs, or the group is closed: nobody waits
        finally:
            if self._runs is mine:
                self._runs = None

    def _take(self, mine: object, words: str) -> None:
        with self._lock:
            if self._runs is not None:
                raise errors.State(f"{words} call of this {self._word} runs: wait for it first")
            self._runs = mine

    def _number(self, what: str, name: str) -> int:
        """Of a function that gives one of 64 bits."""
        answer = ctypes.c_uint64()
        self._call(what, name, ctypes.byref(answer))
        return answer.value

    def _end(self) -> None:
        """In close(), once: what is to be done while the object is there."""

    def close(self) -> None:
        """Ends it. Raises State while one of its calls runs, also in a function that this call calls. Local."""
        if self._object is None:
            return
        mine = object()
        try:
            self._take(mine, "close: a")
            self._end()
        finally:
            if self._runs is mine:
                self._object = self._runs = None

    def __enter__(self) -> typing.Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError(f"a treadle.{type(self).__name__} cannot be pickled: {self._instead}")

    def __repr__(self) -> str:
        state = ", closed" if self._object is None else ""
        return f"<treadle.{type(self).__name__} of {self._layout.text} on {self._layout.ranks} ranks{state}>"


# ---- Values --------------------------------------------------------------------------------------------------

_COUNTS = {"stop_token_ids": "stop_token_id_count", "never": "never_count"}


def ids(words: str, numbers: typing.Any) -> typing.Any:
    """Ids as an array of the library's, with at least one place. Raises Refused for what is none."""
    try:
        packed = array.array("i", _columns.listed(numbers))
    except (TypeError, ValueError, OverflowError) as error:
        raise errors.Refused(f"{words}: ids must be whole numbers of 32 bits: {error}") from error
    return (ctypes.c_int32 * max(1, len(packed)))(*packed), len(packed)


def struct(kind: typing.Any, what: str, values: typing.Any, **others: typing.Any) -> typing.Any:
    """A dataclass as the struct of the library with the same names. `others` are in place of its values, or fields that
    it has not."""
    given = {field.name: getattr(values, field.name) for field in dataclasses.fields(values)}
    made = _library.sized(kind)
    for name, value in {**given, **others}.items():
        shown = value
        if name in _COUNTS:
            value, count = ids(f"{what}: {name}", value)
            setattr(made, _COUNTS[name], count)
        elif isinstance(value, str):
            value = _library.given(name, value)
        _library.put(made, name, value, f"{what}: {name}", shown)
    return made


def figures(kind: typing.Any, of: typing.Any, **others: typing.Any) -> typing.Any:
    """A NamedTuple from a struct of the library, with the same names."""
    return kind(**{name: others[name] if name in others else getattr(of, name) for name in kind._fields})


# ---- Memory of the caller's ------------------------------------------------------------------------------------


class Room(typing.NamedTuple):
    """Memory on the host."""

    address: int
    nbytes: int
    owner: object  #: that keeps it


def room(what: str, memory: typing.Any) -> Room:
    """The memory of a tensor of torch, numpy or treadle, of a window, or of what has the buffer protocol. Raises
    Refused for what is not on the host, or has gaps."""
    if isinstance(memory, Window):
        if memory.device != "cpu":
            raise errors.Refused(f"{what}: the window is on device {memory.device}; it must be on cpu")
        found = Room(memory.address, memory.nbytes, memory)
    elif any(hasattr(memory, name) for name in ("data_ptr", "address", "__array_interface__")):
        given = _tensors.given(what, memory, f"{what}: the memory")
        found = Room(given.address, given.nbytes, memory)
    else:
        found = _buffer(what, memory)
    if found.address % 4:
        raise errors.Refused(f"{what}: the memory lies at {found.address:#x}; it must be at a multiple of 4 bytes")
    return found


def _buffer(what: str, memory: typing.Any) -> Room:
    import numpy

    try:
        view = memoryview(memory)
    except TypeError as error:
        raise errors.Refused(
            f"{what}: the memory is a {type(memory).__name__}, which has neither the buffer protocol nor is it a tensor"
        ) from error
    if not view.c_contiguous:
        raise errors.Refused(f"{what}: the memory has strides {list(view.strides or ())}; it must be contiguous")
    if not view.nbytes:
        return Room(0, 0, memory)
    shown = numpy.frombuffer(view, numpy.uint8)
    return Room(int(shown.ctypes.data), view.nbytes, shown)


def fresh(nbytes: int) -> Room:
    """New memory, of zeros, of whole pages."""
    import mmap

    pages = (ctypes.c_uint8 * max(1, nbytes)).from_buffer(mmap.mmap(-1, max(1, nbytes)))
    return Room(ctypes.addressof(pages), nbytes, pages)
