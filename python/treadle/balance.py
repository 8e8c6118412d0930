"""Rows divided so that each rank, or each micro batch, has about as much to do: the pure functions of
treadle_control.h, with verl's meaning and ties.

    work = treadle.balance.workload(lengths)
    parts = treadle.balance.divide(work, ranks, ends_small=True)
    figures = treadle.balance.figures(lengths, parts)
    batch.reorder([row for part in parts for row in part])"""

from __future__ import annotations

import ctypes
import itertools
import typing

from . import _abi, _columns, _library, errors

Numbers = typing.Iterable[typing.Any]
KINDS = {"karmarkar_karp": _abi.TREADLE_BALANCE_KARMARKAR_KARP, "greedy": _abi.TREADLE_BALANCE_GREEDY}


def workload(lengths: Numbers) -> list[int]:
    """The work of rows of these numbers of tokens: 24576 s + s**2 for each."""
    given = _array("lengths", lengths)
    loads = (ctypes.c_int64 * len(given))()
    _library.call("treadle_balance_workload", given, len(given), loads)
    return list(loads)


def divide(
    loads: Numbers,
    parts: int,
    *,
    equal: bool = True,
    kind: str = "karmarkar_karp",
    groups: typing.Iterable[typing.Hashable] | None = None,
    ends_small: bool = False,
) -> list[list[int]]:
    """Rows of each part, by their loads, so that parts have about equal ones.

    equal: as many rows in each part, or with groups as many groups. kind: "karmarkar_karp", the largest differences
        first, or "greedy", each row as it comes to the part with the least.
    groups: of each row, such as a uid: rows of a group are neighbours, and stay in one part.
    ends_small: the rows of a part are not in the order of their numbers, but small ones are at both ends.

    Raises Refused: fewer rows than parts; rows that do not divide, with equal; a group that stands at two places."""
    if kind not in KINDS:
        raise errors.Refused(f"kind is {kind!r}; it is one of {', '.join(KINDS)}")
    given = _array("loads", loads)
    of_rows = _array("groups", _numbered(groups)) if groups is not None else None
    if of_rows is not None and len(of_rows) != len(given):
        raise errors.Refused(f"groups of {len(of_rows)} rows; there are {len(given)}")
    spec = _library.sized(
        _abi.treadle_balance_spec,
        kind=KINDS[kind],
        loads=given,
        count=len(given),
        parts=parts,
        equal=equal,
        groups=of_rows,
        ends_small=ends_small,
    )
    # More parts than rows are refused, before anything is written.
    order, counts = (ctypes.c_int64 * len(given))(), (ctypes.c_int64 * max(1, min(parts, len(given))))()
    _library.call("treadle_balance_divide", ctypes.byref(spec), order, counts)
    return _cut(order, counts)


def micro_count(lengths: Numbers, max_tokens: int, *, least: int = 0, multiple: int = 0, dp_most: int = 0) -> int:
    """The number of micro batches of rows of these numbers of tokens: min(rows, ceil(all tokens / max_tokens)), raised
    to `least` and to dp_most, the most that a dp rank has found, and rounded up to a multiple.

    Raises Refused: a row of more than max_tokens; more micro batches than rows."""
    spec, _ = _micro(lengths, max_tokens, least, multiple, dp_most)
    count = ctypes.c_int64()
    _library.call("treadle_balance_micro_count", ctypes.byref(spec), ctypes.byref(count))
    return count.value


def micro_divide(
    lengths: Numbers, max_tokens: int, *, least: int = 0, multiple: int = 0, dp_most: int = 0
) -> list[list[int]]:
    """Rows of each of micro_count() micro batches, which have about equal work; those with less are at both ends. Rows
    are not cut, so one may have more than max_tokens. invert() brings results back in the rows' order."""
    spec, given = _micro(lengths, max_tokens, least, multiple, dp_most)
    count = ctypes.c_int64()
    _library.call("treadle_balance_micro_count", ctypes.byref(spec), ctypes.byref(count))
    order, counts = (ctypes.c_int64 * len(given))(), (ctypes.c_int64 * count.value)()
    _library.call("treadle_balance_micro_divide", ctypes.byref(spec), order, counts)
    return _cut(order, counts)


def invert(order: Numbers) -> list[int]:
    """The inverse of an order, inverse[order[i]] == i: what brings rows back to where they were."""
    given = _array("order", order)
    inverse = (ctypes.c_int64 * len(given))()
    _library.call("treadle_balance_invert", given, len(given), inverse)
    return list(inverse)


def figures(lengths: Numbers, parts: typing.Sequence[Numbers]) -> dict[str, float]:
    """Tokens of ranks before rows were divided, when each had as many rows as they came, and after: verl's
    global_seqlen/ min, max, minmax_diff, balanced_min, balanced_max, mean."""
    given = _array("lengths", lengths)
    listed = [_columns.listed(part) for part in parts]
    order = _array("parts", itertools.chain.from_iterable(listed))
    counts = _array("parts", [len(part) for part in listed])
    if len(order) != len(given):
        raise errors.Refused(f"parts of {len(order)} rows; there are {len(given)}")
    found = _library.sized(_abi.treadle_balance_figures)
    _library.call("treadle_balance_get_figures", given, len(given), order, counts, len(counts), ctypes.byref(found))
    return {name: getattr(found, name) for name, *_ in found._fields_ if name != "struct_size"}


def _array(what: str, numbers: Numbers) -> typing.Any:
    from .batch import _numbers

    return _numbers(what, _columns.listed(numbers))


def _numbered(groups: typing.Iterable[typing.Hashable]) -> list[int]:
    """Equal numbers for equal groups."""
    seen: dict[typing.Hashable, int] = {}
    return [seen.setdefault(group, len(seen)) for group in groups]


def _cut(order: typing.Any, counts: typing.Any) -> list[list[int]]:
    rows = iter(order)
    return [list(itertools.islice(rows, count)) for count in counts]


def _micro(lengths: Numbers, max_tokens: int, least: int, multiple: int, dp_most: int) -> tuple[typing.Any, typing.Any]:
    given = _array("lengths", lengths)
    spec = _library.sized(
        _abi.treadle_balance_micro_spec,
        lengths=given,
        count=len(given),
        max_tokens=max_tokens,
        least=least,
        multiple=multiple,
        dp_most=dp_most,
    )
    return spec, given
