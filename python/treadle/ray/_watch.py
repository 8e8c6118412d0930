"""Looks after the workers of a group in a thread, also while the controller waits for something else."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import typing

from ._hosts import Hosts, is_death
from ._ray import exceptions, ray


class Watch:
    """One question at a time is open to each worker. It waits behind the method that runs, however long, and fails as
    soon as Ray knows that the process is gone."""

    def __init__(
        self,
        hosts: Hosts,
        doing: typing.Callable[[], str],
        every: float,
        on_death: typing.Callable[[str], object] | None,
    ) -> None:
        self._hosts, self._doing, self._every = hosts, doing, every
        self._on_death = on_death or _end
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, name="treadle-watch", daemon=True)
        self._thread.start()
        atexit.register(self.stop)  # before Ray's own, which ends the workers

    def stop(self) -> None:
        atexit.unregister(self.stop)
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _look(self) -> None:
        handles = list(self._hosts.handles)
        asked = {rank: handle.treadle_ping.remote() for rank, handle in enumerate(handles)}
        while not self._stopped.wait(self._every):
            for rank, handle in enumerate(handles):
                if not ray.is_initialized() or not self._hosts.handles:
                    return
                if not ray.wait([asked[rank]], timeout=0)[0]:
                    continue
                try:
                    ray.get(asked[rank])
                except exceptions.RayError as error:
                    if self._stopped.is_set() or not self._hosts.handles:
                        return
                    if not is_death(error):
                        continue
                    self._on_death(self._hosts.sentence(rank, self._doing(), error))
                    return
                asked[rank] = handle.treadle_ping.remote()


def _end(sentence: str) -> None:
    print(f"treadle: {sentence}", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGABRT)
