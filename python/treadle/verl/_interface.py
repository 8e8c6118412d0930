"""Which verl has the interface that the plug-in fills, and which of its configurations have weights that an update can
write."""

from __future__ import annotations

import inspect
import typing

from .. import errors

WORKS = "0.9.1"
_CALLS = {
    "prepare": [],
    "build_topology": ["actor_wg_world_size", "rollout_world_size", "metadata"],
    "finalize": [],
    "send_weights": ["weights", "global_steps"],
    "receive_weights": ["global_steps"],
}
_ADAPTER = ["weights", "wire_format", "kwargs"]


def check_backend(module: typing.Any) -> None:
    """verl.checkpoint_engine.base. Raises Refused for one with other calls, with verl's version."""
    for name, wanted in _CALLS.items():
        takes = _takes(getattr(module.CheckpointEngine, name, None))
        if takes != wanted:
            raise _refused(f"CheckpointEngine.{name}", takes, wanted)


def check_adapters(module: typing.Any) -> None:
    """verl.workers.rollout.base."""
    takes = _takes(module.BaseRollout.update_weights)
    if takes != _ADAPTER:
        raise _refused("BaseRollout.update_weights", takes, _ADAPTER)
    if not isinstance(getattr(module, "_ROLLOUT_REGISTRY", None), dict):
        raise errors.Refused(f"verl {_version()} has no _ROLLOUT_REGISTRY; {WORKS} has")


def check_replicas(module: typing.Any) -> None:
    """verl.workers.rollout.replica."""
    if not isinstance(getattr(module.RolloutReplicaRegistry, "_registry", None), dict):
        raise errors.Refused(f"verl {_version()} has no RolloutReplicaRegistry._registry; {WORKS} has")


def check_rollout(rollout: typing.Any, model: typing.Any) -> None:
    """Of a rollout with the backend "treadle". Raises Refused with the key."""
    for key, value, plain, why in (
        (
            "rollout.quantization",
            _get(rollout, "quantization"),
            (None,),
            "its weights are quantised; the plug-in writes those of 16 and 32 bits",
        ),
        (
            "rollout.data_parallel_size",
            _get(rollout, "data_parallel_size"),
            (None, 1),
            "verl's calls reach the workers of one data-parallel rank alone; more replicas work",
        ),
        (
            "rollout.pipeline_model_parallel_size",
            _get(rollout, "pipeline_model_parallel_size"),
            (None, 1),
            "no engine was run with it",
        ),
        (
            "rollout.disaggregation.enabled",
            _get(_get(rollout, "disaggregation"), "enabled"),
            (None, False),
            "prefill and decode servers were not run",
        ),
        (
            "rollout.mtp.enable_rollout",
            _get(_get(rollout, "mtp"), "enable_rollout"),
            (None, False),
            "its draft model would keep old weights",
        ),
        ("model.lora_rank", _get(model, "lora_rank"), (None, 0), "LoRA adapters wrap its layers"),
        ("model.lora.rank", _get(_get(model, "lora"), "rank"), (None, 0), "LoRA adapters wrap its layers"),
    ):
        if value not in plain:
            raise errors.Refused(f"checkpoint_engine.backend 'treadle' with {key} {value!r}: {why}")


def chosen(rollout: typing.Any) -> bool:
    """Does this rollout's configuration have the backend "treadle"? In a colocated trainer, too, where verl's manager
    is told "naive"."""
    from . import BACKEND

    return bool(_get(_get(rollout, "checkpoint_engine"), "backend") == BACKEND)


def options_of(rollout: typing.Any) -> dict[str, typing.Any]:
    """checkpoint_engine.engine_kwargs.treadle."""
    from . import BACKEND

    return dict(_get(_get(_get(rollout, "checkpoint_engine"), "engine_kwargs"), BACKEND) or {})


def _get(config: typing.Any, key: str) -> typing.Any:
    return config.get(key) if isinstance(config, dict) else getattr(config, key, None)


def _takes(function: typing.Any) -> list[str] | None:
    return (
        [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
        if function is not None
        else None
    )


def _refused(name: str, takes: list[str] | None, wanted: list[str]) -> errors.Refused:
    has = f"takes {', '.join(takes) or 'nothing'}" if takes is not None else "is not there"
    return errors.Refused(
        f"verl {_version()}: {name} {has}; the plug-in fills the interface of {WORKS}, "
        f"which takes {', '.join(wanted) or 'nothing'}"
    )


def _version() -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version("verl")
    except importlib.metadata.PackageNotFoundError:
        return "of an unknown version"
