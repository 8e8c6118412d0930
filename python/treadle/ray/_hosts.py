"""The actors of a group: one a slot, started together, with names by which others find them; and what befalls them."""

from __future__ import annotations

import secrets
import typing

from .. import errors
from ._classes import ClassWithInitArgs, ColocatedClasses
from ._pools import ResourcePool, Slot
from ._ray import exceptions, ray, said, strategies
from ._worker import ENVIRONMENT, host_class

Classes = typing.Union[ClassWithInitArgs, ColocatedClasses]


class Hosts:
    """Actors by rank. Groups of members that share the processes share this object."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.handles: list[typing.Any] = []
        self.names: list[str] = []
        self.nodes: list[str] = []
        self._slots: list[Slot] = []

    def add(self, name: str, handle: typing.Any, node: str = "node unknown", slot: Slot | None = None) -> None:
        """The next rank."""
        self.names.append(name)
        self.handles.append(handle)
        self.nodes.append(node)
        if slot is not None:
            slot.entry.taken[slot.bundle] += 1
            self._slots.append(slot)

    def get(self, method: str, refs: list[tuple[int, typing.Any]], timeout: float | None = None) -> list[typing.Any]:
        """What they give. refs: (rank, place). Raises Peer with the first that failed, Timeout with those that have not
        answered."""
        try:
            return list(ray.get([ref for _, ref in refs], timeout=timeout))
        except exceptions.GetTimeoutError as error:
            late = [rank for rank, ref in refs if not ray.wait([ref], timeout=0, fetch_local=False)[0]]
            raise errors.Timeout(
                f"{self.name}: ranks {', '.join(map(str, late))} have not ended '{method}' in {timeout:g} s; "
                f"the first is on {self.nodes[late[0]] if late else 'no node'}"
            ) from error
        except exceptions.RayError as error:
            raise errors.Peer(self._sentence(method, refs, error)) from error

    def _sentence(self, method: str, refs: list[tuple[int, typing.Any]], error: BaseException) -> str:
        """Who failed: one that died before one that raised, since others may fail because of it."""
        found = [(rank, failure) for rank, ref in refs if (failure := _failure_of(ref)) is not None]
        dead = [(rank, failure) for rank, failure in found if is_death(failure)]
        for rank, failure in dead or found:
            return self.sentence(rank, method, failure)
        return f"{self.name}: '{method}' failed: {said(error)}"

    def sentence(self, rank: int, method: str, failure: BaseException) -> str:
        did = "died" if is_death(failure) else "failed"
        return f"rank {rank} of {self.name}, {self.nodes[rank]}, {did} in '{method}': {said(failure)}"

    def close(self) -> None:
        """Ends the processes."""
        handles, self.handles = self.handles, []  # before they end: who looks after them sees that it is meant
        for handle in handles:
            ray.kill(handle)
        for slot in self._slots:
            slot.entry.taken[slot.bundle] -= 1
        self._slots = []


def is_death(failure: BaseException) -> bool:
    return isinstance(failure, exceptions.RayActorError)


def _failure_of(ref: typing.Any) -> BaseException | None:
    if not ray.wait([ref], timeout=0, fetch_local=False)[0]:
        return None
    try:
        ray.get(ref)
    except exceptions.RayError as error:
        return typing.cast(BaseException, error)
    return None


def start(
    pool: ResourcePool,
    classes: Classes,
    prefix: str,
    worker_env: typing.Mapping[str, str],
    detached: bool,
    timeout: float,
) -> Hosts:
    """Starts an actor a slot, with its members. Raises Refused if a slot is full, Timeout, and Peer if one fails."""
    for key in worker_env:
        if key in ENVIRONMENT:
            raise errors.Refused(f"worker_env may not override {key}: the group sets it")
    prefix = prefix or secrets.token_hex(3)
    for rank, slot in enumerate(pool.slots):
        if slot.entry.taken[slot.bundle] >= pool.max_colocate_count:
            raise errors.Refused(
                f"'{prefix}{classes.name}': slot {rank} of pool '{pool.name_prefix}' has "
                f"{slot.entry.taken[slot.bundle]} worker groups; max_colocate_count is {pool.max_colocate_count}"
            )
    nodes = pool.nodes()
    hosts = Hosts(f"'{prefix}' ({classes.name})")
    members = {key: member.cls for key, member in classes.members.items()}
    actor = ray.remote(host_class(classes.name, classes.methods(), members))
    try:
        places = _places(pool, f"{prefix}{classes.name}", worker_env, detached)
        for node, (name, options, slot) in zip(nodes, places):
            hosts.add(name, actor.options(name=name, **options).remote(), node, slot)
        _enter(hosts, classes, prefix, pool.store[0], timeout)
    except BaseException:
        hosts.close()
        raise
    return hosts


def _places(
    pool: ResourcePool, name: str, worker_env: typing.Mapping[str, str], detached: bool
) -> typing.Iterator[tuple[str, dict[str, typing.Any], Slot]]:
    """The name of each rank's actor, and what Ray is told of it."""
    order = {id(entry): number for number, entry in enumerate(pool.entries)}
    for slot in pool.slots:
        options = {
            "scheduling_strategy": strategies.PlacementGroupSchedulingStrategy(
                placement_group=slot.entry.group, placement_group_bundle_index=slot.bundle
            ),
            **pool.worker_share(),
        }
        if detached:
            options["lifetime"] = "detached"
        if worker_env:
            options["runtime_env"] = {"env_vars": dict(worker_env)}
        yield f"{name}_{order[id(slot.entry)]}:{slot.bundle}", options, slot


def _enter(hosts: Hosts, classes: Classes, prefix: str, first_entry: int, timeout: float) -> None:
    where = hosts.get(
        "start", [(rank, host.treadle_address.remote()) for rank, host in enumerate(hosts.handles)], timeout
    )
    common = {
        "WORLD_SIZE": str(len(hosts.handles)),
        "WG_PREFIX": prefix,
        "WG_BACKEND": "ray",
        "WG_NODES": str(len({node for _, _, node in where})),
        "RAY_LOCAL_WORLD_SIZE": str(first_entry),
        "MASTER_ADDR": where[0][0],
        "MASTER_PORT": str(where[0][1]),
    }
    given = ray.put({key: (m.cls, m.arguments, m.named) for key, m in classes.members.items()})
    made = []
    for rank, host in enumerate(hosts.handles):
        host.treadle_enter.remote({**common, "RANK": str(rank)})
        made.append((rank, host.treadle_start.remote(given)))
    hosts.get("__init__", made, timeout)


def find(names: typing.Sequence[str], prefix: str, classes: Classes, timeout: float) -> Hosts:
    """Actors that another process made, by their names. Raises Refused if there is none of a name."""
    hosts = Hosts(f"'{prefix}' ({classes.name})")
    for name in names:
        try:
            hosts.add(name, ray.get_actor(name))
        except ValueError as error:
            raise errors.Refused(f"from_detached: no worker is called '{name}' in this namespace") from error
    where = hosts.get(
        "address", [(rank, host.treadle_address.remote()) for rank, host in enumerate(hosts.handles)], timeout
    )
    hosts.nodes = [node for _, _, node in where]
    return hosts
