"""Is the engine's model that of the trainers? And the engine's layout on its ranks of the group."""

from __future__ import annotations

import json
import typing

from .. import errors

# Of a config.json: what decides which tensors there are, or what a forward pass makes of them.
_KEYS = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "rms_norm_eps",
    "sliding_window",
    "tie_word_embeddings",
    "attention_bias",
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "norm_topk_prob",
    "layer_types",
    "use_sliding_window",
    "max_window_layers",
    "decoder_sparse_step",
    "mlp_only_layers",
    "first_k_dense_replace",
    "n_group",
    "topk_group",
    "routed_scaling_factor",
    "scoring_func",
)


def on(text: str, first: int, count: int) -> str:
    """The layout `text` on `count` ranks of a larger group."""
    return with_key(text, f"on={first}-{first + count - 1}" if count > 1 else f"on={first}")


def with_key(text: str, key: str) -> str:
    """A layout's text with one more key, "dtype=bf16"."""
    return f"{text}{',' if ':' in text else ':'}{key}"


_DRAFTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
_ENGINES_ROPE = {"deepseek_yarn": "yarn"}  # what vLLM and SGLang write over the rope_type of DeepSeek's configs
_DTYPES = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32"}


def dtype_of(net: typing.Any) -> str:
    """The type of an engine's weights, as layouts name it: that of its first matrix, the embeddings, which no engine
    packs. Raises Refused for another one."""
    name, tensor = next(((name, tensor) for name, tensor in net.named_parameters() if tensor.ndim > 1), ("", None))
    if tensor is None or str(tensor.dtype) not in _DTYPES:
        raise errors.Refused(
            f"the engine's '{name}' is of {tensor.dtype}, and must be of {', '.join(_DTYPES)}"
            if tensor is not None
            else "the engine has no matrix among its parameters"
        )
    return _DTYPES[str(tensor.dtype)]


def without_drafts(config: str, names: typing.Iterable[str]) -> str:
    """config.json's text, of a model whose tensors have these names: without layers of multi-token prediction, where no
    name is of one. transformers leaves them out of its models, and engines keep them in a draft model."""
    given = json.loads(config)
    counts = [key for key in _DRAFTS if given.get(key)]
    first = f".layers.{given.get('num_hidden_layers')}."
    if not counts or any("mtp." in name or first in f".{name}" for name in names):
        return config
    return json.dumps({**given, **dict.fromkeys(counts, 0)})


def check_config(trained: str, served: typing.Mapping[str, typing.Any]) -> None:
    """trained: the config.json of the trainers' model, as text; served: the engine's, as a dict. Raises Refused where
    they say different things of the model, with the key and both values."""
    ours = json.loads(trained)
    for key in _KEYS:
        _compare(key, ours.get(key), served.get(key))
    first, second = _rotary(ours), _rotary(served)
    for key in sorted({*first, *second}):
        _compare(key, first.get(key), second.get(key))


def _compare(key: str, first: typing.Any, second: typing.Any) -> None:
    if first is not None and second is not None and _plain(first) != _plain(second):
        raise errors.Refused(
            f"the trainers' model has {key} {first}, and the engine's {second}: they are not the same model"
        )


def _rotary(config: typing.Mapping[str, typing.Any]) -> dict[str, typing.Any]:
    """The rotary positions of a config: by rope_parameters, as transformers 5 has them, or by rope_theta and
    rope_scaling, whose rope_type was once called type."""
    parts = {
        "rope_theta": config.get("rope_theta"),
        **(config.get("rope_scaling") or {}),
        **(config.get("rope_parameters") or {}),
    }
    older = parts.pop("type", None)
    kind = parts.get("rope_type") or older or "default"
    return {**parts, "rope_type": _ENGINES_ROPE.get(kind, kind)}


def _plain(value: typing.Any) -> typing.Any:
    return json.loads(json.dumps(value, default=str))
