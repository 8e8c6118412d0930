"""Results that are not here yet, and may never be: they stay where they were made until somebody needs them.

A call with blocking=False gives a Future. As an argument of another call it goes there unresolved, and the worker that
uses it fetches what it needs: of one batch only the rows of its own share, from those workers that have them."""

from __future__ import annotations

import typing

from .. import errors
from ._ray import ray
from ._rows import divided, joined, taken


class Result:
    """What comes back of a call, by the places of its parts in Ray's store. It can be sent to workers.

    form: "rows", one batch; "list", an item for each part; "one", the only part. sizes: places of numbers of rows."""

    def __init__(self, form: str, refs: list[typing.Any], sizes: list[typing.Any], what: str) -> None:
        self.form, self.refs, self.sizes, self.what = form, refs, sizes, what
        self._where: range | None = None
        self._with_first = False

    def item(self, number: int) -> Result:
        return Result("one", [self.refs[number]], [], self.what)

    def rows(self) -> int:
        """Waits for the parts, and fetches none."""
        return sum(ray.get(self.sizes))

    def narrow(self, where: range, pad_with_first: bool) -> None:
        """To these rows, as divided() has them."""
        self._where, self._with_first = where, pad_with_first

    def get(self) -> typing.Any:
        """Fetches it, or those rows to which it was narrowed."""
        if self._where is not None:
            return self._narrowed(self._where)
        parts = ray.get(self.refs)
        if self.form == "rows":
            return joined(parts)
        return parts if self.form == "list" else parts[0]

    def _narrowed(self, where: range) -> typing.Any:
        sizes: list[int] = ray.get(self.sizes)
        total = sum(sizes)
        first, end = min(where.start, total), min(where.stop, total)
        if len(where) > end - first:  # the row that padding copies
            first, end = (0, end) if self._with_first else (min(first, total - 1), total)
        pieces, at = [], 0
        for ref, size in zip(self.refs, sizes):
            low, high = max(first, at), min(end, at + size)
            if low < high:
                pieces.append(taken(ray.get(ref), low - at, high - at))
            at += size
        if not pieces:
            return taken(ray.get(self.refs[0]), 0, 0)
        moved = range(where.start - first, where.stop - first)
        return divided(joined(pieces), moved, self._with_first)


class Future:
    """What a call with blocking=False gives."""

    def __init__(
        self,
        group: typing.Any,
        method: str,
        refs: list[tuple[int, typing.Any]],
        finish: typing.Callable[[list[typing.Any]], typing.Any],
        result: Result | None,
    ) -> None:
        """refs: (rank, place) of each worker that runs. result: None if a function of the caller's collects."""
        self._group, self._method, self._refs, self._finish, self._result = group, method, refs, finish, result

    def get(self, timeout: float | None = None) -> typing.Any:
        """Waits for all workers, and gives what the call without blocking=False gives. Raises Peer if one failed,
        Timeout after `timeout` seconds."""
        return self._finish(self._group._fetch(self._method, self._refs, timeout))

    def ready(self) -> bool:
        """Have all workers done it, or failed?"""
        refs = [ref for _, ref in self._refs]
        return len(ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)[0]) == len(refs)

    @property
    def result(self) -> Result:
        """For a worker."""
        if self._result is None:
            raise errors.Refused(
                f"the future of '{self._method}' has a collect function of the program's own, which runs on the "
                "controller: pass on what its get() gives"
            )
        return self._result

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError(
            "a treadle.ray.Future is passed on as an argument of a group's method, not inside of another object"
        )

    def __repr__(self) -> str:
        return f"<treadle.ray.Future of '{self._method}', {'ready' if self.ready() else 'not ready'}>"
