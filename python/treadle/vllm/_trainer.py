"""The trainers' side: every trainer rank makes a Trainer, and calls send_weights after the steps that the engine should
see."""

from __future__ import annotations

import typing

from .._engines.client import Client
from .._engines.trainer import EngineTrainer
from . import _client


class Trainer(EngineTrainer):
    """Gives an engine of vLLM the weights that these trainers have, shard to shard. Collective over the trainers, and
    over the engine's workers, which the first trainer calls.

    source: the module (torch: plain, FSDP2, tensor parallel), whose tensors are read where they are; a WeightSource of
        vLLM 0.33 with iter_local; or treadle.megatron.tensors(chunks), with trained. With several trainers
        torch.distributed is initialised, and a plain tensor is the same on all of them.
    client: of the first trainer: the server's URL, a vllm.LLM of this process, or a client with vLLM's four methods.
    model: the model's folder or config.json; None: the module's config.
    rank, ranks: of the trainers; None: those of torch.distributed, or one.
    workers: of the engine; None: the client asks for them. layout: that the engine must have ("vllm:tp=2"); "":
        whatever it has.
    address: at which the first trainer can be reached by the others and by the engine, "10.0.0.1:7000"; None: that by
        which this machine reaches others, and a free port.
    pause: what becomes of requests that run: "abort", "wait" or "keep" (vLLM's pause).
    finite: weights with NaN or infinity are refused before the engine is touched.
    undo: host memory of each worker keeps the bytes of its weights while an update overwrites them, so that the old
        version serves after one that fails. Without it, workers that had begun to write end, and their engine with
        them.
    timeout: seconds, of every wait. cap: of the switch.
    trained: the text of the trainers' layout, where their tensors do not say it: treadle.megatron.layout(chunks,
        model).
    Raises Refused with the rank and the tensor, Peer with what another rank said, Timeout, System where the engine
    cannot be called."""

    NAME = "treadle.vllm"

    def _client_of(self, given: typing.Any) -> Client:
        return _client.client_of(given)

    def _substitute(self) -> Client | None:
        """A server at a URL. In pause "keep" it stays paused until new trainers come: requests would go on with caches
        of the old weights."""
        return _client.client_of(self._given) if isinstance(self._given, str) and self._pause != "keep" else None
