"""TRL's trainers give vLLM their weights shard to shard (docs/plugins-trl.md).

    treadle.trl.install()             # before the trainer is made
    trainer = trl.GRPOTrainer(...)    # use_vllm=True, with vllm_mode "server" or "colocate"

Neither trl, vllm nor torch is imported before it is used."""

from __future__ import annotations


def install(*, undo: bool = False, finite: bool = True, timeout: float = 60, cap: int = 0, address: str | None = None) -> None:
    """From here on this process's trainers of TRL that use vLLM bring it their weights by treadle. On every process of the training, before its trainer is made;
    called again, it sets the options of the trainers that are made later.

    Server mode: the server is started with the weight transfer backend "treadle" (treadle.vllm), and each update is Trainer.send_weights. Colocate mode: the
    processes' own engines are written in place, by one switch over all processes.

    undo: host memory keeps the engine's weights while an update overwrites them, so that the old version stays after one that fails.
    finite: weights with NaN or infinity are refused before the engine is touched.
    timeout: seconds, of every wait. cap: of the switch. address: at which the first trainer is reached in server mode; see treadle.vllm.Trainer.
    Raises Refused for a version of TRL whose interface is another one. Later, when the trainer is made, Refused for what treadle does not move: adapters (peft), ZeRO-3,
    FSDP1, quantised weights."""
    from . import _client, _generation

    _generation.install(_client.Options(undo=undo, finite=finite, timeout=timeout, cap=cap, address=address))


__all__ = ["install"]
