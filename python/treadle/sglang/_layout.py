"""The layout that an engine of SGLang has, as a text of docs/layouts.md."""

from __future__ import annotations

import typing

from .. import errors

# Options with which an engine keeps other weights than its model's, or keeps them elsewhere: the values without, and
# why others are refused.
_PLAIN: dict[str, tuple[tuple[object, ...], str]] = {
    "quantization": ((None,), "its weights are quantised; the plug-in writes those of 16 and 32 bits"),
    "torchao_config": ((None, ""), "its weights are quantised; the plug-in writes those of 16 and 32 bits"),
    "enable_lora": ((None, False), "LoRA adapters wrap its layers"),
    "lora_paths": ((None, []), "LoRA adapters wrap its layers"),
    "speculative_algorithm": ((None,), "its draft model would keep old weights"),
    "enable_eplb": ((None, False), "it moves its experts: their places change as it runs"),
    "ep_num_redundant_experts": ((None, 0), "some of its experts are there twice"),
    "init_expert_location": ((None, "trivial"), "its experts lie in another order"),
    "cpu_offload_gb": ((None, 0), "some of its weights are not on the device"),
    "weight_cache_mode": ((None, "off"), "its weights are shared with other engines"),
}
_A2A = {None: "none", "none": "none", "deepep": "deepep"}
_RUNNERS = {None: "", "auto": "", "triton": "", "triton_kernel": "triton_kernels"}
_SIZES = (
    "tp_size",
    "pp_size",
    "dp_size",
    "ep_size",
    "moe_dp_size",
    "attn_cp_size",
    "attn_dp_size",
    "moe_dense_tp_size",
)
_KEYS = (
    *_PLAIN,
    *_SIZES,
    "enable_dp_attention",
    "enable_dp_lm_head",
    "moe_a2a_backend",
    "moe_runner_backend",
    "custom_weight_loader",
)


def view(server_args: typing.Any) -> dict[str, typing.Any]:
    """What an engine runs with: of a ServerArgs, or of the object that /server_info answers. Of 0.5.23 what its options
    were resolved to."""
    if isinstance(server_args, typing.Mapping):
        return dict(server_args)
    if hasattr(server_args, "resolved_dict"):
        return dict(server_args.resolved_dict())
    return {key: getattr(server_args, key) for key in _KEYS if hasattr(server_args, key)}


def facts(server_args: typing.Any) -> dict[str, typing.Any]:
    """What the plug-in asks of what an engine runs with: values that can be sent."""
    given = view(server_args)
    return {key: given[key] for key in _KEYS if key in given}


def layout_text(server_args: typing.Any) -> str:
    """The layout of an engine's weights over all its workers, from its ServerArgs, or a dict with these names:
    "sglang:tp=8,attn_dp=2,ep=4". Raises Refused, with the option, for an engine that keeps other weights than its
    model's: quantised ones, LoRA adapters, draft models, experts that move."""
    given = view(server_args)
    if "tp_size" not in given:
        raise errors.Refused(
            f"layout_text: {type(server_args).__name__} has no tp_size: it must be SGLang's ServerArgs, "
            "or what /server_info answers"
        )
    for key, (plain, why) in _PLAIN.items():
        if given.get(key) not in plain:
            raise errors.Refused(f"the engine has {key} {given[key]!r}: {why}")
    sizes = {key: given.get(key) or 1 for key in _SIZES}
    attn_dp = (
        sizes["attn_dp_size"]
        if "attn_dp_size" in given
        else sizes["dp_size"]
        if given.get("enable_dp_attention")
        else 1
    )
    words = [f"tp={sizes['tp_size']}"]
    for key, size in (
        ("pp", sizes["pp_size"]),
        ("attn_dp", attn_dp),
        ("attn_cp", sizes["attn_cp_size"]),
        ("ep", sizes["ep_size"]),
        ("moe_dp", sizes["moe_dp_size"]),
    ):
        words += [f"{key}={size}"] * (size > 1)
    dense = given.get("moe_dense_tp_size")
    if dense is not None and dense != sizes["tp_size"]:
        words.append(f"moe_dense_tp={dense}")
    words += ["dp_lm_head=on"] * bool(given.get("enable_dp_lm_head"))
    words += ["a2a=deepep"] * (_one_of(given, "moe_a2a_backend", _A2A) == "deepep")
    runner = _one_of(given, "moe_runner_backend", _RUNNERS)
    words += [f"moe={runner}"] * bool(runner)
    return f"sglang:{','.join(words)}"


def _one_of(given: typing.Mapping[str, typing.Any], key: str, known: typing.Mapping[typing.Any, str]) -> str:
    value = given.get(key)
    if value not in known:
        raise errors.Refused(
            f"the engine has {key} {value!r}, whose experts may lie otherwise; "
            f"the plug-in knows {', '.join(str(one) for one in known if one)}"
        )
    return known[value]


def replicas(server_args: typing.Any) -> int:
    """Copies of the engine's weights that requests are spread over: data parallel, without that of attention."""
    given = view(server_args)
    return 1 if given.get("enable_dp_attention") else int(given.get("dp_size") or 1)
