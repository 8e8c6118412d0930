"""Megatron-core's model chunks as a layout: found in the live chunks and in parallel_state, not written down a second
time (docs/plugins-megatron.md).

    text = treadle.megatron.layout(chunks, model)  # "megatron:tp=2,pp=2,vpp=2,spec=local,..."; on every rank
    train = treadle.Layout(model, text, group.size)
    with treadle.Switch(group, train, infer, train_tensors=treadle.megatron.tensors(chunks)) as switch: ...

Neither megatron nor torch is imported before it is used."""

from __future__ import annotations

import typing

from .. import _tensors
from ._places import places, rank_map

if typing.TYPE_CHECKING:
    from ..model import Model


def layout(chunks: typing.Any, model: Model | None = None) -> str:
    """The text of the layout that Megatron-core's model has over all ranks (docs/layouts.md, megatron).

    chunks: a GPTModel, or the list of them with virtual stages, in Megatron's wrappers or without.
    model: what they are chunks of. Names, shapes, types and layer numbers of every chunk on this rank are compared with
        those of the layout. Without it nothing is compared here; a Switch that takes these tensors compares names,
        shapes and types.
    Raises Refused: a Megatron-core whose interface differs, an unknown module spec, and all that differs, by name.
    Local, and the same text on every rank."""
    from . import _compare, _live, _text

    facts = _live.read(chunks)
    text = _text.text_of(facts)
    return text if model is None else _compare.compared(model, text, facts)


def tensors(chunks: typing.Any) -> dict[typing.Any, typing.Any]:
    """Parameters and persistent buffers of the chunks, by what a Switch wants in train_tensors: the name, and (chunk,
    name) from the second chunk on. Entries of a state dict that are no tensors (_extra_state) are left out."""
    found: dict[typing.Any, typing.Any] = {}
    for number, chunk in enumerate(listed(chunks)):
        for name, tensor in _tensors.pairs(chunk):
            name = _tensors.plain_name(name)
            if not name.endswith("_extra_state"):
                found[(number, name) if number else name] = tensor
    return found


def listed(chunks: typing.Any) -> list[typing.Any]:
    return list(chunks) if hasattr(chunks, "__iter__") and not _tensors.is_module(chunks) else [chunks]


__all__ = ["layout", "places", "rank_map", "tensors"]
