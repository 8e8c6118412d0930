"""The trainers' side: what a trainer's process keeps from update to update."""

from __future__ import annotations

import typing

from .. import _tensors, errors
from .._engines.client import Client
from .._engines import meet
from .._engines.kept import Kept
from .._engines.many import Many
from .._engines.trainer import EngineTrainer
from . import _shards

_OPTIONS = ("layout", "address", "finite", "undo", "timeout", "cap")


class Servers(typing.NamedTuple):
    """The rollout's servers whose workers are ranks of the switch, in their order."""

    kind: str  #: verl's rollout.name
    names: tuple[str, ...]  #: of their actors
    workers: int  #: of each

    def client(self, timeout: float) -> Many:
        """That calls them. A call ends by itself where a worker has waited for `timeout`; so Ray waits longer."""
        from ._servers import KINDS

        return Many([KINDS[self.kind](name, self.workers, 2 * timeout + 60) for name in self.names])


class Trainer(EngineTrainer):
    """A meeting with these servers' workers."""

    NAME = "treadle.verl"

    def _client_of(self, given: Servers) -> Client:
        self.many = given.client(self._timeout)
        return self.many

    def _substitute(self) -> Client | None:
        """verl has paused the servers, and lets them go on."""
        return None

    def _open(self, address: str | None, workers: int | None, problem: str) -> dict[str, typing.Any]:
        place = super()._open(address, workers, problem)
        for client in self.many.clients if self.rank == 0 else ():
            if hasattr(client, "watch"):
                client.watch(self._store)
        return place


class Sender:
    """Makes Trainers, and asks them. options: of the configuration."""

    def __init__(self, options: typing.Mapping[str, typing.Any]) -> None:
        if strange := sorted(set(options) - set(_OPTIONS)):
            raise errors.Refused(
                f"checkpoint_engine.engine_kwargs.treadle has '{strange[0]}', and knows {', '.join(_OPTIONS)}"
            )
        self._options = dict(options)
        self._kept: Kept[Trainer] = Kept()

    def send(self, engine: typing.Any, servers: Servers, global_steps: int | None) -> dict[str, typing.Any]:
        """Brings the servers' workers to the engine's present weights, and returns figures. Collective over the
        trainers; it blocks. After a failure the next call meets anew."""
        try:
            trainer = self._meet(engine, servers)
            if trainer.rank == 0:
                for client in trainer.many.clients:
                    client.global_steps = global_steps  # type: ignore[attr-defined]
            version = trainer.send_weights()
        except BaseException:
            self.close()
            raise
        stats = trainer.switch.stats
        return {
            "treadle/version": version,
            "treadle/seconds": stats["seconds"],
            "treadle/peak_bytes": stats["peak_bytes"],
        }

    def _meet(self, engine: typing.Any, servers: Servers) -> Trainer:
        """The Trainer of these servers. One that was made with others, or with tensors that are elsewhere now, is left;
        on all ranks, since what one of them finds all are told."""
        source, problem = _shards.Source({}, "", ""), ""
        try:
            source = _shards.source_of(engine)
        except errors.Error as error:
            problem = meet.words_of(error)
        key = (servers, _tensors.places(source.tensors))
        return self._kept.get(
            key,
            lambda: Trainer(
                source.tensors,
                servers,
                model=source.model,
                pause="abort",
                trained=source.text,
                problem=problem,
                **self._options,
            ),
            problem,
        )

    @property
    def trainer(self) -> Trainer | None:
        return self._kept.trainer

    def close(self) -> None:
        self._kept.close()
