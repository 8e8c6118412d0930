"""Live tensors as a layout: what DTensors say of themselves (mesh and placements), in the words of the C library.

One description of all tensors, which is the same on all ranks, and so is made without asking any of them; a hash of it is compared.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import typing

from . import _abi, _library, _tensors, errors
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
        return json.dumps(self)

    @classmethod
    def read(cls, text: str) -> Description:
        meshes, tensors = json.loads(text)
        return cls([(tuple(size), tuple(ranks)) for size, ranks in meshes],
                   [Placed(name, tensor, dtype, tuple(shape), mesh, tuple((kind, dim, split) for kind, dim, split in placements))
                    for name, tensor, dtype, shape, mesh, placements in tensors])


def _root(mesh: typing.Any) -> tuple[typing.Any, list[int]]:
    """The mesh that a submesh was cut out of, so that all ranks speak of the same one, and which of its dimensions are the submesh's."""
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
                    raise errors.Refused(f"'{name}': its mesh has rank {strange[0]} of torch, which is not a member of the group")
                ranks = [members[rank] for rank in ranks]
            found = self.roots[id(mesh)] = mesh, (tuple(root.mesh.shape), tuple(ranks)), dims
        _, key, dims = found
        if self.rank not in key[1]:
            raise errors.Refused(f"'{name}': its mesh of ranks {_short(key[1])} has not rank {self.rank}, which has the tensor")
        return self.meshes.setdefault(key, len(self.meshes)), dims

    def placed(self, name: str, tensor: typing.Any) -> Placed:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in _BY_DTYPE:
            raise errors.Refused(f"'{name}' has dtype {dtype}, and may have {', '.join(_BY_DTYPE)}")
        if getattr(tensor, "is_meta", False):
            raise errors.Refused(f"'{name}' is on the meta device, and has no memory")
        if not hasattr(tensor, "placements"):
            return Placed(name, name, dtype, tuple(tensor.shape), -1, ())
        number, dims = self.mesh(name, tensor.device_mesh)
        key = next(k for k, n in self.meshes.items() if n == number)
        if len(key[0]) > _MOST_DIMS:
            raise errors.Refused(f"'{name}': its mesh has {len(key[0])} dimensions; at most {_MOST_DIMS} will do")
        placements: list[Placement] = [(_abi.TREADLE_REPLICATE, 0, 0)] * len(key[0])
        # fully_shard makes parameters; what distribute_tensor makes is cut as its strided shards say.
        fully = type(tensor).__name__ == "Parameter" or getattr(tensor, "_is_param", False) or _is_parameter(tensor)
        for dim, placement in zip(dims, tensor.placements):
            placements[dim] = _placement(name, placement, fully)
        return Placed(name, name, dtype, tuple(tensor.shape), number, tuple(placements))


def _is_parameter(tensor: typing.Any) -> bool:
    import torch  # type: ignore[import-not-found,unused-ignore]

    return isinstance(tensor, torch.nn.Parameter)


def _short(ranks: typing.Sequence[int]) -> str:
    return str(list(ranks)) if len(ranks) <= 16 else f"[{', '.join(map(str, ranks[:8]))}, ... {len(ranks)} in all]"


def here(named_tensors: _tensors.Named, rank: int, members: typing.Mapping[int, int] | None = None, rename: _tensors.Rename | None = None) -> Description:
    """The description of this rank's tensors."""
    maker = _Maker(rank, members)
    tensors = []
    for given, tensor in _tensors.pairs(named_tensors):
        name = _tensors.model_name(given, tensor, rename)
        if name is not None:
            tensors.append(maker.placed(name, tensor))
    return Description(list(maker.meshes), tensors)


def describe(named_tensors: _tensors.Named | None, group: Group, rename: _tensors.Rename | None) -> Description:
    """The description of all ranks; one without tensors takes that of the others. Collective: a rank whose tensors are refused tells them."""
    try:
        mine = here(named_tensors, group.rank, group._members, rename) if named_tensors is not None else None
        words = b""
    except errors.Error as error:
        mine, words = None, str(error).encode()
    said = group.gather(words)
    if words:
        raise errors.Refused(f"Layout.of: rank {group.rank}: {words.decode()}")
    refused = next((rank for rank, other in enumerate(said) if other), None)
    if refused is not None:
        raise errors.Peer(f"Layout.of: rank {refused}: {said[refused].decode()}")
    return agree(group, mine)


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
    differs = next((rank for rank, hash_ in enumerate(hashes) if hash_ and hash_ != hashes[first]), None)
    texts = group.gather(text if group.rank in (first, differs) else b"")
    one = Description.read(texts[first].decode())
    if differs is not None:
        raise errors.Refused(_difference(first, one, differs, Description.read(texts[differs].decode())))
    return one


def _difference(first: int, one: Description, second: int, other: Description) -> str:
    words = f"Layout.of: ranks {first} and {second} describe different layouts: "
    if len(one.tensors) != len(other.tensors):
        names = {t.tensor for t in one.tensors} ^ {t.tensor for t in other.tensors}
        return words + f"{len(one.tensors)} and {len(other.tensors)} tensors" + (f", '{min(names)}' on one of them alone" if names else "")
    for a, b in zip(one.tensors, other.tensors):
        if a != b:
            if a.tensor != b.tensor:
                return words + f"'{a.tensor}' stands where '{b.tensor}' does"
            return words + f"'{a.tensor}' is {a.dtype} with placements {_words(a)} there, and {b.dtype} with {_words(b)} here"
    return words + f"meshes {one.meshes} and {other.meshes}"


def _words(placed: Placed) -> str:
    letters = {_abi.TREADLE_REPLICATE: "R", _abi.TREADLE_SHARD: "S", _abi.TREADLE_STRIDED_SHARD: "T", _abi.TREADLE_FULLY_SHARD: "F"}
    return "".join(letters[kind] + (str(dim) if kind else "") + (f"/{split}" if split else "") for kind, dim, split in placed.placements) or "R"


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
            raise errors.Refused(f"'{placed.tensor}' has {len(placed.shape)} dimensions; at most {len(at.shape)} will do")
        at.ndim = len(placed.shape)
        at.shape[: at.ndim] = placed.shape
        placements = made.get(placed.placements)
        if placements is None:
            placements = made[placed.placements] = type(at.placements)(*placed.placements)
        at.placements = placements
    pointer = ctypes.c_void_p()
    _library.call("treadle_layout_from_placements", model._use(), ranks, meshes, len(description.meshes), tensors, len(description.tensors),
                  ctypes.byref(pointer))
    return pointer
