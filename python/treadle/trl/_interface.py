"""Which TRL has the interface that the plug-in fills, and which trainings it moves."""

from __future__ import annotations

import inspect
import typing

from .. import errors

WORKS = "1.16"
_TAKES = {
    "_init_vllm": ["self"],
    "sync_weights": ["self"],
    "generate": ["self", "prompts", "images", "num_generations", "profiler"],
}


def check() -> None:
    """Raises Refused for a TRL whose class for vLLM is another one, with its version."""
    import trl  # type: ignore[import-not-found,unused-ignore]

    words = f"TRL {getattr(trl, '__version__', 'of an unknown version')}"
    try:
        from trl.generation.vllm_client import VLLMClient  # type: ignore[import-not-found,unused-ignore]
        from trl.generation.vllm_generation import VLLMGeneration  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise errors.Refused(f"{words} has no class for generation with vLLM ({error}); {WORKS} has") from error
    for name, takes in _TAKES.items():
        if not hasattr(VLLMGeneration, name):
            raise errors.Refused(f"{words} has no VLLMGeneration.{name}; the plug-in fills the interface of {WORKS}")
        found = list(inspect.signature(getattr(VLLMGeneration, name)).parameters)
        if found != takes:
            raise errors.Refused(
                f"{words}: VLLMGeneration.{name} takes {', '.join(found)}; the plug-in fills the interface of {WORKS}, "
                f"where it takes {', '.join(takes)}"
            )
    for name in ("init_communicator", "get_server_info", "update_model_params", "weight_update"):
        if not hasattr(VLLMClient, name):
            raise errors.Refused(f"{words}: VLLMClient has no {name}; the plug-in fills the interface of {WORKS}")


def check_training(generation: typing.Any) -> None:
    """generation: TRL's VLLMGeneration. Raises Refused for weights that the plug-in does not move, before vLLM is
    touched."""
    model, dist = generation.model, generation._dist
    if hasattr(model, "peft_config"):
        raise errors.Refused(
            "the model has adapters (peft), and an update moves the whole model's weights: "
            "merge them (merge_and_unload), or train without peft_config"
        )
    if dist.is_zero3:
        raise errors.Refused(
            "DeepSpeed ZeRO-3 keeps its shards in no form that torch declares: "
            "train with FSDP2 (accelerate's fsdp_version: 2), or ZeRO-2"
        )
    if dist.is_fsdp and dist.fsdp_version != 2:
        raise errors.Refused(
            f"FSDP{dist.fsdp_version} flattens its shards: train with FSDP2 (accelerate's fsdp_version: 2)"
        )
    if getattr(model, "is_quantized", False):
        raise errors.Refused("the model is quantised, and the plug-in moves weights of 16 and 32 bits")
