"""Shards that a source declares: what its tensors are cut as, said beside local tensors that do not say it themselves.

Two forms are read, by their shape, so that nothing is imported: a source of vLLM's (`metadata`, and `iter_local()`),
and triples of verl's (name, local tensor, ShardSpec). What they mean: vllm/distributed/weight_transfer/base.py,
ParamMeta; verl/workers/engine/spec.py, ShardSpec."""

from __future__ import annotations

import typing

from . import _tensors, errors


class Shards(typing.NamedTuple):
    """A tensor, whole, and how it is cut; and this rank's shard."""

    dtype: typing.Any  #: torch's, or its name
    shape: tuple[int, ...]  #: of the whole tensor
    owners: tuple[int, ...] | None  #: ranks in mesh order; None: all that have a source
    mesh_shape: tuple[int, ...] | None  #: None: (len(owners),)
    placements: typing.Sequence[typing.Any] | None  #: one a dimension of the mesh; None: replicated
    mesh: typing.Any  #: a DeviceMesh of torch in place of owners and mesh_shape
    local: typing.Any  #: None: this rank has none


def is_source(given: typing.Any) -> bool:
    """A source of vLLM's. Older ones (before 0.33) have no shards: Refused where they are used."""
    return (
        hasattr(given, "metadata")
        and (hasattr(given, "iter_local") or hasattr(given, "__iter__"))
        and not _tensors.is_module(given)
    )


def local_pairs(source: typing.Any) -> list[tuple[str, typing.Any]]:
    """What this rank has, by name, in one pass over the source. Raises Refused for a source that only gives full
    tensors."""
    implements = getattr(source, "implements_iter_local", None)
    if not hasattr(source, "iter_local") or (implements is not None and not implements()):
        raise errors.Refused(
            f"{type(source).__name__} has no iter_local: it gives full tensors alone, which would be "
            "gathered; pass the module itself"
        )
    return list(source.iter_local())


def entries(given: _tensors.Named) -> list[tuple[typing.Any, typing.Any]]:
    """Pairs of names and tensors; what is declared is a Shards in place of its tensor."""
    if is_source(given):
        return _of_source(given)
    if _tensors.is_module(given) or isinstance(given, typing.Mapping):
        return _tensors.pairs(given)
    listed: list[tuple[typing.Any, ...]] = list(given)  # type: ignore[arg-type]
    return [(entry[0], _of_spec(*entry)) if len(entry) == 3 else (entry[0], entry[1]) for entry in listed]


def _of_source(source: typing.Any) -> list[tuple[str, typing.Any]]:
    metadata = source.metadata() if callable(source.metadata) else source.metadata
    local = dict(local_pairs(source))
    if strange := local.keys() - {meta.name for meta in metadata}:
        raise errors.Refused(f"'{min(strange)}' is given by iter_local, and metadata does not have it")
    found: list[tuple[str, typing.Any]] = []
    for meta in metadata:
        owners = getattr(meta, "owners", None)
        found.append(
            (
                meta.name,
                Shards(
                    meta.dtype,
                    tuple(meta.shape),
                    tuple(owners) if owners is not None else None,
                    getattr(meta, "mesh_shape", None),
                    getattr(meta, "placements", None),
                    None,
                    local.get(meta.name),
                ),
            )
        )
    return found


def _of_spec(name: str, local: typing.Any, spec: typing.Any) -> Shards:
    for field in ("place", "to_hf_chunk", "hf_slots"):
        if getattr(spec, field, None) is not None:
            raise errors.Refused(
                f"'{name}': its ShardSpec has {field}; only those that a mesh and placements describe will do"
            )
    return Shards(local.dtype, tuple(spec.full_shape), None, None, spec.placements, spec.mesh, local)


def refusal(
    named: typing.Iterable[tuple[str, typing.Any]], storages: typing.Iterable[typing.Any], rank: int
) -> errors.Refused | None:
    """Of shards that have not as many bytes as the placements say; None: all have."""
    bytes_of = {storage.name: storage.bytes for storage in storages}
    for name, shards in named:
        if not isinstance(shards, Shards) or shards.local is None:
            continue
        local = _tensors.local(shards.local)
        if int(local.nbytes) != bytes_of.get(name, 0):
            return errors.Refused(
                f"'{name}': the local tensor has shape {list(local.shape)} and {int(local.nbytes)} bytes; "
                f"rank {rank}'s part of {list(shards.shape)}, as declared, has {bytes_of.get(name, 0)} bytes"
            )
    return None
