"""The C library: found, loaded and called by ctypes.

Nothing here is compiled for one version of Python, and cffi, the other way to call a library so, would be a package to
install (docs/decisions/0011-python-by-ctypes.md).

A function of the library may wait, for other ranks say, and ctypes lets other threads of Python run meanwhile. Signals
are handled by Python in the main thread, between its own steps, and there are none inside of C. So the library asks a
watcher every 20 ms (treadle_thread_watch). It is a generator (_watcher): to resume it is one step of Python, in which a
handler runs; what the handler raises, as KeyboardInterrupt, is caught inside of it, ends the wait, and is raised again
when the function has returned.
"""

from __future__ import annotations

import ctypes
import os
import threading
import typing

from . import _abi, errors

_lock = threading.Lock()
_library: ctypes.CDLL | None = None  # libtreadle, which the others use, too
_libraries: dict[str, ctypes.CDLL] = {}
_functions: dict[str, typing.Any] = {}
_raised: BaseException | None = None  # by a signal's handler, inside of a call
_forks = 0  # how often this process is the child of one that had loaded the library


def _count_fork() -> None:
    """In the child, whose only thread is its main thread, whichever it was in the parent."""
    global _forks, _lock
    _forks += 1
    _lock = threading.Lock()
    if _library is not None:
        _functions["watch"] = True


os.register_at_fork(after_in_child=_count_fork)


def path(name: str = "treadle") -> str:
    """The file of a library: beside this package, or beside the libtreadle that TREADLE_LIBRARY names."""
    own = os.environ.get("TREADLE_LIBRARY") or os.path.join(os.path.dirname(__file__), "lib", "libtreadle.so.2")
    return os.path.join(os.path.dirname(own), os.path.basename(own).replace("libtreadle", f"lib{name}", 1))


def _watcher() -> typing.Generator[bool, None, None]:
    """It is resumed inside of both loops, so that a second signal, which may come as soon as the first one is caught,
    is caught, too."""
    global _raised
    while True:
        try:
            while True:
                try:
                    while True:
                        yield _raised is None
                except GeneratorExit:  # Python ends
                    return
                except BaseException as caught:  # noqa: BLE001
                    _raised = caught
        except GeneratorExit:
            return
        except BaseException as caught:  # noqa: BLE001
            _raised = caught


class _Watch:
    """The watcher as a function of C. Its arguments are not looked at: who calls with more than a function takes,
    passes them in registers."""

    def __init__(self) -> None:
        self.generator: typing.Any = _watcher()
        next(self.generator)
        self.function = ctypes.CFUNCTYPE(ctypes.c_bool)(self.generator.__next__)


_watches = [_Watch()]  # the last one; those before it may still be called for a moment


def _renew_watch() -> None:
    """After a third signal in the same microseconds, which has ended the generator."""
    _watches.append(_Watch())
    if _library is not None:
        _functions["watch"] = True


def watcher() -> typing.Any:
    """The same for options that have a watcher: in the main thread; in others nobody."""
    if threading.current_thread() is threading.main_thread():
        return ctypes.cast(_watches[-1].function, _abi.treadle_watcher)
    return _abi.treadle_watcher()


def _set_watch(library: ctypes.CDLL) -> None:
    """In the main thread. The function is one of its own: those of function() have the types of the header."""
    watch = library["treadle_thread_watch"]
    watch.argtypes, watch.restype = [ctypes.c_void_p, ctypes.c_void_p], None
    watch(ctypes.cast(_watches[-1].function, ctypes.c_void_p), None)


def _load(name: str = "treadle") -> ctypes.CDLL:
    """A library, when the first of its functions is called."""
    global _library
    with _lock:
        if _library is None:
            _library = _libraries["treadle"] = ctypes.CDLL(path())
            _functions["watch"] = True  # the main thread is watched when it comes
        if name not in _libraries:
            _libraries[name] = ctypes.CDLL(path(name))
        return _libraries[name]


def function(name: str) -> typing.Any:
    """A function of the library by its name, with the types of its arguments."""
    found = _functions.get(name)
    if found is None:
        library, result, arguments = _abi.FUNCTIONS[name]
        found = getattr(_load(library), name)
        found.restype, found.argtypes = result, arguments
        _functions[name] = found
    if "watch" in _functions and threading.current_thread() is threading.main_thread():
        del _functions["watch"]
        _set_watch(_load())
    return found


def given(what: str, value: str | bytes | os.PathLike[str]) -> bytes:
    """A text or path for the library, the only way in which one goes there. C ends texts with a zero character: one
    inside would cut it. Raises Refused."""
    found = os.fsencode(value)
    if b"\0" in found:
        raise errors.Refused(
            f"{what}, {os.fsdecode(found)!r}, has a zero character inside, where C ends a text: leave it out"
        )
    return found


def text(value: bytes | None) -> str:
    """A text of the library: UTF-8, where a byte that is none is kept (os.fsdecode)."""
    return os.fsdecode(value) if value is not None else ""


def message() -> str:
    """The message of the last failure in this thread."""
    return text(function("treadle_error_message")())


class Callbacks:
    """Functions of Python's that the library calls, of one object. What one raised is kept until the function of the
    library, in whose thread it may not have been, has returned."""

    __slots__ = ("raised",)

    def __init__(self) -> None:
        self.raised: BaseException | None = None

    def guard(self, work: typing.Callable[[], object], expected: tuple[type[BaseException], ...] = ()) -> int:
        """The status of `work` for the library, and its message. What is `expected` is an answer and no failure: it is
        not kept.

        Nothing may be raised from here: ctypes would print it and give the library a 0, which is TREADLE_OK."""
        try:
            work()
            return 0
        except BaseException as error:  # noqa: BLE001
            if not isinstance(error, expected):
                self.raised = error
            try:
                return _say(error)
            except BaseException as again:  # noqa: BLE001
                if not isinstance(again, Exception):
                    self.raised = again
                return errors.System.status

    def function(
        self, kind: typing.Any, work: typing.Callable[..., int], undo: typing.Callable[[], object] | None = None
    ) -> typing.Any:
        """`work`, which ends in guard, as a function of C. A signal may come before it gets there, or behind its last
        line: where that is a failure, `undo` is called, since the library takes what failed for not done."""

        def call(*arguments: typing.Any) -> int:
            try:
                status = work(*arguments)
            except BaseException as error:  # noqa: BLE001
                self.raised = error
                status = errors.Cancelled.status
            if status == errors.Cancelled.status and undo is not None:
                try:
                    undo()
                except BaseException as error:  # noqa: BLE001
                    self.raised = error
            return status

        return kind(call)

    def take(self) -> BaseException | None:
        raised, self.raised = self.raised, None
        return raised


def _say(error: BaseException) -> int:
    """What was raised becomes the library's message. Its status."""
    if isinstance(error, errors.Error):
        status, words = error.status, str(error)
    else:
        status = errors.System.status if isinstance(error, Exception) else errors.Cancelled.status
        try:
            words = f"{type(error).__name__}: {error}"
        except Exception:  # noqa: BLE001
            words = type(error).__name__
    words = words.replace("\0", "\\x00")
    return int(
        value("treadle_error_set", status, words.encode("utf-8", "surrogateescape" if is_text(words) else "replace"))
    )


def is_text(words: str) -> bool:
    """Is it what text() made of bytes?"""
    try:
        words.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _take_signal() -> BaseException | None:
    """What a signal's handler raised inside of a call: in the main thread."""
    global _raised
    if _raised is None or threading.current_thread() is not threading.main_thread():
        return None
    caught, _raised = _raised, None
    return caught


def keep_raised(error: BaseException) -> None:
    """What was raised in a function of Python's that has no status to give: call() raises it, after the watcher has
    ended the wait. In the main thread; in others there are no signals."""
    global _raised
    if threading.current_thread() is threading.main_thread():
        _raised = error


def is_signalled() -> bool:
    """Did a signal's handler raise inside of the call that runs, which is to end therefore?"""
    return _raised is not None


def call(name: str, *arguments: typing.Any, callbacks: Callbacks | None = None) -> None:
    """Calls a function that returns a status. Raises the error of one that is not OK: from what a callback raised,
    where that is the cause; and in its place what a signal's handler raised, if that is not a mere Exception."""
    if _watches[-1].generator.gi_frame is None:
        _renew_watch()
    status = function(name)(*arguments)
    words = message() if status != 0 else ""
    signal, called = _take_signal(), callbacks.take() if callbacks is not None else None
    caught = signal if signal is not None else called
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


def free(pointer: typing.Any) -> None:
    """Frees what a function of the library has made, and given away."""
    release = ctypes.CDLL(None).free
    release.argtypes, release.restype = [ctypes.c_void_p], None
    release(ctypes.cast(pointer, ctypes.c_void_p))


def sized(kind: typing.Any, /, **fields: typing.Any) -> typing.Any:
    """A struct that begins with struct_size. ctypes cuts numbers to the size of their fields: such are refused."""
    made = kind(struct_size=ctypes.sizeof(kind))
    for name, given in fields.items():
        put(made, name, given, name, given)
    return made


def put(made: typing.Any, name: str, value: typing.Any, words: str, shown: object) -> None:
    """Sets a field of a struct, which `words` names in messages: to what `shown` came to."""
    try:
        setattr(made, name, value)
    except TypeError as error:
        raise errors.Refused(f"{words} is {shown!r}: {error}") from error
    if type(value) is int and getattr(made, name) != value:
        raise errors.Refused(f"{words} is {value}, and must be {'at least 0' if value < 0 else 'smaller'}")


def field(kind: typing.Any, name: str) -> typing.Any:
    """The type of a struct's field."""
    return next(found[1] for found in kind._fields_ if found[0] == name)


class Object:
    """An object of the library. It is ended when nobody refers to it any more, and after all those that have it in
    `keep`: Python may finalise what refers to each other in any order.

    In a child of fork the library's threads and sockets are gone or shared with the parent: there the object is
    refused, and ended by nobody."""

    __slots__ = ("pointer", "keep", "_end", "_born", "_users", "_kept", "__weakref__")

    def __init__(self, pointer: ctypes.c_void_p, end: str, *keep: object) -> None:
        self.pointer = pointer
        self.keep = keep
        self._end = function(end)
        self._born = _forks
        self._users = 1  # itself, and those that keep it
        self._kept = [kept for kept in keep if isinstance(kept, Object)]
        for kept in self._kept:
            kept._users += 1

    @property
    def is_here(self) -> bool:
        """Was it made in this process?"""
        return self._born == _forks

    def use(self, what: str) -> ctypes.c_void_p:
        """The pointer, for one call, which refers to this object: another thread may close it meanwhile."""
        if not self.is_here:
            raise errors.State(
                f"{what}: it was made before this process was forked; make it anew (on CUDA in a "
                "process started by spawn)"
            )
        pointer: typing.Any = ctypes.c_void_p(self.pointer.value)
        pointer.of = self
        return pointer  # type: ignore[no-any-return]

    def _leave(self) -> None:
        """It may run at the end of Python, when the names of this module are None."""
        self._users -= 1
        if self._users > 0:
            return
        try:
            if self._born == _forks:
                self._end(self.pointer)
        finally:  # a signal may come here, too, and Python drops what its handler raises
            for kept in self._kept:
                kept._leave()

    def __del__(self) -> None:
        self._leave()
