"""What is known of a Megatron model on one rank: plain values, read from the live objects (_live.py) or recorded by a
test."""

from __future__ import annotations

import typing


class Kept(typing.NamedTuple):
    """A tensor of a chunk."""

    shape: tuple[int, ...]
    dtype: str  #: torch's name


class Facts(typing.NamedTuple):
    rank: int
    ranks: int
    #: ranks of this rank's groups, in their order: tp, cp, dp, pp; and etp, ep, edp of a model with experts
    groups: dict[str, list[int]]
    virtual: int  #: virtual stages
    config: dict[str, typing.Any]  #: of TransformerConfig, what decides the layout: KEYS
    #: "te" or "local" by the layers' spec, and the type of parameters: for ranks that hold too little to show it
    made_as: tuple[str, str]
    stages: list[list[list[str]]] | None  #: pipeline_model_parallel_layout: [pp][vpp], names of LayerType
    vocabulary: int  #: rows of the embedding over all ranks, with padding
    chunks: list[dict[str, Kept]]  #: by name
    layers: list[list[int]]  #: of each chunk: numbers of its layers, from 0


KEYS = (
    "num_layers",
    "num_moe_experts",
    "moe_grouped_gemm",
    "num_layers_in_first_pipeline_stage",
    "num_layers_in_last_pipeline_stage",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
)
LATER = ("moe_single_grouped_weight", "mla_down_proj_fusion")  # which not every version has


def facts_of(plain: typing.Mapping[str, typing.Any]) -> Facts:
    """Facts that were written as JSON."""
    chunks = [{name: Kept(tuple(shape), dtype) for name, (shape, dtype) in chunk.items()} for chunk in plain["chunks"]]
    return Facts(**{**plain, "chunks": chunks, "made_as": tuple(plain["made_as"])})
