"""The arguments of a call for each worker, by what treadle.Dispatch says of their lengths."""

from __future__ import annotations

import typing

from .. import errors
from ._futures import Future, Result
from ._ray import ray
from ._register import Mode, Own
from ._rows import are_rows, divided
from ._shares import Length, Spec, known, length_of, shares_of
from ._worker import Call

LARGE = 100_000  #: bytes of an argument for several workers: above, it goes to Ray's store once

Given = tuple[Call, list[typing.Any], dict[str, typing.Any]]  #: arguments, and those with names


def divide(
    head: Call, mode: Mode, spec: Spec, values: list[typing.Any], names: list[str]
) -> tuple[list[Given], list[int]]:
    """What each worker that runs is given, and the ranks whose results come back. values: all arguments, of which the
    last ones have these names.

    If only futures say how many rows there are, each worker finds out its own; who runs does not depend on it."""
    held = [value.result if isinstance(value, Future) else value for value in values]
    lengths = tuple(map(_length_of, held))
    late = mode.divides_rows and any(isinstance(value, Result) and value.form == "rows" for value in held)
    count = known(lengths)
    here = tuple((kind, (count or 0) if kind == "rows" and length is None else length) for kind, length in lengths)
    shares = shares_of(spec._replace(auto_padding=True) if late and count is None else spec, here)
    columns = [column(value, shares, spec) for value in held]
    positional = len(values) - len(names)
    calls: list[Given] = []
    for rank, share in enumerate(shares):
        if not share.runs:
            continue
        if late:
            call = head._replace(rank=rank, spec=spec, lengths=lengths)
        else:
            call = head._replace(rank=rank, given=len(share.rows), padding=share.padding)
        given = [parts[rank] for parts in columns]
        calls.append((call, given[:positional], dict(zip(names, given[positional:]))))
    return calls, [rank for rank, share in enumerate(shares) if share.collected]


def divide_own(
    group: typing.Any, head: Call, own: Own, arguments: tuple[typing.Any, ...], named: dict[str, typing.Any]
) -> list[Given]:
    """What a function of one's own gives each worker."""
    made = own.dispatch(group, *arguments, **named)
    if not isinstance(made, tuple) or len(made) != 2:
        raise errors.Refused(f"{head.method}: dispatch_fn gave {made!r:.80}; it must give a list and a dict")
    workers = group.world_size
    for values in (*made[0], *made[1].values()):
        if not isinstance(values, (list, tuple)) or len(values) != workers:
            raise errors.Refused(
                f"{head.method}: dispatch_fn gave {values!r:.80} for an argument; it must give a list with an item for "
                f"each of {workers} workers"
            )
    return [
        (
            head._replace(rank=rank),
            [values[rank] for values in made[0]],
            {key: values[rank] for key, values in made[1].items()},
        )
        for rank in range(workers)
    ]


def column(value: typing.Any, shares: typing.Sequence[typing.Any], spec: Spec) -> list[typing.Any]:
    """An argument's part for each worker."""
    if isinstance(value, Result):
        if value.form == "list" and not shares[0].whole:
            return [value.item(share.rows[0]) for share in shares]
        return [value] * len(shares)
    if isinstance(value, (list, tuple)):
        return [value if share.whole or not share.rows else value[share.rows[0]] for share in shares]
    if not are_rows(value) or shares[0].whole:
        return [_once(value, len(shares))] * len(shares)
    made: dict[tuple[int, int], typing.Any] = {}  # workers with one dp rank get one object
    often = len({share.rows for share in shares}) < len(shares)
    for share in shares:
        where = share.rows.start, share.rows.stop
        if where not in made:
            part = divided(value, share.rows, spec.pad_with_first)
            made[where] = ray.put(part) if often else part
    return [made[share.rows.start, share.rows.stop] for share in shares]


def _length_of(value: object) -> Length:
    if isinstance(value, Result):
        lengths: dict[str, Length] = {"rows": ("rows", None), "list": ("list", len(value.refs))}
        return lengths.get(value.form, ("value", 0))
    return length_of(value)


def _once(value: typing.Any, workers: int) -> typing.Any:
    """What goes whole to several workers."""
    size = getattr(value, "nbytes", len(value) if isinstance(value, (bytes, bytearray)) else 0)
    large = are_rows(value) or (isinstance(size, int) and size > LARGE)
    return ray.put(value) if large and workers > 1 else value
