"""TRL's trainers give vLLM their weights shard to shard (docs/plugins-trl.md).

    treadle.trl.install()             # before the trainer is made
    trainer = trl.GRPOTrainer(...)    # use_vllm=True, with vllm_mode "server" or "colocate"

Neither trl, vllm nor torch is imported before it is used."""

from __future__ import annotations


def install(
    *, undo: bool = False, finite: bool = True, timeout: float = 60, cap: int = 0, address: str | None = None
) -> None:
    """From here on, trainers of TRL whose generation is its VLLMGeneration bring vLLM their weights by treadle. On
    every process of the training, before its trainer is made; trainers that exist keep TRL's way. Called again, it sets
    the options of those made later.

    Server mode: the server is started with the weight transfer backend "treadle" (treadle.vllm), and each update is
    Trainer.send_weights. Colocate mode: one switch over all processes writes their own engines in place.

    undo: host memory keeps the engine's weights while an update overwrites them, so that a failed one leaves the old
        version.
    finite: weights with NaN or infinity are refused before the engine is touched.
    timeout: seconds, of every wait of an update. cap: of the switch. address: at which the first process can be reached
        by the others and by the server, "10.0.0.1:7000"; None: see treadle.vllm.Trainer.
    Raises Refused for a TRL with another interface. What treadle does not move is Refused later: adapters (peft),
    ZeRO-3, FSDP1 and quantised weights when the trainer is made, and models that treadle does not know at the first
    update."""
    from . import _interface

    _interface.check()
    from . import _client, _generation

    _generation.install(_client.Options(undo, finite, timeout, cap, address))


__all__ = ["install"]
