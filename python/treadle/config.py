"""Configurations of others' runs: what a file of MindSpeed-RL, RLinf or verl says of the switch between its trainer and
its engine. And pools: what a configuration of treadle.train says of its roles and ranks.

    config = treadle.config.read("config.yaml")
    treadle.plan(model, config["train"], config["infer"], config["ranks"], nodes=config["nodes"],
                 cap=config["cap"] or 0, rank_map=config.rank_map)

docs/config.md says which keys count. Nothing of the other project is imported."""

from __future__ import annotations

import collections
import ctypes
import os
import typing
import warnings as _warnings

from . import _abi, _library, errors

__all__ = ["Config", "pools", "read"]

_MAPS = {_abi.TREADLE_CONTIGUOUS: "contiguous", _abi.TREADLE_STRIDED: "strided", _abi.TREADLE_BEST: "best"}


class Config(dict[str, typing.Any]):
    """What `read` answers: a dict, and beside its keys what plan() needs for the same figures, and what was warned
    of."""

    rank_map: str = "contiguous"
    warnings: tuple[str, ...] = ()


def read(path: str | os.PathLike[str], overrides: typing.Iterable[str] = ()) -> Config:
    """What the file says, as dict(model, train, infer, ranks, nodes, offload, cap, source): the key `config` of
    `treadle plan --config FILE --json`.

    model: a path or a hub's name. train, infer: layouts as text. offload: what leaves the device while the engine
    generates, a list of "params", "grads", "optimizer", as Switch takes it. cap: the bytes of the run's buckets.
    source: "MindSpeed-RL", "RLinf" or "verl". None: the file does not say. Beside the keys, `rank_map` is how the
    engine's places are assigned to ranks, and `warnings` what was warned of, by warnings.warn, too.

    overrides: texts "section.key=value", which go before the file. Of verl, the file is the composed one (--cfg job).
    Raises Refused with the path and the line of each key that is wrong, unknown, of the environment, or has no layout
    here; System for a file that cannot be read."""
    given = [_library.given("override", text) for text in overrides]
    texts = (ctypes.c_char_p * len(given))(*given)
    pointer = ctypes.c_void_p()
    _library.call("treadle_switch_config_read", _library.given("path", path), texts, len(given), ctypes.byref(pointer))
    file = _library.Object(pointer, "treadle_switch_config_destroy")
    info, count = _library.sized(_abi.treadle_switch_config_info), ctypes.c_size_t()
    _library.value("treadle_switch_config_get_info", file.pointer, ctypes.byref(info))
    lines = _library.value("treadle_switch_config_warnings", file.pointer, ctypes.byref(count))
    offload = {"params": info.offload_params, "grads": info.offload_grads, "optimizer": info.offload_optimizer}
    config = Config(
        model=None if info.model is None else _library.text(info.model),
        train=_library.text(info.train),
        infer=_library.text(info.infer),
        ranks=info.ranks or None,
        nodes=info.nodes or None,
        offload=[name for name, leaves in offload.items() if leaves],
        cap=info.cap_bytes or None,
        source=_library.text(info.source),
    )
    config.rank_map = _MAPS[info.rank_map]
    config.warnings = tuple(_library.text(lines[i]) for i in range(count.value))
    for line in config.warnings:
        _warnings.warn(line, stacklevel=2)
    return config


def pools(
    path: str | os.PathLike[str], overrides: typing.Iterable[str] = (), nodes: typing.Sequence[int] = ()
) -> dict[str, typing.Any]:
    """Which role of a configuration gets which ranks and nodes, as dict(slots, controller, train, pools, ranks): what
    `treadle pools FILE --json` prints. docs/pools.md says which keys count.

    nodes: the slots of each node; none: one node with as many as the pools ask for. overrides: texts
    "section.key=value", which go before the file. Nothing is started. Raises Refused where pools do not fit, with the
    name of the first one that does not, and what treadle.train refuses in a configuration."""
    file, made, lines = _placed(path, overrides, nodes)
    for line in lines:
        _warnings.warn(line, stacklevel=2)
    info = _library.sized(_abi.treadle_rl_pools_info)
    _library.value("treadle_rl_pools_get_info", made.pointer, ctypes.byref(info))
    ranks: dict[int, dict[str, typing.Any]] = {}
    found = [_pool(made, file, number, info.first_rank, ranks) for number in range(info.count)]
    return {
        "slots": info.slots,
        "controller": info.controller,
        "train": _needs(found, ranks, info.first_rank),
        "pools": found,
        "ranks": [ranks[rank] for rank in sorted(ranks)],
    }


def _needs(
    found: list[dict[str, typing.Any]], ranks: dict[int, dict[str, typing.Any]], alone: int
) -> dict[str, typing.Any] | None:
    """The processes of treadle.train, and how many each node has; None: it refuses a pool on several nodes."""
    if any(len(pool["nodes"]) > 1 for pool in found):
        return None
    by_node = collections.Counter(ranks[rank]["node"] for rank in sorted(ranks))
    nodes = list(by_node.values())  # in the order of the ranks, which stand node after node
    nodes[0] += alone  # the controller, if it works alone
    return {"processes": sum(nodes), "nodes": nodes}


class Entry(typing.NamedTuple):
    """Slots of a pool that are to be on one node."""

    pool: str
    roles: list[str]  #: of the pool
    slots: list[int]  #: their numbers among all slots of the run


class Entries(typing.NamedTuple):
    """What a configuration asks for."""

    entries: list[Entry]  #: pool after pool
    place: str | None  #: where it says so: "resource_pools (line 3)"; None: it does not
    takes_all: bool  #: one pool has all slots that there are, of which `entries` shows one


def entries(path: str | os.PathLike[str], overrides: typing.Iterable[str] = ()) -> Entries:
    """The entries of a configuration's pools. Nothing is warned of. Raises Refused."""
    given = list(overrides)
    _, made, _ = _placed(path, given, ())
    info, more = _library.sized(_abi.treadle_rl_pools_info), _library.sized(_abi.treadle_rl_pools_info)
    _library.value("treadle_rl_pools_get_info", made.pointer, ctypes.byref(info))
    _, larger, _ = _placed(path, given, (info.slots + info.idle + 1,))
    _library.value("treadle_rl_pools_get_info", larger.pointer, ctypes.byref(more))
    found: list[Entry] = []
    for number in range(info.count):
        pool, roles, slots = _slots(made, number)
        for i, slot in enumerate(slots):
            if not i or slot.entry != slots[i - 1].entry:
                found.append(Entry(_library.text(pool.name), roles, []))
            found[-1].slots.append(slot.number)
    return Entries(found, None if info.place is None else _library.text(info.place), more.slots > info.slots)


def _placed(
    path: str | os.PathLike[str], overrides: typing.Iterable[str], nodes: typing.Sequence[int]
) -> tuple[_library.Object, _library.Object, list[str]]:
    """The configuration, its pools on nodes with these slots, and what there is to warn of."""
    given = [_library.given("override", text) for text in overrides]
    texts = (ctypes.c_char_p * len(given))(*given)
    pointer, count = ctypes.c_void_p(), ctypes.c_size_t()
    file_name = _library.given("path", path)
    _library.call("treadle_rl_pools_config_read", file_name, texts, len(given), ctypes.byref(pointer))
    file = _library.Object(pointer, "treadle_train_config_destroy")
    lines = _library.value("treadle_train_config_warnings", file.pointer, ctypes.byref(count))
    for slots in nodes:
        if not 1 <= slots < 1 << 31:
            raise errors.Refused(f"nodes is {list(nodes)!r}, and must be the slots of each node, at least 1")
    counts, pointer = (ctypes.c_int32 * len(nodes))(*nodes), ctypes.c_void_p()
    _library.call("treadle_rl_pools_create", file.pointer, counts, len(nodes), ctypes.byref(pointer))
    made = _library.Object(pointer, "treadle_rl_pools_destroy", file)
    return file, made, [_library.text(lines[i]) for i in range(count.value)]


def _slots(made: _library.Object, number: int) -> tuple[typing.Any, list[str], list[typing.Any]]:
    """Of one pool: what it is, its roles, and the slot of each of its ranks."""
    one, info = _library.sized(_abi.treadle_rl_pool_info), _library.sized(_abi.treadle_resource_pool_info)
    _library.call("treadle_rl_pools_get_pool", made.pointer, number, ctypes.byref(one))
    _library.value("treadle_resource_pool_get_info", one.pool, ctypes.byref(info))
    roles = [_library.text(_library.value("treadle_pool_role_name", one.roles[i])) for i in range(one.role_count)]
    slots = [_abi.treadle_slot() for _ in range(info.slots)]
    for i, slot in enumerate(slots):
        _library.call("treadle_resource_pool_get_slot", one.pool, i, ctypes.byref(slot))
    return info, roles, slots


def _pool(
    made: _library.Object, file: _library.Object, number: int, first: int, ranks: dict[int, dict[str, typing.Any]]
) -> dict[str, typing.Any]:
    """One pool; its ranks are added to `ranks`."""
    memory = _library.sized(_abi.treadle_rl_pool_memory)
    info, roles, slots = _slots(made, number)
    own = [first + slot.number for slot in slots]
    for rank, slot in zip(own, slots):
        ranks[rank] = {
            "rank": rank,
            "node": slot.node,
            "local_rank": slot.local_rank,
            "local_world": slot.local_world,
            "roles": roles,
        }
    _library.call(
        "treadle_rl_pools_foresee_roles", made.pointer, file.pointer, None, number, ctypes.byref(memory)
    )
    one = _library.sized(_abi.treadle_rl_pool_info)
    _library.call("treadle_rl_pools_get_pool", made.pointer, number, ctypes.byref(one))
    own_bytes = [memory.role_bytes[one.roles[i]] for i in range(len(roles))]
    return {
        "name": _library.text(info.name),
        "ranks": own,
        "nodes": sorted({ranks[rank]["node"] for rank in own}),
        "roles": roles,
        "bytes": memory.bytes if memory.is_known else None,
        "role_bytes": {role: own or None for role, own in zip(roles, own_bytes)},
        "room_bytes": memory.room or None,
        "fits": memory.fits if memory.is_known else None,
    }
