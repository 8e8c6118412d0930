"""Which worker gets what of a call: treadle.Dispatch, asked with lengths alone, by controllers and by workers."""

from __future__ import annotations

import functools
import typing

from .. import dispatch
from ._rows import are_rows

#: Of an argument: ("rows", number, or None if it is not yet known), ("list", items), ("function", 0), ("value", 0).
Length = tuple[str, "int | None"]


class Spec(typing.NamedTuple):
    """All that a division depends on, beside lengths. mesh: (dp rank, collects) of each worker."""

    kind: str
    execute: str
    workers: int
    mesh_name: str = ""
    mesh: tuple[tuple[int, bool], ...] = ()
    auto_padding: bool = False
    pad_with_first: bool = False


def length_of(value: object) -> Length:
    if are_rows(value):
        return "rows", len(value)  # type: ignore[arg-type]
    if isinstance(value, (list, tuple)):
        return "list", len(value)
    return ("function", 0) if callable(value) else ("value", 0)


@functools.lru_cache(256)
def shares_of(spec: Spec, lengths: tuple[Length, ...]) -> list[dispatch.DispatchShare]:
    """Of each worker. Raises Refused in the field's words."""
    stands: list[typing.Any] = []
    for kind, count in lengths:
        count = count or 0
        stands.append({"rows": dispatch.Rows(count), "list": [None] * count, "function": length_of}.get(kind))
    meshes = None
    if spec.mesh:
        meshes = dispatch.Meshes(spec.workers)
        for worker, (dp_rank, collects) in enumerate(spec.mesh):
            meshes.register(spec.mesh_name, worker, dp_rank, collects)
    return dispatch.Dispatch(
        spec.kind,
        stands,
        spec.workers,
        execute=spec.execute,
        meshes=meshes,
        mesh=spec.mesh_name if meshes else None,
        auto_padding=spec.auto_padding,
        pad_with_first=spec.pad_with_first,
    ).shares


def known(lengths: typing.Sequence[Length]) -> int | None:
    """The number of rows, if an argument that is here says it."""
    return next((count for kind, count in lengths if kind == "rows" and count is not None), None)
