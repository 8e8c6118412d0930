"""What verl's training engine gives in place of a generator of full tensors: the engine itself, whose shards are read
where they are."""

from __future__ import annotations

import typing

from .. import errors

_STRATEGIES = ("fsdp2", "megatron")


class Shards:
    """What get_per_tensor_param returns first. Another backend that iterates it gets what verl's generator gives, which
    gathers each tensor."""

    def __init__(self, engine: typing.Any, full: typing.Callable[[], typing.Iterable[typing.Any]]) -> None:
        self.engine, self._full = engine, full

    def __iter__(self) -> typing.Iterator[typing.Any]:
        return iter(self._full())


class Handing:
    """Before one of verl's engine classes: its get_per_tensor_param is put off until somebody iterates. With adapters
    (LoRA) it is verl's own."""

    def get_per_tensor_param(self, **options: typing.Any) -> tuple[typing.Any, typing.Any]:
        inner = super().get_per_tensor_param  # type: ignore[misc]
        if adapters(self):
            return inner(**options)  # type: ignore[no-any-return]
        return Shards(self, lambda: inner(**options)[0]), None


def handing(engine: type) -> type:
    """The class of an engine that hands over shards."""
    return type(engine.__name__, (Handing, engine), {"__doc__": engine.__doc__})


def adapters(engine: typing.Any) -> bool:
    """Has the engine's model adapters of LoRA, in this engine or merged by it? As FSDPEngine and MegatronEngine ask."""
    module = getattr(engine, "module", None)
    return (
        hasattr(getattr(module, "_fsdp_wrapped_module", module), "peft_config")
        or getattr(engine, "peft_cls", None) is not None
    )


def engine_of(weights: typing.Any) -> typing.Any:
    """The engine behind what a checkpoint engine or an adapter is given. Raises Refused for a generator of full
    tensors, without asking it for one."""
    if isinstance(weights, Shards):
        return weights.engine
    raise errors.Refused(
        f"verl's training engine gives full tensors ({type(weights).__name__}), which would be gathered; "
        "those of fsdp2 and megatron give shards, without LoRA adapters"
    )


class Source(typing.NamedTuple):
    """What the switch reads: tensors, and the layout's text where they do not say it."""

    tensors: typing.Any
    model: str  #: the model's folder
    text: str


def source_of(engine: typing.Any) -> Source:
    """Raises Refused for an engine whose shards are not where a switch could read them."""
    config = engine.engine_config
    strategy = str(config.strategy)
    if strategy not in _STRATEGIES:
        why = ": flat shards of FSDP1 have no names" if strategy == "fsdp" else ""
        raise errors.Refused(f"verl's strategy is '{strategy}', and must be {' or '.join(_STRATEGIES)}{why}")
    if getattr(engine, "_qat_enabled", False):
        raise errors.Refused(
            "the trainer trains for quantised weights (qat); the plug-in moves those of 16 and 32 bits"
        )
    if getattr(config, "param_offload", False) or getattr(config, "offload_policy", False):
        raise errors.Refused(
            "the trainer's params leave their place between updates (param_offload or "
            "offload_policy); set both to False"
        )
    folder = str(engine.model_config.local_path)
    if strategy == "fsdp2":
        return Source(engine.module, folder, "")
    from .. import megatron
    from ..model import Model

    return Source(megatron.tensors(engine.module), folder, megatron.layout(engine.module, Model(folder)))
