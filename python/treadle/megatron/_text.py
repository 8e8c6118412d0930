"""The text of a layout, from facts of one rank."""

from __future__ import annotations

import itertools
import typing

from .. import errors
from ._facts import Facts

_DIMENSIONS = ("tp", "cp", "ep", "dp", "pp")
_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}


def text_of(facts: Facts) -> str:
    """Raises Refused for what no text describes."""
    sizes = {name: len(ranks) for name, ranks in facts.groups.items()}
    if len(facts.chunks) != facts.virtual:
        raise errors.Refused(
            f"rank {facts.rank} gives {len(facts.chunks)} chunks, and Megatron has {facts.virtual} virtual stages: "
            "pass all chunks of the rank, in their order"
        )
    words = [f"{name}={sizes[name]}" for name in ("tp", "pp", "cp") if sizes[name] > 1]
    words += _experts(facts, sizes)
    if (order := _order(facts, sizes)) != _DIMENSIONS:
        words.append(f"order={'-'.join(order)}")
    words += _stages(facts)
    words += [f"padded_vocab_size={facts.vocabulary}", f"spec={_spec(facts)}", f"dtype={_dtype(facts)}"]
    return f"megatron:{','.join(words)}"


# ---- Ranks ----


def _order(facts: Facts, sizes: typing.Mapping[str, int]) -> tuple[str, ...]:
    """The order of dimensions in rank numbers by which this rank's groups are what Megatron says; the usual ones
    first."""
    usual = (_DIMENSIONS, ("tp", "cp", "ep", "pp", "dp"))
    dense = {name: sizes.get(name, 1) for name in ("tp", "cp", "dp", "pp")}
    experts = {"tp": sizes.get("etp", 1), "ep": sizes.get("ep", 1), "dp": sizes.get("edp", 1), "pp": sizes["pp"]}
    asked = [("", dense, {name: facts.groups[name] for name in dense})]
    if "ep" in facts.groups:
        asked.append(
            (
                "e",
                experts,
                {
                    "tp": facts.groups["etp"],
                    "ep": facts.groups["ep"],
                    "dp": facts.groups["edp"],
                    "pp": facts.groups["pp"],
                },
            )
        )
    for prefix, grid, _ in asked:
        if (count := _product(grid.values())) != facts.ranks:
            words = ", ".join(f"{prefix if name in ('tp', 'dp') else ''}{name}={size}" for name, size in grid.items())
            raise errors.Refused(f"Megatron's groups ({words}) are {count} ranks, and torch has {facts.ranks}")
    for order in (*usual, *itertools.permutations(_DIMENSIONS)):
        if all(
            _group(facts.rank, order, grid, name) == ranks
            for _, grid, groups in asked
            for name, ranks in groups.items()
        ):
            return order
    words = ", ".join(f"{name} {ranks}" for name, ranks in facts.groups.items() if len(ranks) > 1)
    raise errors.Refused(f"no order of tp, cp, ep, dp and pp gives the groups of rank {facts.rank}: {words}")


def _group(rank: int, order: tuple[str, ...], sizes: typing.Mapping[str, int], name: str) -> list[int]:
    stride = _product(sizes.get(before, 1) for before in order[: order.index(name)])
    first = rank - rank // stride % sizes[name] * stride
    return [first + place * stride for place in range(sizes[name])]


def _product(numbers: typing.Iterable[int]) -> int:
    product = 1
    for number in numbers:
        product *= number
    return product


# ---- Stages ----


def _stages(facts: Facts) -> list[str]:
    config = facts.config
    if facts.stages is not None:
        return [f'layout="{_letters(facts.stages)}"']
    words = [f"vpp={facts.virtual}"] if facts.virtual > 1 else []
    for key, name in (("first", "num_layers_in_first_pipeline_stage"), ("last", "num_layers_in_last_pipeline_stage")):
        if config[name] is not None:
            words.append(f"{key}={config[name]}")
    for key, name in (
        ("embedding_split", "account_for_embedding_in_pipeline_split"),
        ("loss_split", "account_for_loss_in_pipeline_split"),
    ):
        if config[name]:
            words.append(f"{key}=on")
    return words


def _letters(stages: list[list[list[str]]]) -> str:
    """[pp][vpp] to one text: first chunks of all stages, then second ones."""
    made = []
    for number in range(len(stages[0])):
        for stage in stages:
            if strange := set(stage[number]) - _LETTERS.keys():
                raise errors.Refused(
                    f"pipeline_model_parallel_layout has '{min(strange)}', which is none of {', '.join(_LETTERS)}"
                )
            made.append("".join(_LETTERS[kind] for kind in stage[number]))
    return "|".join(made)


# ---- Names ----


def _names(facts: Facts) -> list[str]:
    return [name for chunk in facts.chunks for name in chunk]


def _spec(facts: Facts) -> str:
    """By the norms: Transformer Engine's linear layers have them inside. A rank without layers goes by the spec that
    its chunks were made with."""
    names = _names(facts)
    if any(name.endswith(".layer_norm_weight") for name in names):
        return "te"
    layers = [name for name in names if name.startswith("decoder.layers.")]
    if not layers:
        return facts.made_as[0]
    if any(name.endswith(".input_layernorm.weight") for name in layers):
        return "local"
    raise errors.Refused(
        f"the module spec is not known: rank {facts.rank} has neither 'decoder.layers.*.layer_norm_weight' (te) nor "
        f"'decoder.layers.*.input_layernorm.weight' (local), but '{layers[0]}' and {len(layers) - 1} more"
    )


def _experts(facts: Facts, sizes: typing.Mapping[str, int]) -> list[str]:
    words = []
    if facts.config["num_moe_experts"] is not None:
        words += [f"ep={sizes['ep']}"] if sizes["ep"] > 1 else []
        words += [f"etp={sizes['etp']}"] if sizes["etp"] != sizes["tp"] else []
        words.append(f"experts={_experts_form(facts)}")
    if facts.config.get("mla_down_proj_fusion"):
        words.append("mla_down_proj_fusion=on")
    return words


def _experts_form(facts: Facts) -> str:
    names = _names(facts)
    for part, form in (
        (".mlp.experts.linear_fc1.weight0", "grouped"),
        (".mlp.experts.local_experts.", "sequential"),
        (".mlp.experts.weight1", "legacy"),
    ):
        if any(part in name for name in names):
            return form
    if any(name.endswith(".mlp.experts.linear_fc1.weight") for name in names):
        return "stacked"
    if any(".mlp.experts." in name for name in names):
        strange = next(name for name in names if ".mlp.experts." in name)
        raise errors.Refused(
            f"the module spec is not known: '{strange}' is of no form that experts have (grouped, "
            "sequential, stacked, legacy)"
        )
    if not facts.config["moe_grouped_gemm"]:  # no layer here has experts
        return "sequential"
    if _spec(facts) == "local":
        return "legacy"
    return "stacked" if facts.config.get("moe_single_grouped_weight") else "grouped"


def _dtype(facts: Facts) -> str:
    """Of the first matrix; tensors of another type are found when the layout is compared."""
    matrices = [(name, kept.dtype) for chunk in facts.chunks for name, kept in chunk.items() if len(kept.shape) > 1]
    name, dtype = matrices[0] if matrices else ("params_dtype", facts.made_as[1])
    if dtype not in _DTYPES:
        raise errors.Refused(f"'{name}' is {dtype}, and must be one of {', '.join(_DTYPES)}")
    return _DTYPES[dtype]
