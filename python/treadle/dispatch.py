"""Which worker gets which rows of a call, and what comes back: the pure functions of treadle_control.h.

    meshes = treadle.Meshes(8)
    for worker in range(8):
        meshes.register("actor", worker, dp_rank=worker // 4, collects=worker % 4 == 0)
    call = treadle.Dispatch("ND_MESH", [batch], 8, meshes=meshes, mesh="actor", auto_padding=True)
    results = [method(*arguments) for arguments in call.divided()]
    back = call.collect(results)

A worker is whatever the caller takes for one: a process, an actor, a thread."""

from __future__ import annotations

import ctypes
import typing

from . import _abi, _library, errors
from .batch import Batch

KINDS = {
    name: getattr(_abi, f"TREADLE_DISPATCH_{name}")
    for name in (
        "ALL_TO_ALL",
        "ONE_TO_ALL",
        "DP_COMPUTE",
        "DP_COMPUTE_PROTO",
        "DP_COMPUTE_PROTO_WITH_FUNC",
        "DP_COMPUTE_METRIC",
        "DIRECT_ROLLOUT_METHOD",
        "ND_MESH",
        "RANK_ZERO",
    )
}
EXECUTES = {"ALL": _abi.TREADLE_EXECUTE_ALL, "RANK_ZERO": _abi.TREADLE_EXECUTE_RANK_ZERO}


class Meshes:
    """The meshes of a group of workers, by name. In a mesh each worker has a dp rank: workers with the same one get the
    same rows, and one of them is collected from."""

    def __init__(self, workers: int) -> None:
        pointer = ctypes.c_void_p()
        _library.call("treadle_meshes_create", _int32("workers", workers), ctypes.byref(pointer))
        self._object = _library.Object(pointer, "treadle_meshes_destroy")

    def register(self, name: str, worker: int, dp_rank: int, collects: bool) -> None:
        """Says what a worker has in a mesh; the first worker makes the mesh. Raises Refused if it is registered."""
        given = _library.given("mesh", name)
        numbers = _int32("worker", worker), _int32("dp_rank", dp_rank)
        _library.call("treadle_meshes_register", self._object.use("register"), given, *numbers, collects)

    def dp_size(self, name: str) -> int:
        """The number of dp ranks of a mesh. Raises Refused if not all workers are registered in it, or if dp ranks have
        a gap, or are not collected from exactly once."""
        size = ctypes.c_int32()
        given = _library.given("mesh", name)
        _library.call("treadle_meshes_dp_size", self._object.use("dp_size"), given, ctypes.byref(size))
        return size.value


class Rows(typing.NamedTuple):
    """Stands for rows that are not here, or are no treadle.Batch: a call divides them by their number alone, and each
    worker gets the range of its rows, counted with padding."""

    rows: int


class DispatchShare(typing.NamedTuple):
    """What a worker has to do with a call."""

    rows: range  # that it gets of what is cut, counted with padding, which stands after all others
    padding: int  # how many of them are padding: the last ones
    whole: bool  # it gets each argument whole; rows is empty
    runs: bool  # it runs the method
    collected: bool  # its result comes back


class Dispatch:
    """How a call is divided among `workers` workers: a function of the kind of dispatch and the lengths of arguments.

    kind: "ALL_TO_ALL", "ONE_TO_ALL", "DP_COMPUTE", "DP_COMPUTE_PROTO", "DP_COMPUTE_PROTO_WITH_FUNC",
        "DP_COMPUTE_METRIC" or "ND_MESH", as treadle_control.h has them (and "DIRECT_ROLLOUT_METHOD" and "RANK_ZERO",
        which are refused). arguments: batches, Rows, lists and tuples, functions, and anything else, which goes whole
        to each worker. execute: "ALL", or "RANK_ZERO", worker 0 alone. meshes, mesh: of ND_MESH.
    auto_padding: rows that do not divide are filled up with the last row, or with pad_with_first the first.

    rows, padding, chunks: of batches that are cut. shares: of each worker. Raises Refused, with the field's words."""

    def __init__(
        self,
        kind: str,
        arguments: typing.Sequence[typing.Any],
        workers: int,
        *,
        execute: str = "ALL",
        meshes: Meshes | None = None,
        mesh: str | None = None,
        auto_padding: bool = False,
        pad_with_first: bool = False,
    ) -> None:
        self._arguments = tuple(arguments)
        described = (_abi.treadle_dispatch_argument * max(1, len(self._arguments)))()
        for number, argument in enumerate(self._arguments):
            described[number].kind, described[number].length = _described(argument)
        spec = _library.sized(
            _abi.treadle_dispatch_spec,
            kind=_named("kind", KINDS, kind),
            execute=_named("execute", EXECUTES, execute),
            workers=workers,
            arguments=described,
            argument_count=len(self._arguments),
            meshes=meshes._object.use("meshes") if meshes is not None else None,
            mesh=_library.given("mesh", mesh) if mesh is not None else None,
            auto_padding=auto_padding,
            pad_with_first=pad_with_first,
        )
        pointer = ctypes.c_void_p()
        _library.call("treadle_dispatch_create", ctypes.byref(spec), ctypes.byref(pointer))
        self._object = _library.Object(pointer, "treadle_dispatch_destroy")
        info = _library.sized(_abi.treadle_dispatch_info)
        _library.call("treadle_dispatch_get_info", self._object.use("dispatch"), ctypes.byref(info))
        self.workers: int = info.workers
        self.rows: int = info.rows
        self.padding: int = info.padding
        self.chunks: int = info.chunks
        self.list: bool = info.list
        self.shares = [self._share(worker) for worker in range(self.workers)]

    def _share(self, worker: int) -> DispatchShare:
        share = _abi.treadle_dispatch_share()
        _library.call("treadle_dispatch_get_share", self._object.use("share"), worker, ctypes.byref(share))
        rows = range(share.rows.first, share.rows.end)
        return DispatchShare(rows, share.padding, share.whole, share.runs, share.collected)

    def divided(self) -> list[tuple[typing.Any, ...] | None]:
        """The arguments of each worker; None for one that does not run the method. Parts of batches share their memory,
        but for those with padding."""
        columns = [self._divided(number) for number in range(len(self._arguments))]
        return [
            tuple(column[worker] for column in columns) if share.runs else None
            for worker, share in enumerate(self.shares)
        ]

    def _divided(self, number: int) -> list[typing.Any]:
        argument = self._arguments[number]
        if isinstance(argument, Batch):
            pointers = (ctypes.c_void_p * self.workers)()
            used = argument._use("dispatch")
            _library.call("treadle_dispatch_batch", self._object.use("dispatch"), number, used, pointers)
            return [_batch(pointer) for pointer in pointers]
        if isinstance(argument, Rows):
            return [share.rows for share in self.shares]
        if not isinstance(argument, (list, tuple)):
            return [argument] * self.workers
        return [argument if share.whole or not share.rows else argument[share.rows[0]] for share in self.shares]

    def collect(self, results: typing.Sequence[Batch | None]) -> Batch | list[Batch]:
        """What comes back, of one result a worker; those that are not collected from may be None: a list, which shares
        memory, or one batch, concatenated in the order of workers and without padding."""
        if len(results) != self.workers:
            raise errors.Refused(f"collect: {len(results)} results of {self.workers} workers")
        used = [result._use("collect") if result is not None else ctypes.c_void_p() for result in results]
        given = (ctypes.c_void_p * self.workers)(*[pointer.value for pointer in used])
        made, count = (ctypes.c_void_p * self.workers)(), ctypes.c_int32()
        _library.call("treadle_dispatch_collect", self._object.use("collect"), given, made, ctypes.byref(count))
        batches = [Batch._from(_library.Object(ctypes.c_void_p(made[i]), _DESTROY)) for i in range(count.value)]
        return batches if self.list else batches[0]


_DESTROY = "treadle_batch_destroy"


def _batch(pointer: int | None) -> Batch | None:
    return Batch._from(_library.Object(ctypes.c_void_p(pointer), _DESTROY)) if pointer else None


def _described(argument: object) -> tuple[int, int]:
    if isinstance(argument, Batch):
        return _abi.TREADLE_ARGUMENT_BATCH, len(argument)
    if isinstance(argument, Rows):
        return _abi.TREADLE_ARGUMENT_BATCH, argument.rows
    if isinstance(argument, (list, tuple)):
        return _abi.TREADLE_ARGUMENT_LIST, len(argument)
    return (_abi.TREADLE_ARGUMENT_FUNCTION if callable(argument) else _abi.TREADLE_ARGUMENT_VALUE), 0


def _named(what: str, names: dict[str, int], name: str) -> int:
    if name not in names:
        raise errors.Refused(f"{what} is {name!r}; it is one of {', '.join(names)}")
    return names[name]


def _int32(what: str, number: int) -> int:
    """ctypes cuts numbers: one that does not fit would be another one."""
    if not -(2**31) <= number < 2**31:
        raise errors.Refused(f"{what} is {number}, which no group has")
    return number
