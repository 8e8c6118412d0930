"""`treadle train` on a Ray cluster: Ray places and starts its processes, and sees which of them die.

A process is a slot of a pool, and one more is the controller: rank 0, on the node of the first slot. Slot s is rank
s + 1. Each is an actor (_slot.py) that runs the command. Its ranks meet at an address of the controller's node, as with
--meet, and call each other by treadle's own connections: nothing of the run goes through Ray but what the command
prints.

A run is over when rank 0 has ended, or when another rank has failed: then rank 0 says what it was, and ends by
itself."""

from __future__ import annotations

import itertools
import os
import secrets
import signal
import sys
import time
import typing

from .. import __version__, config, errors
from ._cluster import cluster
from ._hosts import is_death
from ._output import Output
from ._pools import ResourcePoolManager
from ._ray import exceptions, nodes, ray, said, strategies
from ._slot import Place, Slot
from ._stop import Stop, Stopped

START = 600.0  #: seconds until all actors are there
FAILING = 75.0  #: seconds in which a run ends by itself after a rank has failed: more than the 60 of its silence
ENDING = 10.0  #: the same after rank 0 has ended
KILLING = 5.0  #: and after actors were killed
LOOK = 0.2
LOST = 1  #: the exit status of a rank whose actor is gone


class Request(typing.NamedTuple):
    config: str
    words: list[str]  #: of the command, behind CONFIG
    address: str = "auto"  #: of the cluster; "local": one of this machine, made for the run
    cpus: float = 1.0  #: of a slot
    slots: int | None = None  #: if the configuration has no pools


class Rank:
    """what: "of ActorRollout, RefPolicy (pool 'policy')"."""

    def __init__(self, number: int, what: str, node: str, handle: typing.Any) -> None:
        self.number, self.what, self.node, self.handle = number, what, node, handle
        self.name = f"rank {number} {what}"
        self.status: int | None = None  #: None: it runs


def say(text: str) -> None:
    print(f"treadle.ray: {text}", file=sys.stderr, flush=True)


def run(request: Request) -> int:
    """The exit status. Raises Refused for what cannot be, Peer for a node that does not start it, Timeout."""
    asked = config.entries(request.config, _settings(request.words))
    _check_pools(request, asked)
    stop = Stop()
    try:
        with cluster(request.address) as where, stop:
            entries = asked.entries
            if asked.place is None:
                entries, words = _one_pool(request, entries[0])
                request = request._replace(words=[*request.words, *words])
            return _run_in(_pools(entries, request.cpus), entries, request, where, stop)
    except Stopped as stopped:
        return 128 + stopped.number


def _run_in(
    manager: ResourcePoolManager, entries: list[config.Entry], request: Request, where: str, stop: Stop
) -> int:
    ranks: list[Rank] = []
    folder, job = os.getcwd(), f"ray-{secrets.token_hex(8)}"
    try:
        _place(manager, entries, ranks)
        meet = _meet(ranks, folder)
        _show(where, ranks)
        for rank in ranks:
            own = ["--meet", meet, "--job", job, "--rank", str(rank.number), "--ranks", str(len(ranks))]
            rank.handle.start.remote(["train", request.config, *request.words, *own], folder)
        stop.raises = False
        return _Following(ranks, stop).follow()
    finally:
        stop.raises = False
        for rank in ranks:
            ray.kill(rank.handle)
        manager.close()


# ---- Pools ----


def _settings(words: typing.Iterable[str]) -> list[str]:
    return [word for word in words if "=" in word and not word.startswith("-")]


def _check_pools(request: Request, asked: config.Entries) -> None:
    if asked.place is None:
        return
    if request.slots is not None:
        raise errors.Refused(f"--slots: {request.config}: {asked.place} says which pools there are; change them there")
    if asked.takes_all:
        raise errors.Refused(
            f"{request.config}: {asked.place} gives roles all slots that there are; on Ray, say how many: "
            "resource_pools and mapping"
        )


def _one_pool(request: Request, entry: config.Entry) -> tuple[list[config.Entry], list[str]]:
    """Of all roles, on one node, since their engines are; and the words that say so to the command."""
    count = request.slots
    if count is None:
        count = int(max((node["Resources"].get("CPU", 0) for node in nodes()), default=0) / request.cpus + 1e-6)
    if count < 1:
        raise errors.Refused(f"no node of the cluster has {request.cpus:g} processors for a slot; see --cpus")
    mapping = ", ".join(f"{role}: {entry.pool}" for role in entry.roles)
    words = [f"resource_pools={{{entry.pool}: [{count}]}}", f"mapping={{{mapping}}}"]
    return [entry._replace(slots=list(range(count)))], words


def _pools(entries: typing.Sequence[config.Entry], cpus: float) -> ResourcePoolManager:
    """With their placement groups."""
    counts: dict[str, list[int]] = {}
    for entry in entries:
        counts.setdefault(entry.pool, []).append(len(entry.slots))
    mapping = {role: entry.pool for entry in entries for role in entry.roles}
    manager = ResourcePoolManager(counts, mapping, use_gpu=False, max_colocate_count=1, cpus=cpus)
    try:
        manager.create_resource_pool()
    except errors.Refused as error:
        raise errors.Refused(f"{error}. A slot takes {cpus:g} CPU (--cpus)") from error
    return manager


# ---- Processes ----


def _place(manager: ResourcePoolManager, entries: typing.Sequence[config.Entry], ranks: list[Rank]) -> None:
    """Adds all ranks, whose actors are starting."""
    actor = ray.remote(Slot)
    first = next(iter(manager.resource_pool_dict.values()))
    by_node = strategies.NodeAffinitySchedulingStrategy(first.node_ids()[0], soft=False)
    controller = actor.options(name="rank 0", num_cpus=0, max_concurrency=4, scheduling_strategy=by_node).remote()
    ranks.append(Rank(0, "(the controller)", first.nodes()[0], controller))
    made: dict[int, Rank] = {}
    for name, pool in manager.resource_pool_dict.items():
        of_pool = [entry for entry in entries if entry.pool == name]
        numbers = [slot + 1 for entry in of_pool for slot in entry.slots]
        what = f"of {', '.join(of_pool[0].roles)} (pool '{name}')"
        for number, node, (entry, bundle) in zip(numbers, pool.nodes(), pool.slots):
            where = strategies.PlacementGroupSchedulingStrategy(entry.group, placement_group_bundle_index=bundle)
            options = {"scheduling_strategy": where, "max_concurrency": 4, **pool.worker_share()}
            made[number] = Rank(number, what, node, actor.options(name=f"rank {number}", **options).remote())
    ranks.extend(made[number] for number in sorted(made))


def _meet(ranks: typing.Sequence[Rank], folder: str) -> str:
    """Waits for all actors, and gives the address at which ranks meet. Raises Peer, Refused and Timeout by node."""
    asked = {rank.handle.place.remote(folder): rank for rank in ranks}
    end = time.monotonic() + START
    meet = ""
    while asked:
        ready, late = ray.wait(list(asked), timeout=LOOK)
        if not ready and time.monotonic() > end:
            rank = asked[late[0]]
            raise errors.Timeout(
                f"{rank.name}, {rank.node}, has not started in {START:g} s, and {len(late) - 1} others"
            )
        for ref in ready:
            rank = asked.pop(ref)
            place = _place_of(rank, ref)
            _check(rank, place, folder)
            if rank.number == 0:
                meet = place.meet
    return meet


def _place_of(rank: Rank, ref: typing.Any) -> Place:
    try:
        return typing.cast(Place, ray.get(ref))
    except exceptions.RayError as error:
        raise errors.Peer(
            f"{rank.name}, {rank.node}, has not started: {said(error)}. Each node needs treadle {__version__}: "
            "pip install 'treadle[ray]'"
        ) from error


def _check(rank: Rank, place: Place, folder: str) -> None:
    if place.version != __version__:
        raise errors.Refused(f"{rank.name}: {place.node} has treadle {place.version}, and this process {__version__}")
    if not place.has_folder:
        raise errors.Refused(
            f"{rank.name}: {place.node} has no folder {folder}, where this process is: a run needs the same paths on "
            "all nodes"
        )


def _show(where: str, ranks: typing.Sequence[Rank]) -> None:
    """Which ranks are where, neighbours in one line."""
    say(f"{where}: {len(ranks)} processes. Ctrl-C ends the run after the step at hand, with a checkpoint")
    for (what, node), group in itertools.groupby(ranks, lambda rank: (rank.what, rank.node)):
        numbers = [rank.number for rank in group]
        say(f"rank{f's {numbers[0]} to {numbers[-1]}' if numbers[1:] else f' {numbers[0]}'} {what}: {node}")


# ---- While it runs ----


class _Following:
    def __init__(self, ranks: typing.Sequence[Rank], stop: Stop) -> None:
        self._ranks, self._stop, self._output = ranks, stop, Output()
        self._end = float("inf")  # when what still runs is killed
        self._passed = False  # has the signal been passed on?

    def follow(self) -> int:
        waits = {rank.handle.news.remote(): rank for rank in self._ranks}
        while waits and not self._stop.again and time.monotonic() < self._end:
            self._hear(waits, LOOK)
            if self._stop.number and not self._passed:
                self._pass_on(self._stop.number)
        left = list(waits.values())
        if left and not self._stop.again:
            say(f"{', '.join(rank.name for rank in left)}: not ended, and killed")
        for rank in left:
            ray.kill(rank.handle)
        end = time.monotonic() + KILLING
        while waits and time.monotonic() < end:
            self._hear(waits, LOOK, killed=True)
        self._output.end()
        return self._status(left)

    def _hear(self, waits: dict[typing.Any, Rank], seconds: float, killed: bool = False) -> None:
        ready, _ = ray.wait(list(waits), timeout=seconds)
        for ref in ready:
            rank = waits.pop(ref)
            try:
                news = ray.get(ref)
            except exceptions.RayError as error:
                rank.status = LOST
                if not killed:
                    say(f"{rank.name}, {rank.node}, {'died' if is_death(error) else 'failed'}: {said(error)}")
            else:
                for stream, some in news.said:
                    self._output.take(rank.number, stream, some)
                rank.status = news.status
                if rank.status is not None and rank.status < 0 and not self._passed:
                    say(f"{rank.name}, {rank.node}, was ended by {_signal_name(-rank.status)}")
            if rank.status is None:
                waits[rank.handle.news.remote()] = rank
            elif rank.number == 0:
                self._end = min(self._end, time.monotonic() + ENDING)
            elif rank.status != 0:
                self._end = min(self._end, time.monotonic() + FAILING)

    def _pass_on(self, number: int) -> None:
        """To all ranks: another one than rank 0 may wait for rewards."""
        self._passed = True
        say(f"{_signal_name(number)}: the run ends after the step at hand; once more ends it at once")
        for rank in self._ranks:
            rank.handle.signal.remote(number)

    def _status(self, killed: typing.Sequence[Rank]) -> int:
        if self._stop.again:
            return 128 + self._stop.again
        first = self._ranks[0]
        if first.status is None or first in killed:
            return LOST
        if first.status < 0:
            return 128 - first.status
        others = [rank.status for rank in self._ranks[1:] if rank.status]
        if first.status == 0 and (others or killed or self._output.is_broken):
            return 1
        return first.status


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
