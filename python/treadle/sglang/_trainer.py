"""The trainers' side: connect makes a switch of the trainers and the engine's workers, and update takes the engine to
the trainers' present weights."""

from __future__ import annotations

import os
import typing

from .. import errors
from .._engines.client import Client
from .._engines.trainer import EngineTrainer
from ..switch import Switch
from . import _client

_PAUSES = {"abort": "abort", "retract": "keep"}  # SGLang's word and vLLM's
_KEPT = "_sglang"  # of a switch: the Trainer that made it


class Trainer(EngineTrainer):
    """What connect makes, and update asks."""

    NAME = "treadle.sglang"

    def _client_of(self, given: typing.Any) -> Client:
        client = _client.client_of(given)
        self._given = client
        return client

    def _substitute(self) -> Client | None:
        client = _client.client_of(self._given, stale=True) if self._given is not None else None
        return client if isinstance(client, _client.Http) else None

    def _open(self, address: str | None, workers: int | None, problem: str) -> dict[str, typing.Any]:
        place = super()._open(address, workers, problem)
        if self.rank == 0 and not problem:
            self.engine.watch(self._store)
        return place

    @property
    def engine(self) -> typing.Any:
        """The first trainer's client."""
        return self._given


def connect(
    engine: typing.Any,
    source: typing.Any,
    *,
    model: str | os.PathLike[str] | None = None,
    rank: int | None = None,
    ranks: int | None = None,
    layout: str = "",
    address: str | None = None,
    pause: str = "abort",
    finite: bool = True,
    timeout: float = 60,
    cap: int = 0,
) -> Switch:
    """The switch from these trainers' weights to an engine's, for update. Collective over the trainers, and over the
    engine's workers, which the first trainer calls.

    engine: the server's URL, a sglang.Engine of this process, or treadle.sglang.Http(url, api_key=...); of the first
        trainer. The others may give it, too: if the first one dies in an update, they let a server go on. None: they do
        not.
    source: the module (torch: plain, FSDP2, tensor parallel), whose tensors are read where they are; or a source with
        iter_local. With several trainers torch.distributed is initialised, and a plain tensor is the same on all of
        them.
    model: the model's folder or config.json; None: the module's config.
    rank, ranks: of the trainers; None: those of torch.distributed, or one.
    layout: that the engine must have ("sglang:tp=2"); "": whatever it has.
    address: at which the first trainer can be reached by the others and by the engine, "10.0.0.1:7000"; None: that by
        which this machine reaches others, and a free port.
    pause: what becomes of requests that run on a server: "abort", or "retract" (they are computed again with the new
        weights).
    finite: weights with NaN or infinity are refused before the engine is touched.
    timeout: seconds, of every wait. cap: of the switch.
    Raises Refused with the rank and the tensor, Peer with what another rank said, Timeout, System where the engine
    cannot be called."""
    if pause not in _PAUSES:
        raise errors.Refused(
            f"connect: pause is '{pause}', and must be 'abort' or 'retract': with 'in_place' requests would go on with "
            "keys and values of the old weights"
        )
    trainer = Trainer(
        source,
        engine,
        model=model,
        rank=rank,
        ranks=ranks,
        layout=layout,
        address=address,
        pause=_PAUSES[pause],
        finite=finite,
        timeout=timeout,
        cap=cap,
    )
    switch = trainer.switch
    setattr(switch, _KEPT, trainer)
    return switch


def update(engine: typing.Any, switch: Switch) -> int:
    """Brings the engine to the trainers' present weights, and returns the version that it has then: requests are
    paused, all its workers commit together, its caches are emptied, weight_version is set, and it goes on. Weights may
    not be written meanwhile. Collective over the trainers.

    engine: as given to connect. switch: that connect made.
    Raises Refused for weights that are not finite (nothing was touched then) and for other switches, Peer and Timeout
    with the rank and what it says, System with what the engine says. After a failure the engine serves the version of
    before, whole, or where all ranks had committed the next one. Where all ranks live, the next call may work; where a
    trainer died, a new connect meets the same engine again."""
    trainer = getattr(switch, _KEPT, None)
    if not isinstance(trainer, Trainer):
        raise errors.Refused(
            "update: treadle.sglang.connect makes the switch, with the engine's workers among its "
            "ranks; this is another one"
        )
    if trainer.rank == 0 and not _same(engine, trainer.engine):
        raise errors.Refused("update: the switch was made with another engine")
    return trainer.send_weights()


def _same(engine: typing.Any, client: typing.Any) -> bool:
    if engine is client:
        return True
    if isinstance(engine, str):
        return isinstance(client, _client.Http) and engine.rstrip("/") == client.url
    if isinstance(engine, _client.Http):
        return isinstance(client, _client.Http) and engine.url == client.url
    return isinstance(client, _client.InProcess) and engine is client.engine
