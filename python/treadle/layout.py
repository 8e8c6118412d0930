"""Layouts: which part of a model each rank holds, and where."""

from __future__ import annotations

import ctypes
import typing

from . import _abi, _library, _tensors, errors
from ._nodes import node_of as nodes_of
from .group import Group
from .model import DTYPES, Model

_RANK_MAPS = {"contiguous": _abi.TREADLE_CONTIGUOUS, "strided": _abi.TREADLE_STRIDED, "best": _abi.TREADLE_BEST}
_BY_DTYPE = {name: number for number, name in DTYPES.items()}


class Storage(typing.NamedTuple):
    """One tensor as a layout keeps it on a rank."""

    name: str  #: the engine's own name on that rank
    chunk: int  #: the virtual pipeline stage, else 0
    shape: tuple[int, ...]
    dtype: str  #: torch's name
    derived: bool  #: made after loading, and no parameter
    offset_bytes: int  #: in the rank's window
    bytes: int


class Run(typing.NamedTuple):
    """Elements local_start + i of a storage tensor (row-major) are elements start + i * stride of `tensor`, plus `add`,
    for i < elems."""

    local_start: int
    tensor: str | None  #: Hugging Face's name; None: padding, zeros or minus infinity
    start: int
    stride: int
    elems: int
    add: int


class Piece(typing.NamedTuple):
    """A box of a tensor in a storage tensor of a rank; offset and strides in elements of the storage tensor, whose
    row-major shape is storage_shape."""

    rank: int
    storage: str
    storage_shape: tuple[int, ...]
    tensor: str
    start: tuple[int, ...]
    size: tuple[int, ...]
    offset: int
    stride: tuple[int, ...]
    dtype: str | None = None  #: torch's name; None: the tensor's own


class Source(typing.Protocol):
    """A source of vLLM 0.33: all parameters and how they are cut, and this rank's shards."""

    @property
    def metadata(self) -> typing.Sequence[typing.Any]: ...

    def iter_local(self) -> typing.Iterator[tuple[str, typing.Any]]: ...


def storage_of(info: _abi.treadle_storage_info) -> Storage:
    return Storage(
        _library.text(info.name),
        info.chunk,
        tuple(info.shape[: info.ndim]),
        DTYPES[info.dtype],
        info.derived,
        info.offset_bytes,
        info.bytes,
    )


def key_of(storage: Storage) -> typing.Any:
    """By what a window has it: its name; in later chunks (chunk, name)."""
    return (storage.chunk, storage.name) if storage.chunk else storage.name


class Layout:
    """The layout `text` of a model on `ranks` ranks: "megatron:tp=4,pp=2", "fsdp2:dp=8", "vllm:tp=2" (docs/layouts.md).

    rank_map: which rank takes which place: "contiguous", "strided" or "best"; the last two need `train`, the training
    layout. nodes: as in plan(), which ranks share a node (machine): "best" counts bytes between nodes first. Raises
    Refused with the rule and the numbers."""

    _object: _library.Object
    model: Model
    _rename: _tensors.Rename | None = None  # of the tensors that it was made of
    _description: str = ""  # of a layout of placements

    def __init__(
        self,
        model: Model,
        text: str,
        ranks: int,
        *,
        rank_map: str = "contiguous",
        train: Layout | None = None,
        nodes: int | typing.Sequence[int] | None = None,
    ) -> None:
        if rank_map not in _RANK_MAPS:
            raise errors.Refused(f"rank_map is '{rank_map}', and must be one of {', '.join(_RANK_MAPS)}")
        if rank_map != "contiguous" and train is None:
            raise errors.Refused(f"rank_map is '{rank_map}', and needs train=, the layout in which the ranks train")
        options = _library.sized(
            _abi.treadle_layout_options, rank_map=_RANK_MAPS[rank_map], train=train._use() if train else None
        )
        node_of = nodes_of(nodes, ranks, "layout")
        if node_of is not None:
            options.node_of = (ctypes.c_int32 * ranks)(*node_of)
        pointer = ctypes.c_void_p()
        _library.call(
            "treadle_layout_create",
            model._use(),
            _library.given("the layout", text),
            ranks,
            ctypes.byref(options),
            ctypes.byref(pointer),
        )
        self._take(model, pointer)

    def _take(self, model: Model, pointer: ctypes.c_void_p) -> None:
        self._object = _library.Object(pointer, "treadle_layout_destroy", model._object)
        self.model = model

    @classmethod
    def pieces(cls, model: Model, ranks: int, pieces: typing.Iterable[Piece | tuple[typing.Any, ...]]) -> Layout:
        """A layout that no rule describes, from the pieces of all ranks (Piece, or tuples of its fields). What no piece
        of a storage tensor covers is zeros. Raises Refused: pieces of a rank that overlap, and elements that no rank
        has."""
        given = [Piece(*piece) for piece in pieces]
        array = (_abi.treadle_explicit_piece * len(given))()
        for to, piece in zip(array, given):
            to.rank, to.offset = piece.rank, piece.offset
            to.storage, to.tensor = (
                _library.given("the name of a storage", piece.storage),
                _library.given("the name of a tensor", piece.tensor),
            )
            to.storage_ndim = len(piece.storage_shape)
            if piece.dtype is not None and piece.dtype not in _BY_DTYPE:
                raise errors.Refused(
                    f"pieces: '{piece.storage}' of rank {piece.rank}: "
                    f"dtype '{piece.dtype}' is none of {', '.join(_BY_DTYPE)}"
                )
            to.dtype = _BY_DTYPE[piece.dtype] if piece.dtype is not None else _abi.TREADLE_DTYPE_NONE
            for name in ("storage_shape", "start", "size", "stride"):
                numbers = getattr(piece, name)
                if not 0 < len(numbers) <= 4:
                    raise errors.Refused(
                        f"pieces: '{piece.storage}' of rank {piece.rank}: {name} has {len(numbers)} "
                        "dimensions; it must have 1 to 4"
                    )
                for dim, number in enumerate(numbers):
                    getattr(to, name)[dim] = number
        pointer = ctypes.c_void_p()
        _library.call("treadle_layout_from_pieces", model._use(), ranks, array, len(given), ctypes.byref(pointer))
        layout = cls.__new__(cls)
        layout._take(model, pointer)
        return layout

    @classmethod
    def of(
        cls,
        model: Model,
        named_tensors: _tensors.Named | Source | None,
        group: Group,
        rename: _tensors.Rename | None = None,
    ) -> Layout:
        """The layout that live tensors have: DTensors by their mesh and placements, other tensors as replicated on all
        ranks that give tensors.

        named_tensors: the module itself (its parameters and persistent buffers: the routing bias of an MoE is a
            buffer), a state dict, `net.named_parameters()`, or pairs; names are the model's, behind what FSDP, compile
            and DDP put into them, or as `rename` says (a dict or a function; None leaves a tensor out). None: this rank
            has no tensors, and takes what the others say. Shards that are declared: a WeightSource of vLLM 0.33
            (metadata with owners, mesh_shape and placements, and iter_local), whose owners are ranks of this group, or
            of torch's where it was made by Group.torch; or triples of name, local tensor and verl's ShardSpec.
        Raises Refused: names that the model does not have (the nearest is named), Partial placements, a mesh without
        this rank, ranks that describe different layouts, a local tensor of another size than was declared. Collective;
        no tensor moves."""
        from . import _declared, _placements

        layout = cls.__new__(cls)
        description, named = _placements.describe(named_tensors, group, rename)
        try:
            layout._place(model, group.size, description)
        except errors.Refused as error:
            if "no rank holds" not in str(error) or _tensors.is_module(named_tensors):
                raise
            raise errors.Refused(
                f"{error}; it may be a buffer of the module, which named_parameters() leaves "
                "out: pass the module itself"
            ) from None
        layout._rename = rename
        _placements.tell(group, _declared.refusal(named, layout.storages(group.rank), group.rank))
        return layout

    @classmethod
    def read(cls, model: Model, description: str, ranks: int) -> Layout:
        """The layout whose `description` this is, made in any process: what Layout.of found can be sent, kept and read
        back. Raises Refused."""
        from . import _placements

        layout = cls.__new__(cls)
        layout._place(model, ranks, _placements.Description.read(description))
        return layout

    def _place(self, model: Model, ranks: int, description: typing.Any) -> None:
        from . import _placements

        self._take(model, _placements.make(model, ranks, description))
        self._description = description.text()

    @property
    def description(self) -> str:
        """Meshes and placements of a layout that Layout.of made, as one line of JSON; as a file the command reads it
        (placements:@file). Of other layouts: the text."""
        return self._description or self.text

    def _use(self) -> ctypes.c_void_p:
        return self._object.use("Layout")

    @property
    def text(self) -> str:
        """The normal form of its text; made anew from it, it is the same layout."""
        return _library.text(_library.value("treadle_layout_text", self._use()))

    @property
    def ranks(self) -> int:
        """On how many ranks it is."""
        return int(_library.value("treadle_layout_ranks", self._use()))

    @property
    def rank_map(self) -> str:
        """The rank map; after "best" the one that was chosen."""
        return _library.text(_library.value("treadle_layout_rank_map", self._use()))

    def window_bytes(self, rank: int) -> int:
        """Bytes of a rank's window."""
        self._check(rank)
        return int(_library.value("treadle_layout_window_bytes", self._use(), rank))

    def storages(self, rank: int) -> list[Storage]:
        """The storage tensors of a rank, in the order of its window."""
        self._check(rank)
        made = []
        info = _library.sized(_abi.treadle_storage_info)
        for number in range(_library.value("treadle_layout_storage_count", self._use(), rank)):
            _library.call("treadle_layout_storage", self._use(), rank, number, ctypes.byref(info))
            made.append(storage_of(info))
        return made

    def runs(self, rank: int, name: str | tuple[int, str]) -> list[Run]:
        """Where each element of a storage tensor comes from, in order, each element once. name: of the storage tensor,
        or (chunk, name). Raises KeyError for one that the rank does not have, Refused for a rank that there is not."""
        self._check(rank)
        number = self._find(rank, name)
        runs, count = ctypes.POINTER(_abi.treadle_run)(), ctypes.c_size_t()
        _library.call("treadle_layout_runs", self._use(), rank, number, ctypes.byref(runs), ctypes.byref(count))
        try:
            tensors = self.model.tensors
            return [
                Run(r.local_start, tensors[r.tensor].name if r.tensor >= 0 else None, r.start, r.stride, r.count, r.add)
                for r in runs[: count.value]
            ]
        finally:
            _library.free(runs)

    def _find(self, rank: int, name: typing.Any) -> int:
        if isinstance(name, str):
            number = int(
                _library.value("treadle_layout_find", self._use(), rank, _library.given("the name of a storage", name))
            )
        else:
            number = next(
                (i for i, storage in enumerate(self.storages(rank)) if (storage.chunk, storage.name) == tuple(name)), -1
            )
        if number < 0:
            raise KeyError(f"rank {rank} of {self.text} has no storage tensor {name!r}")
        return number

    def _check(self, rank: int) -> None:
        if not 0 <= rank < self.ranks:
            raise errors.Refused(f"rank {rank} is none of the {self.ranks} of {self.text}")

    def __repr__(self) -> str:
        return f"<treadle.Layout {self.text} on {self.ranks} ranks>"
