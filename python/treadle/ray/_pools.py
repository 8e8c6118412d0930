"""Resource pools: slots for processes on the nodes of a Ray cluster.

A pool is a list of counts. Each count is an entry: a number of slots, all on one node. An entry is a placement group
of Ray's with the strategy STRICT_PACK, a slot a bundle of it, and ranks follow (pool, entry, bundle). Ray chooses the
nodes."""

from __future__ import annotations

import math
import secrets
import time
import typing

from .. import errors
from ._ray import need_cluster, nodes, placement, ray

MOST_PARTS = 10000  # Ray counts resources in parts of this
STALE = 5.0  #: seconds in which Ray knows what has become free


class Entry:
    """Slots on one node: a placement group, once it is asked for, and how many worker groups each slot has."""

    def __init__(self, slots: int, bundle: dict[str, float], name: str, lifetime: str | None) -> None:
        self.slots, self.bundle, self.name, self._lifetime = slots, bundle, name, lifetime
        self.taken = [0] * slots
        self.group: typing.Any = None

    def open(self) -> None:
        """Asks Ray for it, once; does not wait."""
        if self.group is None:
            bundles = [dict(self.bundle) for _ in range(self.slots)]
            self.group = placement.placement_group(
                bundles, strategy="STRICT_PACK", name=self.name, lifetime=self._lifetime
            )

    def close(self) -> None:
        if self.group is not None:
            placement.remove_placement_group(self.group)
            self.group = None


class Slot(typing.NamedTuple):
    entry: Entry
    bundle: int


class ResourcePool:
    """Slots on nodes.

    process_on_nodes: slots of each entry. use_gpu: a slot has a GPU, of which each worker group gets its part.
    max_colocate_count: the most worker groups with processes of their own on a slot. cpus: processors of a slot
    (without it, one for each of these groups); each group gets its part. detached: placement groups outlive this
    process. timeout: seconds until Ray must have placed an entry.

    world_size; store: slots of each entry. Raises Refused for counts below 1."""

    def __init__(
        self,
        process_on_nodes: typing.Sequence[int],
        use_gpu: bool = True,
        max_colocate_count: int = 10,
        name_prefix: str = "pool",
        *,
        cpus: float | None = None,
        detached: bool = False,
        timeout: float = 60,
    ) -> None:
        counts = list(process_on_nodes)
        if not counts:
            raise errors.Refused(f"pool '{name_prefix}' has no entries; give the slots of each node, such as [8, 8]")
        for number, count in enumerate(counts):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise errors.Refused(f"pool '{name_prefix}': entry {number} has {count!r} slots; at least 1")
        if max_colocate_count < 1:
            raise errors.Refused(f"pool '{name_prefix}': max_colocate_count is {max_colocate_count}; at least 1")
        self.use_gpu, self.max_colocate_count = use_gpu, max_colocate_count
        self.name_prefix, self.detached, self.timeout = name_prefix, detached, timeout
        self.cpus = float(max_colocate_count if cpus is None else cpus)
        if not self.cpus * MOST_PARTS >= max_colocate_count:
            raise errors.Refused(
                f"pool '{name_prefix}': {self.cpus} processors a slot for {max_colocate_count} worker groups; Ray "
                f"counts in parts of 1/{MOST_PARTS}"
            )
        bundle: dict[str, float] = {"CPU": self.cpus, **({"GPU": 1.0} if use_gpu else {})}
        lifetime = "detached" if detached else None
        name = name_prefix if detached else f"{name_prefix}_{secrets.token_hex(3)}"  # which Ray wants once a cluster
        entries = [Entry(n, bundle, f"{name}_entry{i}", lifetime) for i, n in enumerate(counts)]
        self.slots = [Slot(entry, bundle) for entry in entries for bundle in range(entry.slots)]

    def _of(self, slots: list[Slot], name: str) -> ResourcePool:
        """A pool of some of its slots, or of others."""
        pool = ResourcePool.__new__(ResourcePool)
        pool.__dict__.update(self.__dict__, slots=slots, name_prefix=name)
        return pool

    @property
    def entries(self) -> list[Entry]:
        """In the order of slots."""
        return list(dict.fromkeys(slot.entry for slot in self.slots))

    @property
    def world_size(self) -> int:
        return len(self.slots)

    @property
    def store(self) -> list[int]:
        return [sum(slot.entry is entry for slot in self.slots) for entry in self.entries]

    def worker_share(self) -> dict[str, float]:
        """What a worker asks Ray for: {"num_cpus": 0.3333, "num_gpus": 0.3333}."""
        share = {"num_cpus": self.cpus / self.max_colocate_count}
        if self.use_gpu:
            share["num_gpus"] = 1 / self.max_colocate_count
        return {key: math.floor(value * MOST_PARTS + 1e-6) / MOST_PARTS for key, value in share.items()}

    def get_placement_groups(self) -> list[typing.Any]:
        """Those of its entries, in order, ready. The first call makes them. Raises Refused if the cluster has too
        little, Timeout if Ray has not placed an entry in time."""
        need_cluster(f"pool '{self.name_prefix}'")
        wanted = [entry for entry in self.entries if entry.group is None]
        _check_room(self, wanted)
        for entry in wanted:
            entry.open()
        for entry in self.entries:
            if not entry.group.wait(timeout_seconds=self.timeout):
                for other in wanted:
                    other.close()
                raise errors.Timeout(
                    f"pool '{self.name_prefix}': Ray has not placed {entry.slots} slots of {_shown(entry.bundle)} on "
                    f"one node in {self.timeout:g} s; free in the cluster are {_shown(ray.available_resources())}"
                )
        return [entry.group for entry in self.entries]

    def node_ids(self) -> list[str]:
        """Of each slot, Ray's id of its node."""
        self.get_placement_groups()
        tables = {id(entry): placement.placement_group_table(entry.group) for entry in self.entries}
        return [str(tables[id(entry)]["bundles_to_node_id"][bundle]) for entry, bundle in self.slots]

    def nodes(self) -> list[str]:
        """Of each slot: "node 10.0.0.1 (0a1b2c3d)", the node's address and the head of Ray's id."""
        where = self.node_ids()
        addresses = {str(node["NodeID"]): node["NodeManagerAddress"] for node in nodes()}
        return [f"node {addresses.get(node, 'gone')} ({node[:8]})" for node in where]

    def close(self) -> None:
        """Gives its slots back to Ray, which ends the processes in them. Pools that share an entry lose it, too."""
        for entry in self.entries:
            entry.close()

    def __repr__(self) -> str:
        return f"<treadle.ray.ResourcePool '{self.name_prefix}' {self.store}>"


def split_resource_pool(pool: ResourcePool, split_size: int | typing.Sequence[int]) -> list[ResourcePool]:
    """Parts of a pool on the same slots, one after the other, which may be split again: of `split_size` slots each, or
    of these numbers of slots. Raises Refused if they are not as many as the pool has."""
    size = pool.world_size
    if isinstance(split_size, int):
        if split_size < 1 or size % split_size:
            raise errors.Refused(
                f"pool '{pool.name_prefix}': split_size must be a divisor of world_size: {split_size}, {size}"
            )
        counts = [split_size] * (size // split_size)
    else:
        counts = list(split_size)
        if any(not isinstance(count, int) or count < 1 for count in counts) or sum(counts) != size:
            raise errors.Refused(
                f"pool '{pool.name_prefix}': split_size must sum up to world_size: {counts}, whole numbers from 1, and "
                f"{size}"
            )
    ends = [sum(counts[: number + 1]) for number in range(len(counts))]
    return [
        pool._of(pool.slots[end - count : end], f"{pool.name_prefix}_{number}")
        for number, (count, end) in enumerate(zip(counts, ends))
    ]


def merge_resource_pool(first: ResourcePool, second: ResourcePool) -> ResourcePool:
    """One pool of the slots of both, those of the first before. Raises Refused if they differ in what a slot is, or
    share one."""
    for what in ("use_gpu", "max_colocate_count", "cpus", "detached"):
        one, other = getattr(first, what), getattr(second, what)
        if one != other:
            raise errors.Refused(
                f"pools '{first.name_prefix}' and '{second.name_prefix}' cannot be merged: {what} is {one} and {other}"
            )
    both = set(first.slots) & set(second.slots)
    if both:
        raise errors.Refused(
            f"pools '{first.name_prefix}' and '{second.name_prefix}' cannot be merged: they share {len(both)} slots"
        )
    return first._of(first.slots + second.slots, f"{first.name_prefix}_{second.name_prefix}")


class ResourcePoolManager:
    """Pools by name, and which role works in which.

    resource_pool_spec: {name: slots of each entry}. mapping: {role: name}. Raises Refused for a pool without a role and
    a role without a pool."""

    def __init__(
        self,
        resource_pool_spec: typing.Mapping[str, typing.Sequence[int]],
        mapping: typing.Mapping[str, str],
        *,
        use_gpu: bool = True,
        max_colocate_count: int = 3,
        cpus: float | None = None,
        timeout: float = 60,
    ) -> None:
        self.mapping = dict(mapping)
        names = ", ".join(f"'{name}'" for name in resource_pool_spec) or "none"
        for role, name in self.mapping.items():
            if name not in resource_pool_spec:
                raise errors.Refused(f"role '{role}' is in pool '{name}', which is not there; pools: {names}")
        for name in resource_pool_spec:
            if name not in self.mapping.values():
                raise errors.Refused(f"pool '{name}' has no role: name one for it in mapping")
        self.resource_pool_dict = {
            name: ResourcePool(counts, use_gpu, max_colocate_count, name, cpus=cpus, timeout=timeout)
            for name, counts in resource_pool_spec.items()
        }

    def create_resource_pool(self) -> None:
        """Makes the placement groups of all pools. Raises as ResourcePool.get_placement_groups; then none is left."""
        need_cluster("create_resource_pool")
        pools = self.resource_pool_dict.values()
        made = [entry for pool in pools for entry in pool.entries if entry.group is None]
        first = next(iter(pools))
        _check_room(first, made, "all pools")
        try:
            for pool in pools:
                for entry in pool.entries:
                    entry.open()
            for pool in pools:
                pool.get_placement_groups()
        except errors.Error:
            for entry in made:
                entry.close()
            raise

    def get_resource_pool(self, role: str) -> ResourcePool:
        """Raises Refused if no pool has the role."""
        if role not in self.mapping:
            raise errors.Refused(f"role '{role}' is in no pool; roles: {', '.join(self.mapping)}")
        return self.resource_pool_dict[self.mapping[role]]

    def get_n_gpus(self) -> int:
        """The number of slots of all pools."""
        return sum(pool.world_size for pool in self.resource_pool_dict.values())

    def close(self) -> None:
        for pool in self.resource_pool_dict.values():
            pool.close()


def _shown(resources: typing.Mapping[str, float]) -> str:
    shown = [f"{resources[key]:g} {key}" for key in ("CPU", "GPU") if key in resources]
    return ", ".join(shown) or "no CPU and no GPU"


def _check_room(pool: ResourcePool, entries: list[Entry], what: str = "") -> None:
    """Refuses what the cluster does not have: in sum, and for an entry on one node."""
    what = what or f"pool '{pool.name_prefix}'"
    kind = "GPU" if pool.use_gpu else "CPU"
    desired = sum(entry.slots * entry.bundle[kind] for entry in entries) - 1e-6
    free, there = ray.available_resources(), nodes()
    until = time.monotonic() + min(pool.timeout, STALE)
    while free.get(kind, 0) < desired <= ray.cluster_resources().get(kind, 0) and time.monotonic() < until:
        time.sleep(0.1)  # what was given back shortly before is not counted at once
        free = ray.available_resources()
    if free.get(kind, 0) < desired:
        raise errors.Refused(
            f"{what}: Total available {kind}s {free.get(kind, 0):g} is less than total desired {kind}s "
            f"{desired:g}; Ray has {len(there)} nodes with {'; '.join(_shown(node['Resources']) for node in there)}, "
            f"of which are free {_shown(free)}"
        )
    for entry in entries:
        needs = {key: value * entry.slots for key, value in entry.bundle.items()}
        if not any(all(node["Resources"].get(k, 0) + 1e-6 >= v for k, v in needs.items()) for node in there):
            raise errors.Refused(
                f"{what}: no node has room for the {entry.slots} slots of '{entry.name}', which need {_shown(needs)} "
                f"on one node; nodes have {'; '.join(_shown(node['Resources']) for node in there)}"
            )
