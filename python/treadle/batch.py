"""Batches: samples as named columns over rows, the same memory in C, numpy and torch.

    batch = treadle.Batch.of({"uid": ["7-0", "7-1"], "ids": [[31, 7, 2], [31, 2]], "score": numpy.array([1.0, 0.0])})
    batch["score"].numpy()[1] = 0.5  # the array that was given
    best = batch.index(batch["score"].numpy() > 0.7)
    best.save("best")

docs/batches.md has the file format, treadle_batch.h the names that have a fixed meaning."""

from __future__ import annotations

import ctypes
import json
import os
import typing

from . import _columns, _library, errors
from ._columns import Column

Rows = typing.Iterable[typing.Any]


class Meta(typing.MutableMapping[str, typing.Any]):
    """What a batch says as a whole: keys with a JSON value each. What is got is a copy: set it again to change it."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __getitem__(self, key: str) -> typing.Any:
        found = _library.value("treadle_batch_meta", self._batch._use("meta"), _library.given("key", key))
        if found is None:
            raise KeyError(key)
        return json.loads(_library.text(found))

    def __setitem__(self, key: str, value: typing.Any) -> None:
        try:
            text = json.dumps(value)
        except (TypeError, ValueError) as error:
            raise errors.Refused(f"meta '{key}': {error}") from error
        self._set(key, text)

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._set(key, None)

    def _set(self, key: str, text: str | None) -> None:
        value = _library.given("meta", text) if text is not None else None
        _library.call("treadle_batch_set_meta", self._batch._use("meta"), _library.given("key", key), value)

    def __iter__(self) -> typing.Iterator[str]:
        keys: list[str] = []
        pointer = self._batch._use("meta")
        while (key := _library.value("treadle_batch_meta_key", pointer, len(keys))) is not None:
            keys.append(_library.text(key))
        return iter(keys)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"Meta({dict(self)})"


class Batch:
    """Named columns over `rows` rows. A column has a type, and in each row one value, `width` values, or as many as the
    row has. One thread at a time uses a batch. Its memory is the library's, or that of the arrays that were added, and
    stays until the last batch, column, array or tensor that shows it is gone.

    Raises Refused as the functions of treadle_batch.h do, State when the batch is closed."""

    def __init__(self, rows: int) -> None:
        self._object: _library.Object | None = _new("treadle_batch_create", rows)

    @classmethod
    def of(cls, columns: typing.Mapping[str, typing.Any], meta: typing.Mapping[str, typing.Any] | None = None) -> Batch:
        """A batch of columns, each as in add(): of as many rows as the first has. At least one."""
        if not columns:
            raise errors.Refused("a batch of no columns: Batch(rows) says how many rows it has")
        try:
            batch = cls(len(next(iter(columns.values()))))
        except TypeError as error:
            raise errors.Refused(f"column '{next(iter(columns))}': {error}") from error
        for name, values in columns.items():
            batch.add(name, values)
        batch.meta.update(meta or {})
        return batch

    @classmethod
    def _from(cls, object_: _library.Object) -> Batch:
        batch = cls.__new__(cls)
        batch._object = object_
        return batch

    def _use(self, what: str) -> ctypes.c_void_p:
        if self._object is None:
            raise errors.State(f"{what}: the batch is closed")
        return self._object.use(what)

    def _lent(self, what: str) -> ctypes.c_void_p:
        """For a call that runs functions of Python: the same memory, whatever they do to this batch meanwhile."""
        batch = Batch._from(_new("treadle_batch_slice", self._use(what), 0, len(self)))
        pointer = ctypes.c_void_p(batch._use(what).value)
        pointer.batch = batch  # type: ignore[attr-defined]  # which ends with the pointer
        return pointer

    def close(self) -> None:
        """Ends it. Columns, arrays and tensors of it stay."""
        self._object = None

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- Columns ----

    def __len__(self) -> int:
        return int(_library.value("treadle_batch_rows", self._use("len")))

    @property
    def columns(self) -> list[str]:
        """Names, in the order in which they were added."""
        pointer = self._use("columns")
        count = _library.value("treadle_batch_column_count", pointer)
        return [_columns.name_at(pointer, number) for number in range(count)]

    @property
    def meta(self) -> Meta:
        return Meta(self)

    def add(
        self,
        name: str,
        values: typing.Any,
        *,
        offsets: typing.Iterable[int] | None = None,
        type: str | None = None,  # noqa: A002
    ) -> None:
        """Adds a column:

        - a numpy array or torch tensor in host memory, [rows] or [rows, width], of int32, int64, float32, float64,
          bfloat16, uint8 or bool. It is not copied: who writes into it writes into the batch. It must not be resized.
        - the same with `offsets` [rows + 1]: [values], of which row r has offsets[r] up to offsets[r + 1]
        - a list with str, bytes, a number, or a list or array of numbers for each row. It is copied. `type` is one of
          "int32", "int64", "fp32", "fp64", "uint8", "bool", "text" and "bytes"; without it names with a fixed meaning
          have theirs, and otherwise whole numbers are int64, others fp64.

        Raises Refused for other types, memory that is strided, read-only or on another device, and other rows."""
        _columns.add(self._use("add"), len(self), name, values, offsets, type)

    def __setitem__(self, name: str, values: typing.Any) -> None:
        """As add(), which refuses a name that is there."""
        self.add(name, values)

    @typing.overload
    def __getitem__(self, what: str) -> Column: ...

    @typing.overload
    def __getitem__(self, what: slice) -> Batch: ...

    def __getitem__(self, what: str | slice) -> Column | Batch:
        """A column by its name; a batch of rows by a slice, which shares their memory if its step is 1. Raises KeyError
        if no column has the name."""
        if isinstance(what, str):
            if what not in self:
                raise KeyError(f"the batch has no column '{what}'; it has {', '.join(self.columns) or 'none'}")
            return Column(self.select(what)._object, len(self))  # type: ignore[arg-type]
        if not isinstance(what, slice):
            raise TypeError(f"a batch gives columns by name, and rows by slices and index(): not {what!r}")
        begin, end, step = what.indices(len(self))
        if step != 1:
            return self.index(range(begin, end, step))
        return self._made("treadle_batch_slice", begin, max(begin, end))

    def __delitem__(self, name: str) -> None:
        _library.call("treadle_batch_remove", self._use("remove"), _library.given("column", name))

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or "\0" in name:
            return False
        return bool(_library.value("treadle_batch_has", self._use("in"), _library.given("column", name)))

    def __iter__(self) -> typing.Iterator[str]:
        return iter(self.columns)

    def rename(self, name: str, to: str) -> None:
        """Gives a column another name."""
        _library.call(
            "treadle_batch_rename", self._use("rename"), _library.given("column", name), _library.given("column", to)
        )

    # ---- New batches ----

    def _made(self, function: str, *arguments: typing.Any) -> Batch:
        return Batch._from(_new(function, self._use(function), *arguments))

    def select(self, *names: str) -> Batch:
        """A batch of these columns, in this order, which shares their memory, and of all meta."""
        return self._made("treadle_batch_select", _texts(names), len(names))

    def index(self, rows: Rows) -> Batch:
        """A batch of rows by their numbers, in that order, or of those for which a mask is True."""
        given = _columns.listed(rows)
        if given and all(isinstance(row, bool) for row in given):
            mask = (ctypes.c_bool * len(given))(*given)
            return self._made("treadle_batch_index_mask", mask, len(given))
        return self._made("treadle_batch_index", _numbers("rows", given), len(given))

    def split(self, rows: int | Rows) -> list[Batch]:
        """Parts of these numbers of rows, one after the other, which share its memory; or of `rows` rows each, of which
        the last may have fewer."""
        if isinstance(rows, int):
            if rows < 1:
                raise errors.Refused(f"split: parts of {rows} rows; at least 1")
            return [self[at : at + rows] for at in range(0, len(self), rows)]
        given = _columns.listed(rows)
        return self._parts("treadle_batch_split", len(given), _numbers("rows", given))

    def chunk(self, parts: int) -> list[Batch]:
        """`parts` parts of equal size, one after the other, which share its memory."""
        return self._parts("treadle_batch_chunk", parts)

    def _parts(self, function: str, count: int, *before: typing.Any) -> list[Batch]:
        what = function.removeprefix("treadle_batch_")
        if count < 1:
            raise errors.Refused(f"{what}: {count} parts; at least 1")
        pointers = (ctypes.c_void_p * count)()
        _call(function, self._use(what), *before, count, pointers)
        return [Batch._from(_object(ctypes.c_void_p(pointer))) for pointer in pointers]

    @staticmethod
    def concat(batches: typing.Iterable[Batch]) -> Batch:
        """A batch of the rows of all. Columns are those of the first, and all must have them."""
        given = list(batches)
        used = [batch._use("concat") for batch in given]
        pointers = (ctypes.c_void_p * len(used))(*[pointer.value for pointer in used])
        return Batch._from(_new("treadle_batch_concat", pointers, len(used)))

    def repeat(self, times: int, interleaved: bool = True) -> Batch:
        """A batch of each row `times` times: rows a a b b, or not interleaved a b a b."""
        return self._made("treadle_batch_repeat", times, interleaved)

    def sample_level_repeat(self, counts: Rows) -> Batch:
        """A batch of row r counts[r] times, one after the other; 0 leaves a row out."""
        given = _columns.listed(counts)
        return self._made("treadle_batch_sample_level_repeat", _numbers("counts", given), len(given))

    def fold(self, rows: int) -> Batch:
        """A batch of `rows` rows, each of which has the values of as many neighbours, so that they stay together while
        rows are reordered; unfold() undoes it. Values are shared. A ragged column NAME, of texts too, has in
        NAME.counts how many values each of the neighbours has."""
        return self._made("treadle_batch_fold", rows)

    def unfold(self, times: int) -> Batch:
        """A batch in which each folded row becomes `times` rows again. Values are shared."""
        return self._made("treadle_batch_unfold", times)

    def unfold_columns(self, times: int, *names: str) -> Batch:
        """A batch in which each row becomes `times` rows: the values of these columns are divided among them and
        shared, those of other columns repeated."""
        return self._made("treadle_batch_unfold_columns", times, _texts(names), len(names))

    def pad_to_divisor(self, divisor: int) -> tuple[Batch, int]:
        """A batch with more rows, so that `divisor` divides their number, and how many more: its rows 0, 1, 2 and so
        on, over and over. Shares its memory if none is missing."""
        pointer, padding = ctypes.c_void_p(), ctypes.c_int64()
        used = self._use("pad_to_divisor")
        _call("treadle_batch_pad_to_divisor", used, divisor, ctypes.byref(pointer), ctypes.byref(padding))
        return Batch._from(_object(pointer)), padding.value

    def unpad(self, padding: int) -> Batch:
        """A batch without its last `padding` rows, which shares its memory."""
        return self._made("treadle_batch_unpad", padding)

    def iterate(self, rows: int, epochs: int = 1, seed: int = 0, shuffled: bool = True) -> typing.Iterator[Batch]:
        """Mini batches of `rows` rows, which must divide the batch, `epochs` times. Shuffled rows have another order in
        each epoch, a function of seed, epoch and number of rows alone; otherwise mini batches share memory. The batch
        may be closed before the last one."""
        if not 0 <= seed < 2**64:
            raise errors.Refused(f"iterate: a seed of {seed}; 0 to 2**64 - 1")
        pointer = ctypes.c_void_p()
        used = self._use("iterate")
        _call("treadle_batch_iterate_open", used, rows, epochs, shuffled, seed, ctypes.byref(pointer))
        return _mini_batches(_library.Object(pointer, "treadle_batch_iterate_close"))

    # ---- Changes ----

    def pop(self, *names: str, meta: typing.Iterable[str] = ()) -> Batch:
        """Takes columns and keys of its meta out of the batch: a batch of these, with their memory."""
        keys = tuple(meta)
        return self._made("treadle_batch_pop", _texts(names), len(names), _texts(keys), len(keys))

    def union(self, other: Batch) -> None:
        """Adds the columns and the meta of another batch, and shares its memory. What both have must be equal."""
        _library.call("treadle_batch_union", self._use("union"), other._use("union"))

    def reorder(self, order: Rows) -> None:
        """Puts row order[r] at place r. Columns get new memory."""
        given = _columns.listed(order)
        _library.call("treadle_batch_reorder", self._use("reorder"), _numbers("order", given), len(given))

    # ---- Files ----

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes it as a folder, which is there when it is whole."""
        _library.call("treadle_batch_save", self._use("save"), _library.given("folder", folder))

    @staticmethod
    def load(folder: str | os.PathLike[str]) -> Batch:
        """Reads such a folder."""
        return Batch._from(_new("treadle_batch_load", _library.given("folder", folder)))

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("a treadle.Batch cannot be pickled: save() it in a folder, and load() it in the other process")

    def __repr__(self) -> str:
        if self._object is None:
            return "<treadle.Batch, closed>"
        columns = ", ".join(f"{name} {self[name].type}" for name in self.columns)
        return f"<treadle.Batch of {len(self)} rows: {columns or 'no columns'}>"


def _object(pointer: ctypes.c_void_p) -> _library.Object:
    return _library.Object(pointer, "treadle_batch_destroy")


def _call(function: str, *arguments: typing.Any) -> None:
    try:
        _library.call(function, *arguments)
    except ctypes.ArgumentError as error:
        raise errors.Refused(f"{function.removeprefix('treadle_batch_')}: {error}") from error


def _new(function: str, *arguments: typing.Any) -> _library.Object:
    """The batch that a function of the library makes."""
    pointer = ctypes.c_void_p()
    _call(function, *arguments, ctypes.byref(pointer))
    return _object(pointer)


def _mini_batches(iterator: _library.Object) -> typing.Iterator[Batch]:
    while True:
        pointer = ctypes.c_void_p()
        _library.call("treadle_batch_iterate_next", iterator.use("iterate"), ctypes.byref(pointer))
        if not pointer.value:
            return
        yield Batch._from(_object(pointer))


def _texts(names: typing.Sequence[str]) -> typing.Any:
    return (ctypes.c_char_p * len(names))(*[_library.given("column", name) for name in names])


def _numbers(what: str, numbers: list[typing.Any]) -> typing.Any:
    made = (ctypes.c_int64 * len(numbers))()
    for place, number in enumerate(numbers):
        if isinstance(number, bool) or not hasattr(number, "__index__") or not -(2**63) <= number.__index__() < 2**63:
            raise errors.Refused(f"{what}: place {place} has {number!r}, which is not a whole number of 64 bits")
        made[place] = number.__index__()
    return made
