"""The trainer as vLLM's factory makes it (WeightTransferTrainerFactory), where vLLM has trainer classes; Trainer does
the work."""

from __future__ import annotations

import inspect
import typing
from dataclasses import dataclass

from vllm.distributed.weight_transfer import base  # type: ignore[import-not-found,unused-ignore]

from .. import errors
from . import _interface
from ._trainer import Trainer

_interface.check()
# vLLM 0.25 has no such class, and 0.26 makes it with a config before the other arguments.
_made = getattr(getattr(base, "TrainerWeightTransferEngine", None), "trainer_init", None)
if _made is None or next(iter(inspect.signature(_made).parameters)) != "init_info":
    raise errors.Refused(
        f"{_interface.name()} does not have the trainer classes of 0.27 and later: make a treadle.vllm.Trainer"
    )


@dataclass
class TrainerInfo(base.TrainerInitInfo):  # type: ignore[misc,unused-ignore]
    """For vLLM's WeightTransferTrainerFactory.trainer_init: what Trainer takes, of the trainer `rank` of `ranks`."""

    backend: typing.ClassVar[str] = "treadle"
    ranks: int = 1
    model: typing.Any = None
    layout: str = ""
    undo: bool = False
    timeout: float = 60


class TrainerEngine(base.TrainerWeightTransferEngine[TrainerInfo]):  # type: ignore[misc,unused-ignore]
    """Made by trainer_init."""

    init_info_cls = TrainerInfo

    def __init__(self, trainer: Trainer, *, client: typing.Any, source: typing.Any, is_sender: bool) -> None:
        super().__init__(client=client, source=source, is_sender=is_sender)
        self.trainer = trainer

    @classmethod
    def trainer_init(cls, init_info: TrainerInfo, *, client: typing.Any, source: typing.Any = None) -> TrainerEngine:
        trainer = Trainer(
            source,
            client,
            model=init_info.model,
            rank=init_info.rank,
            ranks=init_info.ranks,
            layout=init_info.layout,
            undo=init_info.undo,
            timeout=init_info.timeout,
        )
        return cls(trainer, client=client, source=source, is_sender=init_info.is_sender)

    def send_weights(self) -> None:
        self.trainer.send_weights()

    def shutdown(self) -> None:
        self.trainer.close()
