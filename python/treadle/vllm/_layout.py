"""The layout that an engine of vLLM has, as a text of docs/layouts.md."""

from __future__ import annotations

import typing

from .. import errors


def layout_text(vllm_config: typing.Any) -> str:
    """The layout of an engine's weights over all its workers, from its VllmConfig: "vllm:tp=2,pp=2,ep=on". Raises
    Refused for an engine that keeps other weights than its model's: quantised ones, LoRA adapters, experts that move
    (EPLB)."""
    parallel = vllm_config.parallel_config
    if vllm_config.model_config.quantization is not None:
        raise errors.Refused(
            f"the engine's weights are quantised ({vllm_config.model_config.quantization}); "
            "the plug-in writes those of 16 and 32 bits"
        )
    if getattr(vllm_config, "speculative_config", None) is not None:
        raise errors.Refused(
            "the engine has a draft model (speculative_config), whose weights nothing would "
            "update: start it without one"
        )
    if getattr(vllm_config, "lora_config", None) is not None:
        raise errors.Refused("the engine has LoRA adapters, which wrap its layers: start it without enable_lora")
    if getattr(parallel, "enable_eplb", False):
        raise errors.Refused("the engine moves its experts (EPLB): their places change as it runs")
    words = [f"tp={parallel.tensor_parallel_size}"]
    if parallel.pipeline_parallel_size > 1:
        words.append(f"pp={parallel.pipeline_parallel_size}")
    if parallel.data_parallel_size > 1:
        words.append(f"dp={parallel.data_parallel_size}")
    if parallel.enable_expert_parallel:
        words.append("ep=on")
        if getattr(parallel, "expert_placement_strategy", "linear") == "round_robin":
            words.append("placement=round_robin")
    return f"vllm:{','.join(words)}"


def worker_rank(parallel: typing.Any) -> int:
    """The number of a worker among all of the engine, from its ParallelConfig."""
    return int(getattr(parallel, "data_parallel_index", 0)) * int(parallel.world_size) + int(parallel.rank)
