"""A Trainer that lasts from update to update, as long as what it was made for stays the same."""

from __future__ import annotations

import typing

from .trainer import EngineTrainer

Kind = typing.TypeVar("Kind", bound=EngineTrainer)


class Kept(typing.Generic[Kind]):
    """trainer: the one that is kept; None: the next get() makes one."""

    def __init__(self) -> None:
        self.trainer: Kind | None = None
        self._key: object = None

    def get(self, key: object, make: typing.Callable[[], Kind], problem: str = "") -> Kind:
        """The Trainer of this key, which compares equal as long as the engines and the tensors' addresses stay. One
        that was made with another key, on any rank, is left. problem: why this rank can take no part; all are told.
        Collective over the trainers."""
        if self.trainer is not None:
            if all(one["same"] for one in self.trainer.ask({"same": key == self._key}, problem)):
                return self.trainer
            self.close()
        self.trainer, self._key = make(), key
        return self.trainer

    def close(self) -> None:
        trainer, self.trainer, self._key = self.trainer, None, None
        if trainer is not None:
            trainer.close()
