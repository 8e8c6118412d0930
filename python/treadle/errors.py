"""Errors: one class for each status of the C library, whose message they carry unchanged."""

from __future__ import annotations


class Error(Exception):
    """What all errors of treadle are."""

    status = -1  #: the C library's treadle_status


class Refused(Error, ValueError):
    """An input breaks a rule: a file, a config, a layout text, an option, a tensor."""

    status = -1


class NoMemory(Error, MemoryError):
    """Memory is out, or a pool would exceed its budget."""

    status = -2


class System(Error, OSError):
    """The operating system said no."""

    status = -3


class Peer(Error):
    """Another rank failed, died or runs something else."""

    status = -4


class Timeout(Error, TimeoutError):
    """A wait took longer than its limit."""

    status = -5


class Different(Error):
    """A check found a difference."""

    status = -6


class State(Error, RuntimeError):
    """A call in the wrong mode, or with an object that is closed."""

    status = -7


class Cancelled(Error):
    """cancel() ended the work."""

    status = -8


BY_STATUS: dict[int, type[Error]] = {
    kind.status: kind for kind in (Refused, NoMemory, System, Peer, Timeout, Different, State, Cancelled)
}
