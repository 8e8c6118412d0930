"""Which ranks share a node, as callers say it."""

from __future__ import annotations

import typing

from . import errors


def node_of(nodes: int | typing.Sequence[int] | None, ranks: int, what: str) -> list[int] | None:
    """The node of each rank, numbered from 0 by their first ranks. nodes: a number of nodes of equally many neighbours,
    or the node of each rank, a number of any kind; None: nothing is said. Raises Refused."""
    if nodes is None:
        return None
    if not isinstance(nodes, int):
        if len(nodes) != ranks:
            raise errors.Refused(f"{what}: nodes has the nodes of {len(nodes)} ranks, and there are {ranks}")
        numbers: dict[int, int] = {}
        return [numbers.setdefault(node, len(numbers)) for node in nodes]
    if nodes < 1 or ranks % nodes:
        raise errors.Refused(
            f"{what}: {ranks} rank{'s' if ranks != 1 else ''} cannot be divided evenly among {nodes} nodes"
        )
    return [rank // (ranks // nodes) for rank in range(ranks)]
