"""Signals that ask a run to end: the first one after the step at hand, a later one at once."""

from __future__ import annotations

import signal
import time
import types
import typing

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
SAME = 1.0  #: seconds in which a second signal is the same one: a scheduler tells all processes


class Stopped(BaseException):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Stop:
    """Hears signals inside of a with statement."""

    def __init__(self) -> None:
        self.number = 0  #: of the first signal; 0: none
        self.again = 0  #: of a later one
        self.raises = True  #: Stopped, in place of being kept here
        self._first = 0.0
        self._before: dict[int, typing.Any] = {}

    def __enter__(self) -> Stop:
        for number in SIGNALS:
            before = signal.getsignal(number)
            if number == signal.SIGHUP and before != signal.SIG_DFL:  # nohup
                continue
            self._before[number] = before
            signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _hear(self, number: int, _: types.FrameType | None) -> None:
        if self.raises:
            raise Stopped(number)
        now = time.monotonic()
        if not self.number:
            self.number, self._first = number, now
        elif now - self._first > SAME:
            self.again = number
