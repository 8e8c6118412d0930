"""What the processes of a run say, at the driver. Rank 0's output is the run's, byte by byte; of the others come whole
lines, with the rank before them. A line of the command's that many ranks say is printed once."""

from __future__ import annotations

import os

from ._slot import STDOUT

OF_THE_COMMAND = b"treadle "


class Output:
    def __init__(self) -> None:
        self.is_broken = False  #: somebody has closed what it is written to
        self._rest: dict[tuple[int, int], bytes] = {}  # of lines that are not whole, by rank and stream
        self._told: set[bytes] = set()

    def take(self, rank: int, stream: int, some: bytes) -> None:
        if rank == 0:
            self._put(stream, some)
            self._told.update(line for line in some.splitlines() if line.startswith(OF_THE_COMMAND))
            return
        *lines, self._rest[rank, stream] = (self._rest.pop((rank, stream), b"") + some).split(b"\n")
        for line in lines:
            self._tell(rank, stream, line)

    def end(self) -> None:
        """Lines without an end, too."""
        for (rank, stream), line in self._rest.items():
            if line:
                self._tell(rank, stream, line)
        self._rest = {}

    def _tell(self, rank: int, stream: int, line: bytes) -> None:
        if line in self._told:
            return
        if line.startswith(OF_THE_COMMAND):
            self._told.add(line)
        own = b"rank %d: " % rank
        self._put(stream, (line if own in line else own + line) + b"\n")

    def _put(self, stream: int, some: bytes) -> None:
        try:
            while some:
                some = some[os.write(stream, some) :]
        except OSError:
            self.is_broken = self.is_broken or stream == STDOUT
