"""Columns of a batch: their types, what goes into one, and views of what is in one."""

from __future__ import annotations

import array
import ctypes
import itertools
import math
import typing

from . import _abi, _dlpack, _library, _tensors, errors

if typing.TYPE_CHECKING:
    import numpy
    import torch  # type: ignore[import-not-found,unused-ignore]

    Array = numpy.ndarray[typing.Any, typing.Any]


class _Type(typing.NamedTuple):
    number: int  #: treadle_column_type
    word: str  #: as in batch.json
    code: str  #: of array.array; "": Python has no numbers of this type
    numpy: str  #: bf16 as uint16, which are its bits
    torch: str  #: and in DLPack; numpy has the same names, but for bf16
    nbytes: int


_TYPES = (
    _Type(_abi.TREADLE_COLUMN_INT32, "int32", "i", "int32", "int32", 4),
    _Type(_abi.TREADLE_COLUMN_INT64, "int64", "q", "int64", "int64", 8),
    _Type(_abi.TREADLE_COLUMN_FP32, "fp32", "f", "float32", "float32", 4),
    _Type(_abi.TREADLE_COLUMN_FP64, "fp64", "d", "float64", "float64", 8),
    _Type(_abi.TREADLE_COLUMN_BF16, "bf16", "", "uint16", "bfloat16", 2),
    _Type(_abi.TREADLE_COLUMN_UINT8, "uint8", "B", "uint8", "uint8", 1),
    _Type(_abi.TREADLE_COLUMN_BOOL, "bool", "B", "bool", "bool", 1),
    _Type(_abi.TREADLE_COLUMN_TEXT, "text", "", "", "", 1),
    _Type(_abi.TREADLE_COLUMN_BYTES, "bytes", "B", "", "", 1),
)
_BY_NUMBER = {type_.number: type_ for type_ in _TYPES}
_BY_WORD = {type_.word: type_ for type_ in _TYPES}
_BY_DTYPE = {type_.torch: type_ for type_ in _TYPES if type_.torch}

#: Types of names with a fixed meaning (treadle_batch.h), for numbers of Python's, which do not say theirs.
_FIXED = {
    **dict.fromkeys(("prompt_ids", "ids"), "int32"),
    **dict.fromkeys(("rollout_log_probs", "old_log_probs", "ref_log_probs"), "fp32"),
    **dict.fromkeys(("entropies", "values", "returns", "token_rewards"), "fp32"),
    **dict.fromkeys(("advantages", "advantage", "reward", "score"), "fp64"),
    "mask": "uint8",
    **dict.fromkeys(("version", "group"), "int64"),
}

#: Of these, names whose rows have any number of values.
_RAGGED = frozenset(name for name, word in _FIXED.items() if word != "int64") - {"advantage", "reward", "score"}

# ---- Memory of the caller's --------------------------------------------------------------------------------

_kept: dict[int, object] = {}  # by the context of its column
_contexts = itertools.count(1)
_RELEASE: typing.Any = _library.field(_abi.treadle_column, "release")


def _drop(context: int, kept: dict[int, object] = _kept) -> None:  # also at the end of Python, when _kept is None
    kept.pop(context, None)


_release = _RELEASE(_drop)


def listed(values: typing.Any) -> list[typing.Any]:
    """With Python's own numbers, also of an array or a tensor."""
    return list(values.tolist() if hasattr(values, "tolist") else values)


def add(
    batch: ctypes.c_void_p, rows: int, name: str, values: typing.Any, offsets: typing.Any, word: str | None
) -> None:
    """Adds a column. Arrays and tensors stay where they are; what else there is of Python's is copied."""
    if word is not None and word not in _BY_WORD:
        raise errors.Refused(f"column '{name}': type '{word}'; types are {', '.join(_BY_WORD)}")
    if hasattr(values, "data_ptr") or hasattr(values, "__array_interface__"):
        _add_array(batch, rows, name, values, offsets, word)
    elif offsets is not None:
        raise errors.Refused(f"column '{name}': offsets go with an array or a tensor of all values")
    else:
        _add_items(batch, rows, name, values, word)


def _add_array(
    batch: ctypes.c_void_p, rows: int, name: str, values: typing.Any, offsets: typing.Any, word: str | None
) -> None:
    words = f"column '{name}'"
    if _tensors.local(values) is not values:
        raise errors.Refused(f"{words} is a DTensor: give its full_tensor(), or the rows of this rank as to_local()")
    given = _tensors.given(name, values, words)
    type_ = _BY_DTYPE.get(given.dtype)
    if type_ is None:
        raise errors.Refused(
            f"{words} is an array of {given.dtype}; it must be one of {', '.join(_BY_DTYPE)}, and texts a list of str"
        )
    if word is not None and word != type_.word:
        raise errors.Refused(f"{words} is an array of {given.dtype}, and its type is to be {word}: convert it")
    if not given.writable:
        raise errors.Refused(f"{words} is read-only, and batches are written in place: give a copy")
    where = _offsets(words, rows, given.shape, offsets) if offsets is not None else None
    if where is None and (not 1 <= len(given.shape) <= 2 or given.shape[0] != rows):
        raise errors.Refused(
            f"{words} has shape {list(given.shape)}; it must be [{rows}] or [{rows}, width], or have offsets"
        )
    width = 0 if where is not None else math.prod(given.shape[1:])
    if where is None and width < 1:
        raise errors.Refused(f"{words} has shape {list(given.shape)}; a row must have a value at least")
    if not given.nbytes:
        return _add(batch, name, type_, width, where, None)
    context = next(_contexts)
    _kept[context] = (values, where)
    try:
        _add(batch, name, type_, width, where, given.address, _release, context)
    except errors.Error:  # the library has not taken it
        _kept.pop(context, None)
        raise


def add_bits(batch: ctypes.c_void_p, name: str, word: str, width: int, values: Array, offsets: Array | None) -> None:
    """Adds a column with a copy of an array's bytes, which are values of this type. offsets: of a ragged column."""
    where = array.array("q", offsets.tolist()) if offsets is not None else None
    _add(batch, name, _BY_WORD[word], width, where, values.ctypes.data if values.size else None)


def _offsets(words: str, rows: int, shape: tuple[int, ...], offsets: typing.Any) -> typing.Any:
    if len(shape) != 1:
        raise errors.Refused(f"{words} has shape {list(shape)}; with offsets it must be [values]")
    try:
        numbers = array.array("q", listed(offsets))
    except (TypeError, ValueError, OverflowError) as error:
        raise errors.Refused(f"{words}: offsets must be whole numbers: {error}") from error
    if len(numbers) != rows + 1:
        raise errors.Refused(f"{words} has {len(numbers)} offsets; {rows} rows have {rows + 1}")
    if numbers[-1] > shape[0]:
        raise errors.Refused(f"{words}: the last offset is {numbers[-1]}; there are {shape[0]} values")
    return numbers


def _add(
    batch: ctypes.c_void_p,
    name: str,
    type_: _Type,
    width: int,
    offsets: typing.Any,
    address: int | None,
    release: typing.Any = None,
    context: int = 0,
) -> None:
    column = _library.sized(_abi.treadle_column, name=_library.given("column", name), type=type_.number, width=width)
    if offsets is not None:
        column.offsets = ctypes.cast(offsets.buffer_info()[0], ctypes.POINTER(ctypes.c_int64))
    column.data = address or None
    if release is not None:
        column.release, column.context = release, context
    _library.call("treadle_batch_add", batch, ctypes.byref(column))


# ---- Values of Python's ------------------------------------------------------------------------------------


def _add_items(batch: ctypes.c_void_p, rows: int, name: str, values: typing.Any, word: str | None) -> None:
    """A text, bytes, a number or a row of numbers each."""
    if isinstance(values, (str, bytes)):
        raise errors.Refused(f"column '{name}' is one {type(values).__name__}; it must be a list of one for each row")
    items = list(values)
    if len(items) != rows:
        raise errors.Refused(f"column '{name}' has {len(items)} rows; the batch has {rows}")
    first = items[0] if items else None
    if word == "text" or (word is None and (isinstance(first, str) or (not items and name not in _FIXED))):
        _add_texts(batch, name, items)
    elif word == "bytes" or (word is None and isinstance(first, (bytes, bytearray, memoryview))):
        _add_ragged(batch, name, _BY_WORD["bytes"], items)
    else:
        type_ = _BY_WORD[word or _FIXED.get(name) or _guess(name, items)]
        if not type_.code:
            raise errors.Refused(f"column '{name}': Python has no numbers of {type_.word}: give a tensor of torch")
        if not hasattr(first, "__len__") and not (not items and name in _RAGGED):
            _add_numbers(batch, name, type_, items)
        else:
            _add_ragged(batch, name, type_, items)


def _guess(name: str, items: list[typing.Any]) -> str:
    """Of the first number."""
    number = next((item for item in items if not hasattr(item, "__len__") or len(item)), None)
    if number is not None and hasattr(number, "__len__"):
        dtype = str(getattr(number, "dtype", "")).removeprefix("torch.")
        if dtype in _BY_DTYPE:
            return _BY_DTYPE[dtype].word
        number = number[0]
    kinds = ((bool, "bool"), (int, "int64"), (float, "fp64"))
    found = next((word for kind, word in kinds if isinstance(number, kind)), "")
    if not found:
        raise errors.Refused(
            f"column '{name}' has {type(number).__name__ if number is not None else 'empty rows'}; give str, bytes, "
            f"numbers, lists of numbers, or say the type"
        )
    return found


def _packed(name: str, type_: _Type, row: int, values: typing.Any) -> typing.Any:
    try:
        if type_.word == "bool" and not all(value in (False, True) for value in values):
            raise ValueError("truth values are False and True")
        return array.array(type_.code, values)
    except (TypeError, ValueError, OverflowError) as error:
        where = f" row {row}:" if row >= 0 else ""
        raise errors.Refused(f"column '{name}':{where} no {type_.word}: {error}") from error


def _address(values: typing.Any) -> int | None:
    return int(values.buffer_info()[0]) if len(values) else None


def _add_numbers(batch: ctypes.c_void_p, name: str, type_: _Type, items: list[typing.Any]) -> None:
    try:
        packed = _packed(name, type_, -1, items)
    except errors.Refused:
        for row, item in enumerate(items):  # says which
            _packed(name, type_, row, [item])
        raise
    _add(batch, name, type_, 1, None, _address(packed))


def _add_ragged(batch: ctypes.c_void_p, name: str, type_: _Type, items: list[typing.Any]) -> None:
    values, offsets = array.array(type_.code), array.array("q", [0])
    for row, item in enumerate(items):
        if type_.word == "bytes" and not isinstance(item, (bytes, bytearray, memoryview)):
            raise errors.Refused(f"column '{name}': row {row} is {type(item).__name__}, and no bytes")
        values.extend(_packed(name, type_, row, listed(item)))
        offsets.append(len(values))
    _add(batch, name, type_, 0, offsets, _address(values))


def _add_texts(batch: ctypes.c_void_p, name: str, items: list[typing.Any]) -> None:
    for row, item in enumerate(items):
        if not isinstance(item, str):
            raise errors.Refused(f"column '{name}': row {row} is {type(item).__name__}, and no str")
    texts = [item.encode("utf-8", "surrogateescape") for item in items]
    counts = (ctypes.c_size_t * len(texts))(*map(len, texts))
    _library.call(
        "treadle_batch_add_texts",
        batch,
        _library.given("column", name),
        (ctypes.c_char_p * len(texts))(*texts),
        counts,
    )


def name_at(batch: ctypes.c_void_p, number: int) -> str:
    column = _library.sized(_abi.treadle_column)
    _library.call("treadle_batch_column_at", batch, number, ctypes.byref(column))
    return _library.text(column.name)


# ---- Views -------------------------------------------------------------------------------------------------


class Column(typing.Sequence[typing.Any]):
    """A column of a batch, as a sequence of its rows: str, bytes, numbers, or numpy arrays, which show its memory.

    It and all that is made of it keep the memory, also when the batch has removed the column or is closed. Who writes
    into it writes into all batches that share the column."""

    __slots__ = ("name", "type", "width", "_object", "_rows", "_type", "_address", "_given")

    def __init__(self, object_: _library.Object, rows: int) -> None:
        """`object_`: a batch that has this column alone."""
        column = _library.sized(_abi.treadle_column)
        _library.call("treadle_batch_column_at", object_.use("column"), 0, ctypes.byref(column))
        self._object, self._rows, self._given = object_, rows, column.offsets
        self._type = _BY_NUMBER[column.type]
        self.name = _library.text(column.name)
        self.type = self._type.word  #: "int32", "int64", "fp32", "fp64", "bf16", "uint8", "bool", "text" or "bytes"
        self.width: int | None = column.width if not column.offsets else None  #: values a row; None: ragged
        self._address = (column.data or 0) + self._start(0) * self._type.nbytes

    def _start(self, row: int) -> int:
        return int(self._given[row]) if self._given else (self.width or 0) * row

    @property
    def offsets(self) -> Array:
        """Where each row begins in numpy() and torch(), and where the last one ends: int64 [rows + 1], from 0."""
        import numpy

        if not self._given:
            return numpy.arange(self._rows + 1, dtype=numpy.int64) * (self.width or 0)
        shown: Array = numpy.ctypeslib.as_array(self._given, (self._rows + 1,))
        moved: Array = shown - shown[0]
        return moved

    @property
    def shape(self) -> tuple[int, ...]:
        """Of numpy() and torch(): [rows], [rows, width], or [values] of a ragged column."""
        if self.width is None:
            return (self._start(self._rows) - self._start(0),)
        return (self._rows,) if self.width == 1 else (self._rows, self.width)

    def _buffer(self, first: int, count: int) -> typing.Any:
        """Values as a buffer of Python's that keeps the memory."""
        size = self._type.nbytes
        buffer: typing.Any = (ctypes.c_uint8 * (count * size)).from_address(self._address + first * size)
        buffer._owner = self._object
        return buffer

    def _need_numbers(self, what: str) -> None:
        if not self._type.torch:
            raise errors.Refused(f"{what}: column '{self.name}' has {self.type}: list(column) gives its rows")

    def numpy(self) -> Array:
        """Its values as a numpy array on this memory, bf16 as uint16, which are its bits. Raises Refused for text and
        bytes."""
        self._need_numbers("numpy")
        return self._shown(0, math.prod(self.shape)).reshape(self.shape)

    def _shown(self, first: int, count: int) -> Array:
        import numpy

        kind = numpy.dtype(self._type.numpy)
        return numpy.frombuffer(self._buffer(first, count), kind) if count else numpy.empty(0, kind)

    def torch(self) -> torch.Tensor:
        """Its values as a torch tensor on this memory. Raises Refused for text and bytes."""
        import torch

        self._need_numbers("torch")
        kind = getattr(torch, self._type.torch)
        count = math.prod(self.shape)
        if count == 0:
            return torch.empty(self.shape, dtype=kind)
        return torch.frombuffer(self._buffer(0, count), dtype=kind).view(self.shape)

    def __dlpack__(
        self,
        *,
        stream: typing.Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule for numpy.from_dlpack, torch.from_dlpack and others. Raises BufferError for text and bytes, a copy,
        a stream and another device."""
        if not self._type.torch or copy or stream is not None or (dl_device or (1, 0)) != (1, 0):
            raise BufferError(f"column '{self.name}', {self.type}: it gives numbers in host memory, as they are")
        return _dlpack.capsule(
            self._object, (1, 0), self._address, self.shape, self._type.torch, False, max_version
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: typing.Any) -> typing.Any:
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(self._rows))]
        number = row.__index__()
        number += self._rows if number < 0 else 0
        if not 0 <= number < self._rows:
            raise IndexError(f"column '{self.name}': row {row}; there are {self._rows}")
        first = self._start(number) - self._start(0)
        count = self._start(number + 1) - self._start(number)
        if self._type.torch:
            values = self._shown(first, count)
            return values[0].item() if self.width == 1 else values
        found = bytes(self._buffer(first, count))
        return found.decode("utf-8", "surrogateescape") if self.type == "text" else found

    def tolist(self) -> list[typing.Any]:
        """Its rows as str, bytes, numbers or lists of numbers; bf16 as their values."""
        values: list[typing.Any]
        if self.type == "bf16":
            values = self.torch().tolist()
        elif self._type.torch:
            values = self.numpy().tolist()
        else:
            return list(self)
        if self.width is not None:
            return values
        return [values[a:b] for a, b in itertools.pairwise(self.offsets.tolist())]

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("a treadle.Column cannot be pickled: give tolist(), or numpy().copy() and offsets")

    def __repr__(self) -> str:
        shape = "ragged" if self.width is None else list(self.shape)
        return f"<treadle.Column '{self.name}' {self.type} {shape}, {self._rows} rows>"
