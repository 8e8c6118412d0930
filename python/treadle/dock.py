"""Rows of a step as they become ready: the controller's book, treadle_dock_* of treadle_control.h.

    dock = treadle.Dock(rows=8, group=2, columns=["ids", "ref_log_probs"], consumers=["reference", "advantages"])
    dock.put(["ids"], range(4))
    dock.take("reference", ["ids"], groups=True)  # [0, 1, 2, 3]

It has no values: these stay where they were made."""

from __future__ import annotations

import ctypes
import typing

from . import _abi, _columns, _library

PADDING: typing.Final = -2


class Dock:
    """Which columns are ready, row by row, and which rows each consumer has taken. One thread at a time.

    rows: of a step. group: rows of a prompt, which stand side by side. columns, consumers: their names.

    Raises Refused: a group that does not divide the rows; a name that is empty or there twice."""

    def __init__(
        self, rows: int, columns: typing.Iterable[str], consumers: typing.Iterable[str], *, group: int = 1
    ) -> None:
        of_columns, of_consumers = _texts("column", columns), _texts("consumer", consumers)
        spec = _library.sized(
            _abi.treadle_dock_spec,
            rows=rows,
            group=group,
            columns=of_columns,
            column_count=len(of_columns),
            consumers=of_consumers,
            consumer_count=len(of_consumers),
        )
        pointer = ctypes.c_void_p()
        _library.call("treadle_dock_create", ctypes.byref(spec), ctypes.byref(pointer))
        self._object = _library.Object(pointer, "treadle_dock_destroy")
        self._rows = rows

    def put(self, columns: typing.Iterable[str], rows: typing.Iterable[typing.Any]) -> None:
        """These columns of these rows are ready. Raises Refused, with nothing changed: a column or a row that the dock
        does not have."""
        from .batch import _numbers

        names, numbers = _texts("column", columns), _numbers("rows", _columns.listed(rows))
        _library.call("treadle_dock_put", self._object.use("put"), names, len(names), numbers, len(numbers))

    def take(
        self,
        consumer: str,
        columns: typing.Iterable[str],
        count: int = 0,
        *,
        groups: bool = False,
        in_order: bool = False,
        dp_size: int = 0,
        pads: bool = False,
    ) -> list[int]:
        """Takes rows that have all these columns and that the consumer has not taken; [] if there are too few.

        count: how many, all of them or none; 0: as many as there are. groups: whole groups alone. in_order: none behind
        one that this consumer still waits for. dp_size: the number is a multiple of this, at most 65536. pads: PADDING
        in place of rows that are missing, if there is one at least.

        Raises Refused: a consumer or a column that the dock does not have; a count that does not divide its rows, or
        is not of whole groups; dp_size that does not divide the count, unless it pads."""
        names = _texts("column", columns)
        request = _library.sized(
            _abi.treadle_dock_request,
            consumer=_library.given("consumer", consumer),
            columns=names,
            column_count=len(names),
            count=count,
            groups=groups,
            in_order=in_order,
            dp_size=dp_size,
            pads=pads,
        )
        room = self._rows + (dp_size if 0 < dp_size <= _MOST_RANKS else 0)  # more is refused
        rows, found = (ctypes.c_int64 * room)(), ctypes.c_size_t()
        _library.call(
            "treadle_dock_take", self._object.use("take"), ctypes.byref(request), rows, ctypes.byref(found)
        )
        return list(rows[: found.value])

    def all_consumed(self, consumer: str) -> bool:
        """Whether the consumer has taken every row; one that the dock does not have has not."""
        given = _library.given("consumer", consumer)
        return bool(_library.function("treadle_dock_all_consumed")(self._object.use("all_consumed"), given))

    def ready(self, column: str) -> int:
        """The number of rows that have a column; of one that the dock does not have, 0."""
        given = _library.given("column", column)
        return int(_library.function("treadle_dock_ready")(self._object.use("ready"), given))

    def clear(self) -> None:
        """The next step: nothing is ready, and nothing taken."""
        _library.function("treadle_dock_clear")(self._object.use("clear"))


_MOST_RANKS = 1 << 16


def _texts(what: str, names: typing.Iterable[str]) -> typing.Any:
    given = [_library.given(what, name) for name in names]
    return (ctypes.c_char_p * len(given))(*given)
