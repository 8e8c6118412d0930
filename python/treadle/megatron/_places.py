"""Which place of the generation mesh a training rank takes: RLinf's rule (rlinf/workers/rollout/utils.py, RankMapper),
and treadle's word for it."""

from __future__ import annotations

from .. import errors


def rank_map(train_tp: int, infer_tp: int) -> str:
    """For Layout(rank_map=): where RLinf puts a training rank whose tensor parallel size is train_tp. Raises Refused
    where RLinf has no rule."""
    _check(train_tp, infer_tp)
    return "strided" if train_tp > infer_tp else "contiguous"


def places(
    train_tp: int, train_ranks: int, infer_tp: int, infer_ranks: int | None = None
) -> list[list[tuple[int, int]]]:
    """Of each training rank: the places (dp, tp) that RLinf has it send to.

    infer_ranks: of an engine on ranks of its own; None: the engine is on the trainers' ranks, and each has one place.
    treadle chooses senders by itself, nearest ones first; this is to compare, and to place engines as RLinf does."""
    _check(train_tp, infer_tp)
    if infer_ranks is not None and (infer_ranks < train_tp or infer_ranks % train_tp != 0):
        raise errors.Refused(f"{infer_ranks} ranks that generate are not a multiple of the trainers' tp={train_tp}")
    factor = max(train_tp // infer_tp, 1)
    copies = 1 if infer_ranks is None else max(infer_ranks // train_ranks, 1)
    between = train_ranks // infer_tp
    found: list[list[tuple[int, int]]] = []
    for rank in range(train_ranks):
        if infer_ranks is not None and rank >= infer_ranks:
            found.append([])
            continue
        dp, tp = _place(rank, train_tp, infer_tp, factor)
        found.append([(dp + copy * between, tp) for copy in range(copies)])
    return found


def _place(rank: int, train_tp: int, infer_tp: int, factor: int) -> tuple[int, int]:
    if train_tp == 1:
        return rank // infer_tp, rank % infer_tp
    inside = rank % train_tp
    return rank // train_tp * factor + inside % factor, inside // factor


def _check(train_tp: int, infer_tp: int) -> None:
    if train_tp > 1 and (train_tp < infer_tp or train_tp % infer_tp != 0):
        raise errors.Refused(
            f"the trainers' tp={train_tp} is not a multiple of the engine's tp={infer_tp}: RLinf has no places for it, "
            "and treadle's are \"contiguous\""
        )
