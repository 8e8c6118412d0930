"""The layout that an engine of vLLM has, as a text of docs/layouts.md."""

from __future__ import annotations

import json
import typing

from .. import errors

# Of a config.json: what decides which tensors there are, or what a forward pass makes of them.
_KEYS = (
    "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act",
    "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "sliding_window", "tie_word_embeddings", "attention_bias", "num_experts", "num_local_experts",
    "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob",
)


def layout_text(vllm_config: typing.Any) -> str:
    """The layout of an engine's weights over all its workers, from its VllmConfig: "vllm:tp=2,pp=2,ep=on". Raises Refused for an engine that keeps other
    weights than its model's: quantised ones, LoRA adapters, experts that move (EPLB)."""
    parallel = vllm_config.parallel_config
    if vllm_config.model_config.quantization is not None:
        raise errors.Refused(f"the engine's weights are quantised ({vllm_config.model_config.quantization}); the plug-in writes those of 16 and 32 bits")
    if getattr(vllm_config, "speculative_config", None) is not None:
        raise errors.Refused("the engine has a draft model (speculative_config), whose weights nothing would update: start it without one")
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


def on(text: str, first: int, count: int) -> str:
    """The layout `text` on `count` ranks of a larger group."""
    return f"{text}{',' if ':' in text else ':'}on={first}-{first + count - 1}" if count > 1 else f"{text}{',' if ':' in text else ':'}on={first}"


def check_config(trained: str, served: typing.Mapping[str, typing.Any]) -> None:
    """trained: the config.json of the trainers' model, as text; served: the engine's, as a dict. Raises Refused where they say different things of the
    model, with the key and both values."""
    ours = json.loads(trained)
    for key in _KEYS:
        if ours.get(key) is not None and served.get(key) is not None and _plain(ours[key]) != _plain(served[key]):
            raise errors.Refused(f"the trainers' model has {key} {ours[key]}, and the engine's {served[key]}: they are not the same model")


def _plain(value: typing.Any) -> typing.Any:
    return json.loads(json.dumps(value, default=str))
