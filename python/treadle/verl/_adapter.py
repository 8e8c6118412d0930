"""What treadle's adapters of vLLM and SGLang have in common: verl makes one in each worker of a rollout, colocated with
the trainer or apart."""

from __future__ import annotations

import asyncio
import typing

from .. import errors
from . import _interface, _shards
from ._trainer import Sender, Servers

_here: dict[str, typing.Any] = {}  # of this process's adapter


def server_here() -> dict[str, typing.Any]:
    """The kind and the actor's name of the server that this process's adapter has; empty, where there is none."""
    return dict(_here)


class Adapter:
    """Before verl's ServerAdapter, which does what it did for other backends."""

    KIND = ""  #: verl's rollout.name

    def __init__(self, *arguments: typing.Any, **options: typing.Any) -> None:
        super().__init__(*arguments, **options)
        this: typing.Any = self
        self._treadle: Sender | None = None
        if _interface.chosen(this.config):
            self._treadle = Sender(_interface.options_of(this.config))
            _here.update(kind=self.KIND, server=self._name(this.replica_rank))

    def _name(self, replica: int) -> str:
        """The actor of a replica's first server, as verl's adapter finds it."""
        raise NotImplementedError

    async def update_weights(
        self,
        weights: typing.Any,
        global_steps: int | None = None,
        wire_format: str = "named_tensors",
        **options: typing.Any,
    ) -> None:
        from ._backend import Received

        if isinstance(weights, Received):  # apart: the trainers call the server
            return
        if self._treadle is None:
            await super().update_weights(  # type: ignore[misc]
                weights, global_steps=global_steps, wire_format=wire_format, **options
            )
            return
        if options.get("peft_config"):
            raise errors.Refused(
                "checkpoint_engine.backend 'treadle' and LoRA adapters: they are not the model's "
                "weights; use another backend"
            )
        await asyncio.to_thread(self._treadle.send, _shards.engine_of(weights), self._colocated(), global_steps)

    def _colocated(self) -> Servers:
        """Those of all trainers: the first ranks have the first replica."""
        import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]

        config = typing.cast(typing.Any, self).config
        workers = int(config.tensor_model_parallel_size)
        ranks = dist.get_world_size()
        if ranks % workers:
            raise errors.Refused(f"{ranks} trainers do not divide by rollout.tensor_model_parallel_size {workers}")
        return Servers(self.KIND, tuple(self._name(replica) for replica in range(ranks // workers)), workers)
