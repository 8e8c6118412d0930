"""The C library: found, loaded and called by ctypes.

Nothing here is compiled for one version of Python, and cffi, the other way to call a library so, would be a package to install
(docs/decisions/0011-python-by-ctypes.md).

A function of the library may wait, for other ranks say, and ctypes lets other threads of Python run meanwhile. Signals are handled by Python
in the main thread, between its own steps, and there are none inside of C. So the library asks a watcher every 20 ms (treadle_thread_watch). It is
the generator `_watcher`: to resume it is one step of Python, in which a handler runs; what the handler raises, as KeyboardInterrupt, is caught
inside of it, ends the wait, and is raised again when the function has returned.
"""

from __future__ import annotations

import ctypes
import os
import threading
import typing

from . import _abi, errors

_lock = threading.Lock()
_library: ctypes.CDLL | None = None
_functions: dict[str, typing.Any] = {}
_raised: BaseException | None = None  # by a signal's handler, inside of a call
_forks = 0  # how often this process is the child of one that had loaded the library


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def path() -> str:
    """The library's file: beside this package, or what TREADLE_LIBRARY names."""
    return os.environ.get("TREADLE_LIBRARY") or os.path.join(os.path.dirname(__file__), "lib", "libtreadle.so.0")


def _watcher() -> typing.Iterator[bool]:
    global _raised
    while True:
        try:
            while _raised is None:
                yield True
        except GeneratorExit:  # Python ends
            return
        except BaseException as caught:  # noqa: BLE001
            _raised = caught
        yield False


_watch = _watcher()
next(_watch)
# The arguments are not looked at: who calls with more than a function takes, passes them in registers.
_watch_function = ctypes.CFUNCTYPE(ctypes.c_bool)(_watch.__next__)


def watcher() -> typing.Any:
    """The same for options that have a watcher: in the main thread; in others nobody."""
    if threading.current_thread() is threading.main_thread():
        return ctypes.cast(_watch_function, _abi.treadle_watcher)
    return _abi.treadle_watcher()


def _load() -> ctypes.CDLL:
    global _library
    with _lock:
        if _library is None:
            loaded = ctypes.CDLL(path())
            loaded.treadle_thread_watch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
            loaded.treadle_thread_watch.restype = None
            _library = loaded
            if threading.current_thread() is threading.main_thread():
                loaded.treadle_thread_watch(ctypes.cast(_watch_function, ctypes.c_void_p), None)
            else:  # the main thread is watched when it comes
                _functions["watch"] = True
    return _library


def function(name: str) -> typing.Any:
    """A function of the library by its name, with the types of its arguments."""
    found = _functions.get(name)
    if found is None:
        library = _library or _load()
        found = getattr(library, name)
        found.restype, found.argtypes = _abi.FUNCTIONS[name]
        _functions[name] = found
    if "watch" in _functions and threading.current_thread() is threading.main_thread():
        del _functions["watch"]
        _load().treadle_thread_watch(ctypes.cast(_watch_function, ctypes.c_void_p), None)
    return found


def text(value: bytes | None) -> str:
    """A text of the library: UTF-8, where a byte that is none is kept (os.fsdecode)."""
    return os.fsdecode(value) if value is not None else ""


def message() -> str:
    """The message of the last failure in this thread."""
    return text(function("treadle_error_message")())


class Callbacks:
    """Functions of Python's that the library calls, of one object. What one raised is kept until the function of the library, in whose thread it may not
    have been, has returned."""

    __slots__ = ("raised",)

    def __init__(self) -> None:
        self.raised: BaseException | None = None

    def guard(self, work: typing.Callable[[], object]) -> int:
        """The status of `work` for the library, and its message."""
        try:
            work()
            return 0
        except BaseException as error:  # noqa: BLE001
            self.raised = error
            if isinstance(error, errors.Error):
                status, words = error.status, str(error)
            else:
                status = errors.System.status if isinstance(error, Exception) else errors.Cancelled.status
                words = f"{type(error).__name__}: {error}"
            return int(value("treadle_error_set", status, os.fsencode(words)))

    def take(self) -> BaseException | None:
        raised, self.raised = self.raised, None
        return raised


def _take_signal() -> BaseException | None:
    """What a signal's handler raised inside of a call: in the main thread."""
    global _raised
    if _raised is None or threading.current_thread() is not threading.main_thread():
        return None
    caught, _raised = _raised, None
    return caught


def call(name: str, *arguments: typing.Any, callbacks: Callbacks | None = None) -> None:
    """Calls a function that returns a status. Raises the error of one that is not OK: from what a callback raised, where that is the cause; and in its
    place what a signal's handler raised, if that is no mere Exception."""
    status = function(name)(*arguments)
    words = message() if status != 0 else ""
    signal, called = _take_signal(), callbacks.take() if callbacks is not None else None
    caught = signal or called
    if status == 0:
        if signal is not None:  # it came as the work was done
            raise signal
        return
    if caught is not None and not isinstance(caught, Exception):
        raise caught
    raise errors.BY_STATUS.get(status, errors.Error)(words) from caught


def value(name: str, *arguments: typing.Any) -> typing.Any:
    """Calls a function that returns a value."""
    return function(name)(*arguments)


def sized(kind: typing.Any, **fields: typing.Any) -> typing.Any:
    """A struct that begins with struct_size."""
    made = kind(struct_size=ctypes.sizeof(kind))
    for name, given in fields.items():
        setattr(made, name, given)
    return made


def field(kind: typing.Any, name: str) -> typing.Any:
    """The type of a struct's field."""
    return next(found[1] for found in kind._fields_ if found[0] == name)


class Object:
    """An object of the library. It is ended when nobody refers to it any more, and after all those that have it in `keep`: Python may
    finalise what refers to each other in any order.

    In a child of fork the library's threads and sockets are gone or shared with the parent: there the object is refused, and ended by nobody."""

    __slots__ = ("pointer", "keep", "_end", "_born", "_users", "__weakref__")

    def __init__(self, pointer: ctypes.c_void_p, end: str, *keep: object) -> None:
        self.pointer = pointer
        self.keep = keep
        self._end = function(end)
        self._born = _forks
        self._users = 1  # itself, and those that keep it
        for kept in keep:
            if isinstance(kept, Object):
                kept._users += 1

    def use(self, what: str) -> ctypes.c_void_p:
        """The pointer, for one call."""
        if self._born != _forks:
            raise errors.State(f"{what}: it was made before this process was forked; make it anew, or start processes by spawn")
        return self.pointer

    def _leave(self) -> None:
        self._users -= 1
        if self._users > 0:
            return
        if self._born == _forks:
            self._end(self.pointer)
        for kept in self.keep:
            if isinstance(kept, Object):
                kept._leave()

    def __del__(self) -> None:
        self._leave()
