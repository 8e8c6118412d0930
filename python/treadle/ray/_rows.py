"""Rows that go to workers: a treadle.Batch, or any object with a length, chunk(parts) and concat(list), such as verl's
DataProto; and how a batch goes through Ray."""

from __future__ import annotations

import typing

from .. import _columns, errors
from ..batch import Batch
from ._ray import serializers


def are_rows(value: object) -> bool:
    return isinstance(value, Batch) or (
        hasattr(value, "__len__")
        and callable(getattr(value, "chunk", None))
        and callable(getattr(value, "concat", None))
    )


def joined(parts: typing.Sequence[typing.Any]) -> typing.Any:
    """The rows of all, one after the other. One part stays as it is."""
    if len(parts) == 1:
        return parts[0]
    return type(parts[0]).concat(list(parts))


def taken(rows: typing.Any, first: int, end: int) -> typing.Any:
    """Rows from first up to end."""
    count = len(rows)
    if (first, end) == (0, count):
        return rows
    if hasattr(rows, "__getitem__"):
        return rows[first:end]
    size = end - first
    if size < 1 or count % size or first % size:
        raise errors.Refused(f"{type(rows).__name__} has chunk and no slices: {size} of its {count} rows are no chunk")
    return rows.chunk(count // size)[first // size]


def divided(rows: typing.Any, where: range, pad_with_first: bool = False) -> typing.Any:
    """The rows of a range that may end after the last one: there are copies of the last row, or of the first."""
    count = len(rows)
    here = range(where.start, max(where.start, min(where.stop, count)))
    padding = len(where) - len(here)
    if not padding:
        return taken(rows, where.start, where.stop)
    source = 0 if pad_with_first else count - 1
    if isinstance(rows, Batch):
        return rows.index([*here, *[source] * padding])
    one = taken(rows, source, source + 1)
    return joined(([taken(rows, here.start, here.stop)] if here else []) + [one] * padding)


def unpadded(result: typing.Any, given: int, padding: int, what: str) -> typing.Any:
    """A worker's result without its rows of padding. `given`: rows that it got."""
    if not are_rows(result):
        raise errors.Refused(f"{what} gave {type(result).__name__} back; it must give a batch")
    if not padding:
        return result
    if len(result) != given:
        raise errors.Refused(
            f"{what} gave {len(result)} rows back for {given}: among them are rows of padding, and nothing says which"
        )
    return taken(result, 0, given - padding)


# ---- Batches through Ray ---------------------------------------------------------------------------------


def register_batches() -> None:
    """Lets this process give batches to Ray. Numbers go through its object store without a copy, and are copied once
    where they arrive, since a batch can be written and the store cannot."""
    serializers.register_serializer(Batch, serializer=_packed, deserializer=_unpacked)


def _packed(batch: Batch) -> tuple[int, dict[str, typing.Any], list[typing.Any]]:
    columns: list[typing.Any] = []
    for name in batch.columns:
        column = batch[name]
        if column.type in ("text", "bytes"):
            columns.append((name, column.type, None, list(column), None))
        else:
            offsets = column.offsets if column.width is None else None
            columns.append((name, column.type, column.width, column.numpy(), offsets))
    return len(batch), dict(batch.meta), columns


def _unpacked(packed: tuple[int, dict[str, typing.Any], list[typing.Any]]) -> Batch:
    rows, meta, columns = packed
    batch = Batch(rows)
    for name, word, width, values, offsets in columns:
        if word in ("text", "bytes"):
            batch.add(name, values, type=word)
        else:
            _columns.add_bits(batch._use("add"), name, word, width or 0, values, offsets)
    batch.meta.update(meta)
    return batch
