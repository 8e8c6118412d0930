"""Live tensors as a layout: what DTensors say of themselves (mesh and placements), or what a source declares of its
shards, in the words of the C library.

One description of all tensors, which is the same on all ranks, and so is made without asking any of them; a hash of it
is compared. Its text is that of docs/layouts.md, placements.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import typing

from . import _abi, _declared, _library, _tensors, errors
from .group import Group
from .model import DTYPES, Model

_BY_DTYPE = {name: number for number, name in DTYPES.items()}
_MOST_DIMS = 8

#: [size of each dimension, the ranks in row-major order]
Mesh = tuple[tuple[int, ...], tuple[int, ...]]
#: One of a mesh dimension: type, dimension of the tensor, split factor
Placement = tuple[int, int, int]


class Placed(typing.NamedTuple):
    """A tensor of the description."""

    storage: str
    tensor: str
    dtype: str
    shape: tuple[int, ...]  #: of the whole tensor
    mesh: int  #: number in the list of meshes; -1: replicated on all ranks
    placements: tuple[Placement, ...]


class Description(typing.NamedTuple):
    meshes: list[Mesh]
    tensors: list[Placed]

    def text(self) -> str:
        """As JSON, one line: what placements:@file reads."""
        meshes = [{"shape": size, "ranks": ranks} for size, ranks in self.meshes]
        return json.dumps(
            {"meshes": meshes, "tensors": [_row(placed) for placed in self.tensors]}, separators=(",", ":")
        )

    @classmethod
    def read(cls, text: str) -> Description:
        """From such a text. Raises Refused for another."""
        try:
            given = json.loads(text)
            meshes = [(tuple(map(int, mesh["shape"])), tuple(map(int, mesh["ranks"]))) for mesh in given["meshes"]]
            return cls(meshes, [_placed(row) for row in given["tensors"]])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise errors.Refused(
                f"the text of a layout: {type(error).__name__}: {error}; it must be one that Layout.description gave"
            ) from error

    def only_on(self, ranks: typing.Sequence[int]) -> Description:
        """Tensors that were replicated on all ranks are so on these alone."""
        if all(placed.mesh >= 0 for placed in self.tensors):
            return self
        meshes = [*self.meshes, ((len(ranks),), tuple(ranks))]
        everywhere: tuple[Placement, ...] = ((_abi.TREADLE_REPLICATE, 0, 0),)
        return Description(
            meshes,
            [p if p.mesh >= 0 else p._replace(mesh=len(self.meshes), placements=everywhere) for p in self.tensors],
        )


_LETTERS = {
    _abi.TREADLE_REPLICATE: "R",
    _abi.TREADLE_SHARD: "S",
    _abi.TREADLE_STRIDED_SHARD: "T",
    _abi.TREADLE_FULLY_SHARD: "F",
}
_KINDS = {letter: kind for kind, letter in _LETTERS.items()}


def _row(placed: Placed) -> dict[str, typing.Any]:
    row: dict[str, typing.Any] = {"tensor": placed.tensor, "dtype": placed.dtype, "shape": placed.shape}
    if placed.storage != placed.tensor:
        row["storage"] = placed.storage
    if placed.mesh >= 0:
        row.update(mesh=placed.mesh, placements=",".join(map(_word, placed.placements)))
    return row


def _placed(row: typing.Mapping[str, typing.Any]) -> Placed:
    words = row["placements"].split(",") if "mesh" in row else []
    return Placed(
        row.get("storage", row["tensor"]),
        row["tensor"],
        row["dtype"],
        tuple(map(int, row["shape"])),
        int(row.get("mesh", -1)),
        tuple(map(_placement_of, words)),
    )


def _word(placement: Placement) -> str:
    kind, dim, split = placement
    return _LETTERS[kind] + (str(dim) if kind != _abi.TREADLE_REPLICATE else "") + (f"/{split}" if split else "")


def _placement_of(word: str) -> Placement:
    dim, _, split = word[1:].partition("/")
    return (_KINDS[word[0]], int(dim or 0), int(split or 0))


def _root(mesh: typing.Any) -> tuple[typing.Any, list[int]]:
    """The mesh that a submesh was cut out of, so that all ranks speak of the same one, and which of its dimensions are
    the submesh's."""
    root = None
    for find in ("get_root_mesh", "_get_root_mesh"):
        method = getattr(mesh, find, None)
        if method is not None:
            root = method()
            break
    if root is None:
        try:
            from torch.distributed.device_mesh import _mesh_resources  # type: ignore[import-not-found,unused-ignore]

            root = _mesh_resources.get_root_mesh(mesh)
        except (ImportError, AttributeError):
            root = None
    if root is None or root is mesh or not root.mesh_dim_names or not mesh.mesh_dim_names:
        return mesh, list(range(mesh.mesh.dim()))
    names = list(root.mesh_dim_names)
    if not all(name in names for name in mesh.mesh_dim_names):  # a flattened dimension
        return mesh, list(range(mesh.mesh.dim()))
    return root, [names.index(name) for name in mesh.mesh_dim_names]


def _placement(name: str, placement: typing.Any, fully: bool) -> Placement:
    """fully: strided shards are fully_shard's. Of torch, or of vLLM's sources, whose Shard has a `dim` and whose
    Replicate has none."""
    if not hasattr(placement, "is_partial"):
        known = {
            "Replicate": (_abi.TREADLE_REPLICATE, 0, 0),
            "Shard": (_abi.TREADLE_SHARD, getattr(placement, "dim", 0), 0),
        }
        if type(placement).__name__ not in known:
            raise errors.Refused(f"'{name}' has placement {placement!r}, and may have Replicate() and Shard(dim)")
        return known[type(placement).__name__]
    if placement.is_partial():
        raise errors.Refused(f"'{name}' has placement {placement}: a partial sum has no value yet that could be moved")
    if placement.is_replicate():
        return (_abi.TREADLE_REPLICATE, 0, 0)
    split = getattr(placement, "split_factor", None)
    if split is None:
        return (_abi.TREADLE_SHARD, placement.dim, 0)
    return (_abi.TREADLE_FULLY_SHARD, placement.dim, 0) if fully else (_abi.TREADLE_STRIDED_SHARD, placement.dim, split)


class _Maker:
    def __init__(self, rank: int, members: typing.Mapping[int, int] | None) -> None:
        self.rank = rank
        self.meshes: dict[Mesh, int] = {}
        self.roots: dict[int, tuple[typing.Any, Mesh, list[int]]] = {}  # by the mesh's id, with what keeps it
        self.ranks = members  # torch's ranks to the group's; None: they are the same

    def mesh(self, name: str, mesh: typing.Any) -> tuple[int, list[int]]:
        found = self.roots.get(id(mesh))
        if found is None:
            root, dims = _root(mesh)
            ranks = root.mesh.flatten().tolist()
            if self.ranks is not None:
                members = self.ranks
                strange = [rank for rank in ranks if rank not in members]
                if strange:
                    raise errors.Refused(
                        f"'{name}': its mesh has rank {strange[0]} of torch, which is not a member of the group"
                    )
                ranks = [members[rank] for rank in ranks]
            found = self.roots[id(mesh)] = mesh, (tuple(root.mesh.shape), tuple(ranks)), dims
        _, key, dims = found
        if self.rank not in key[1]:
            raise errors.Refused(
                f"'{name}': its mesh of ranks {_short(key[1])} has not rank {self.rank}, which has the tensor"
            )
        return self.meshes.setdefault(key, len(self.meshes)), dims

    def placed(self, name: str, tensor: typing.Any) -> Placed:
        if isinstance(tensor, _declared.Shards):
            return self._declared(name, tensor)
        dtype = _dtype(name, tensor.dtype)
        if getattr(tensor, "is_meta", False):
            raise errors.Refused(f"'{name}' is on the meta device, and has no memory")
        if not hasattr(tensor, "placements"):
            return Placed(name, name, dtype, tuple(tensor.shape), -1, ())
        # fully_shard makes parameters; what distribute_tensor makes is cut as its strided shards say.
        fully = type(tensor).__name__ == "Parameter" or getattr(tensor, "_is_param", False) or _is_parameter(tensor)
        return Placed(
            name, name, dtype, tuple(tensor.shape), *self._on_mesh(name, tensor.device_mesh, tensor.placements, fully)
        )

    def _on_mesh(
        self, name: str, mesh: typing.Any, given: typing.Iterable[typing.Any], fully: bool
    ) -> tuple[int, tuple[Placement, ...]]:
        """The number of a torch mesh, and a placement for each of its dimensions."""
        number, dims = self.mesh(name, mesh)
        key = next(k for k, n in self.meshes.items() if n == number)
        if len(key[0]) > _MOST_DIMS:
            raise errors.Refused(f"'{name}': its mesh has {len(key[0])} dimensions; at most {_MOST_DIMS} will do")
        placements: list[Placement] = [(_abi.TREADLE_REPLICATE, 0, 0)] * len(key[0])
        for dim, placement in zip(dims, given):
            placements[dim] = _placement(name, placement, fully)
        return number, tuple(placements)

    def _declared(self, name: str, shards: _declared.Shards) -> Placed:
        dtype = _dtype(name, shards.dtype)
        if shards.mesh is not None:
            return Placed(
                name, name, dtype, shards.shape, *self._on_mesh(name, shards.mesh, shards.placements or (), True)
            )
        if shards.owners is None:
            if shards.local is None:
                raise errors.Refused(f"'{name}' is declared on all ranks, and rank {self.rank} has no shard of it")
            return Placed(name, name, dtype, shards.shape, -1, ())
        size = shards.mesh_shape or (len(shards.owners),)
        if math.prod(size) != len(shards.owners) or len(size) > _MOST_DIMS:
            raise errors.Refused(f"'{name}': a mesh of {list(size)} does not fit its {len(shards.owners)} owners")
        given = shards.placements if shards.placements is not None else [None] * len(size)
        if len(given) != len(size):
            raise errors.Refused(f"'{name}': {len(given)} placements on a mesh of {len(size)} dimensions")
        ranks = tuple(shards.owners if self.ranks is None else [self.ranks.get(rank, -1) for rank in shards.owners])
        if min(ranks) < 0:
            raise errors.Refused(f"'{name}': its owners {_short(shards.owners)} are not all members of the group")
        if (shards.local is not None) != (self.rank in ranks):
            has = "has a shard of it, and is not" if shards.local is not None else "has no shard of it, and is"
            raise errors.Refused(f"'{name}': rank {self.rank} {has} one of its owners {_short(ranks)}")
        placements = tuple(
            (_abi.TREADLE_REPLICATE, 0, 0) if placement is None else _placement(name, placement, False)
            for placement in given
        )
        return Placed(
            name, name, dtype, shards.shape, self.meshes.setdefault((tuple(size), ranks), len(self.meshes)), placements
        )


def _dtype(name: str, dtype: typing.Any) -> str:
    words = str(dtype).removeprefix("torch.")
    if words not in _BY_DTYPE:
        raise errors.Refused(f"'{name}' has dtype {words}, and may have {', '.join(_BY_DTYPE)}")
    return words


def _is_parameter(tensor: typing.Any) -> bool:
    import torch  # type: ignore[import-not-found,unused-ignore]

    return isinstance(tensor, torch.nn.Parameter)


def _short(ranks: typing.Sequence[int]) -> str:
    return str(list(ranks)) if len(ranks) <= 16 else f"[{', '.join(map(str, ranks[:8]))}, ... {len(ranks)} in all]"


def here(
    named_tensors: typing.Any,
    rank: int,
    members: typing.Mapping[int, int] | None = None,
    rename: _tensors.Rename | None = None,
) -> Description:
    """The description of this rank's tensors."""
    return _described(_named(named_tensors, rename), rank, members)


def _named(named_tensors: typing.Any, rename: _tensors.Rename | None) -> list[tuple[str, typing.Any]]:
    """By the model's names, what is not of the model left out."""
    named = [(_tensors.model_name(given, tensor, rename), tensor) for given, tensor in _declared.entries(named_tensors)]
    return [(name, tensor) for name, tensor in named if name is not None]


def _described(named: list[tuple[str, typing.Any]], rank: int, members: typing.Mapping[int, int] | None) -> Description:
    maker = _Maker(rank, members)
    tensors = [maker.placed(name, tensor) for name, tensor in named]
    return Description(list(maker.meshes), tensors)


def describe(
    named_tensors: typing.Any, group: Group, rename: _tensors.Rename | None
) -> tuple[Description, list[tuple[str, typing.Any]]]:
    """The description of all ranks, which one without tensors takes from the others; and this rank's tensors, by the
    model's names. Collective: a rank whose tensors are refused tells them."""
    mine, named, refusal = None, [], None
    try:
        if named_tensors is not None:
            named = _named(named_tensors, rename)
            mine = _described(named, group.rank, group._members)
    except errors.Error as error:
        refusal = error
    tell(group, refusal)
    return agree(group, mine), named


def tell(group: Group, refusal: errors.Error | None) -> None:
    """All ranks raise where one is refused: it Refused, the others Peer. Collective."""
    group._tell(errors.Refused(f"Layout.of: rank {group.rank}: {refusal}") if refusal is not None else None)


def agree(group: Group, mine: Description | None) -> Description:
    """The description of all ranks that have one; Refused where two differ, with the tensor. Collective."""
    text = mine.text().encode() if mine is not None else b""
    hashes = group.gather(hashlib.blake2b(text, digest_size=16).digest() if text else b"")
    if not any(hashes):
        raise errors.Refused("Layout.of: no rank has tensors")
    first = next(rank for rank, hash_ in enumerate(hashes) if hash_)
    if all(hashes) and len(set(hashes)) == 1:
        assert mine is not None
        return mine
    holders = [rank for rank, hash_ in enumerate(hashes) if hash_]
    differs = next((rank for rank, hash_ in enumerate(hashes) if hash_ and hash_ != hashes[first]), None)
    texts = group.gather(text if group.rank in (first, differs) else b"")
    one = Description.read(texts[first].decode())
    if differs is not None:
        raise errors.Refused(_difference(first, one, differs, Description.read(texts[differs].decode())))
    return one.only_on(holders)


def _difference(first: int, one: Description, second: int, other: Description) -> str:
    words = f"Layout.of: ranks {first} and {second} describe different layouts: "
    if len(one.tensors) != len(other.tensors):
        names = {t.tensor for t in one.tensors} ^ {t.tensor for t in other.tensors}
        return (
            words
            + f"{len(one.tensors)} and {len(other.tensors)} tensors"
            + (f", '{min(names)}' on one of them alone" if names else "")
        )
    for a, b in zip(one.tensors, other.tensors):
        if a != b:
            if a.tensor != b.tensor:
                return words + f"'{a.tensor}' stands where '{b.tensor}' does"
            return (
                words
                + f"'{a.tensor}' is {a.dtype} with placements {_words(a)} there, and {b.dtype} with {_words(b)} here"
            )
    return words + f"meshes {one.meshes} and {other.meshes}"


def _words(placed: Placed) -> str:
    return "".join(map(_word, placed.placements)) or "R"


def make(model: Model, ranks: int, description: Description) -> ctypes.c_void_p:
    """The layout."""
    meshes = (_abi.treadle_placed_mesh * max(1, len(description.meshes)))()
    kept = []
    for to, (size, members) in zip(meshes, description.meshes):
        to.ndim = len(size)
        to.size[: len(size)] = size
        kept.append((ctypes.c_int64 * len(members))(*members))
        to.ranks = ctypes.cast(kept[-1], ctypes.POINTER(ctypes.c_int64))
    tensors = (_abi.treadle_placed_tensor * max(1, len(description.tensors)))()
    made: dict[tuple[Placement, ...], typing.Any] = {}  # many tensors have the same placements
    for at, placed in zip(tensors, description.tensors):
        at.tensor = _library.given("the name of a tensor", placed.tensor)
        if placed.storage != placed.tensor:
            at.storage = _library.given("the name of a storage", placed.storage)
        at.dtype, at.mesh = _BY_DTYPE[placed.dtype], placed.mesh
        if len(placed.shape) > len(at.shape):
            raise errors.Refused(
                f"'{placed.tensor}' has {len(placed.shape)} dimensions; at most {len(at.shape)} will do"
            )
        at.ndim = len(placed.shape)
        at.shape[: at.ndim] = placed.shape
        placements = made.get(placed.placements)
        if placements is None:
            placements = made[placed.placements] = type(at.placements)(*placed.placements)
        at.placements = placements
    pointer = ctypes.c_void_p()
    _library.call(
        "treadle_layout_from_placements",
        model._use(),
        ranks,
        meshes,
        len(description.meshes),
        tensors,
        len(description.tensors),
        ctypes.byref(pointer),
    )
    return pointer
