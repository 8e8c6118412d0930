"""Facts from live chunks and megatron.core.parallel_state."""

from __future__ import annotations

import typing

from .. import _tensors, errors
from . import listed, tensors
from ._facts import KEYS, LATER, Facts, Kept

WORKS = "0.16 to 0.19"
_DENSE = {
    "tp": "get_tensor_model_parallel_group",
    "cp": "get_context_parallel_group",
    "dp": "get_data_parallel_group",
    "pp": "get_pipeline_model_parallel_group",
}
_EXPERTS = {
    "etp": "get_expert_tensor_parallel_group",
    "ep": "get_expert_model_parallel_group",
    "edp": "get_expert_data_parallel_group",
}
_VIRTUAL = "get_virtual_pipeline_model_parallel_world_size"
_ASKED = (*_DENSE.values(), *_EXPERTS.values(), _VIRTUAL, "model_parallel_is_initialized")


def read(chunks: typing.Any) -> Facts:
    state = _parallel_state()
    bare = [_unwrapped(number, chunk) for number, chunk in enumerate(listed(chunks))]
    if not bare:
        raise errors.Refused("chunks is empty: pass the list that holds this rank's model chunks")
    config = bare[0].config
    kept: list[dict[str, Kept]] = [{} for _ in bare]
    for key, tensor in tensors(bare).items():
        number, name = key if isinstance(key, tuple) else (0, key)
        if hasattr(tensor, "placements"):
            raise errors.Refused(
                f"'{name}' of chunk {number} is a DTensor (Megatron-FSDP): treadle.Layout.of takes its placements"
            )
        kept[number][name] = Kept(tuple(tensor.shape), _dtype_name(tensor.dtype))
    rank, ranks, groups = _groups(state, config.num_moe_experts is not None)
    values = {key: getattr(config, key) for key in KEYS} | {key: getattr(config, key, None) for key in LATER}
    made_as = (
        "te" if "transformer_engine" in repr(bare[0].transformer_layer_spec) else "local",
        _dtype_name(config.params_dtype),
    )
    return Facts(
        rank,
        ranks,
        groups,
        getattr(state, _VIRTUAL)() or 1,
        values,
        made_as,
        _stages(config),
        int(bare[0].vocab_size),
        kept,
        [[int(layer.layer_number) - 1 for layer in chunk.decoder.layers] for chunk in bare],
    )


def _parallel_state() -> typing.Any:
    """Raises Refused for a Megatron-core that does not answer what is asked here, with its version."""
    from megatron import core  # type: ignore[import-not-found,unused-ignore]
    from megatron.core import parallel_state as state  # type: ignore[import-not-found,unused-ignore]
    from megatron.core.transformer.transformer_config import (  # type: ignore[import-not-found,unused-ignore]
        TransformerConfig,
    )

    words = f"Megatron-core {getattr(core, '__version__', 'of an unknown version')}"
    missing = [f"parallel_state has no {name}" for name in _ASKED if not hasattr(state, name)]
    fields = TransformerConfig.__dataclass_fields__
    missing += [
        f"TransformerConfig has no {name}" for name in (*KEYS, "pipeline_model_parallel_layout") if name not in fields
    ]
    if missing:
        raise errors.Refused(f"{words}: {missing[0]}; {WORKS} work")
    if not state.model_parallel_is_initialized():
        raise errors.Refused(f"{words} has no ranks yet: call initialize_model_parallel first")
    for name in ("get_gtp_weight_remat_world_size", "get_expert_gtp_weight_remat_world_size"):  # of 0.19
        if (count := getattr(state, name, lambda: 1)()) > 1:
            raise errors.Refused(
                f"{words} shares each weight among {count} more ranks (generalized tensor parallelism), "
                "which no layout here describes"
            )
    return state


def _unwrapped(number: int, chunk: typing.Any) -> typing.Any:
    """A chunk without DistributedDataParallel and Float16Module."""
    kind = type(chunk).__name__
    if not _tensors.is_module(chunk):
        raise errors.Refused(f"chunk {number} is a {kind}, and must be a GPTModel")
    while hasattr(chunk, "module"):
        chunk = chunk.module
    for name in ("config", "vocab_size", "decoder", "transformer_layer_spec"):
        if not hasattr(chunk, name):
            raise errors.Refused(f"chunk {number} is a {kind}, and must be a GPTModel: it has no {name}")
    return chunk


def _dtype_name(dtype: typing.Any) -> str:
    return str(dtype).rpartition(".")[2]


def _groups(state: typing.Any, experts: bool) -> tuple[int, int, dict[str, list[int]]]:
    import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]

    asked = {**_DENSE, **(_EXPERTS if experts else {})}
    return (
        dist.get_rank(),
        dist.get_world_size(),
        {name: list(dist.get_process_group_ranks(getattr(state, function)())) for name, function in asked.items()},
    )


def _stages(config: typing.Any) -> list[list[list[str]]] | None:
    found = config.pipeline_model_parallel_layout
    return None if found is None else [[[kind.name for kind in chunk] for chunk in stage] for stage in found.layout]
