"""A process of a run, as a Ray actor has it: the actor starts the command, hands on what it says, and ends it.

The command is a process of its own, so that signals, exit statuses and output are those of `treadle train` anywhere. It
ends with the actor (_tied.py)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import typing

from .. import __version__
from ..command import program
from ._ray import here

STDOUT, STDERR = 1, 2
REST = 1.0  # seconds in which output is read that a process of the command's may still hold open


class Place(typing.NamedTuple):
    """Where an actor is."""

    node: str  #: in words
    meet: str  #: an address at which a process there may listen
    version: str  #: of treadle
    has_folder: bool  #: is the run's folder there?


class News(typing.NamedTuple):
    """What the command has said since it was asked last."""

    said: list[tuple[int, bytes]]  #: by STDOUT or STDERR
    status: int | None  #: its exit status, or the negative number of the signal that ended it; None: it runs


class Slot:
    """Methods run in threads: `news` waits in one of them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._said: list[tuple[int, bytes]] = []
        self._status: int | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._port: socket.socket | None = None

    def place(self, folder: str) -> Place:
        """The port stays bound, so that nobody else is given it before the command listens there."""
        address, node = here()
        six = ":" in address
        self._port = socket.socket(socket.AF_INET6 if six else socket.AF_INET)
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind((address, 0))
        meet = f"[{address}]" if six else address
        return Place(node, f"{meet}:{self._port.getsockname()[1]}", __version__, os.path.isdir(folder))

    def start(self, words: list[str], folder: str) -> None:
        """The command with these words. The thread that starts it lives as long as it does: the kernel takes the end of
        that thread for the end of its parent."""
        threading.Thread(target=self._run, args=(words, folder), daemon=True).start()

    def news(self) -> News:
        """Waits for some."""
        with self._changed:
            self._changed.wait_for(lambda: self._said or self._status is not None)
            said, self._said = self._said, []
            return News(said, self._status)

    def signal(self, number: int) -> None:
        """Also of a command that starts just now."""
        with self._changed:
            self._changed.wait_for(lambda: self._child is not None or self._status is not None)
            if self._child is not None and self._status is None:
                self._child.send_signal(number)

    def _run(self, words: list[str], folder: str) -> None:
        tied = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_tied.py")
        command = [sys.executable, "-I", "-S", tied, str(os.getpid()), program(), *words]
        try:
            child = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, "TREADLE_LAUNCHER": "ray"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            self._tell(STDERR, f"treadle cannot be started: {error}\n".encode())
            self._end(1)
            return
        with self._changed:
            self._child = child
            self._changed.notify_all()
        readers = [
            threading.Thread(target=self._read, args=(number, stream), daemon=True)
            for number, stream in ((STDOUT, child.stdout), (STDERR, child.stderr))
        ]
        for reader in readers:
            reader.start()
        status = child.wait()
        for reader in readers:
            reader.join(REST)
        self._end(status)

    def _read(self, number: int, stream: typing.IO[bytes]) -> None:
        while some := os.read(stream.fileno(), 1 << 16):
            self._tell(number, some)

    def _tell(self, number: int, some: bytes) -> None:
        with self._changed:
            self._said.append((number, some))
            self._changed.notify_all()

    def _end(self, status: int) -> None:
        with self._changed:
            self._status = status
            self._changed.notify_all()
