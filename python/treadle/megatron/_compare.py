"""Is the layout what the chunks are? By names, shapes, types and layer numbers, on one rank."""

from __future__ import annotations

import difflib
import re
import typing

from .. import errors
from ..layout import Layout
from ._facts import Facts

if typing.TYPE_CHECKING:
    from ..model import Model


def compared(model: Model, text: str, facts: Facts) -> str:
    """The text in its normal form. Raises Refused with the first tensor that differs."""
    layout = Layout(model, text, facts.ranks)
    where = f"rank {facts.rank} of {layout.text}"
    stored = [
        {s.name: s for s in layout.storages(facts.rank) if s.chunk == number and not s.derived}
        for number in range(len(facts.chunks))
    ]
    for number, (chunk, expected) in enumerate(zip(facts.chunks, stored)):
        of = f" of chunk {number}" if facts.virtual > 1 else ""
        for name in chunk:
            if name not in expected:
                near = difflib.get_close_matches(name, [other for other in expected if other not in chunk], 1)
                nearest = f"; the nearest is '{near[0]}'" if near else ""
                raise errors.Refused(f"'{name}'{of}: the layout has no such tensor on {where}{nearest}")
        for name, storage in expected.items():
            if name not in chunk:
                raise errors.Refused(f"'{name}'{of}: {where} has it, and the chunk does not")
            if chunk[name].shape != storage.shape:
                raise errors.Refused(
                    f"'{name}'{of} has the shape {list(chunk[name].shape)}; {where} has {list(storage.shape)}"
                )
            if chunk[name].dtype != storage.dtype:
                raise errors.Refused(
                    f"'{name}'{of} is {chunk[name].dtype}; {where} has {storage.dtype}, "
                    "the type of the model's matrices"
                )
        _layers(layout, facts, number, expected)
    return layout.text


def _layers(layout: Layout, facts: Facts, number: int, expected: typing.Mapping[str, typing.Any]) -> None:
    """Each layer of the chunk has the number that the layout gives it: of one of its tensors, where the first element
    comes from."""
    for local, live in enumerate(facts.layers[number]):
        name = next(name for name in expected if name.startswith(f"decoder.layers.{local}."))
        tensor = next((run.tensor for run in layout.runs(facts.rank, (number, name)) if run.tensor is not None), "")
        found = re.search(r"\.layers\.(\d+)\.", tensor or "")
        if found is None or int(found[1]) != live:
            raise errors.Refused(
                f"'decoder.layers.{local}' of chunk {number} is layer {live} of the model; "
                f"in {layout.text} rank {facts.rank} has '{tensor}' there"
            )
