"""Groups of workers: one process a slot of a pool, and the registered methods of their class as methods of the group."""

from __future__ import annotations

import functools
import typing
import weakref

from .. import errors
from . import _hosts
from ._classes import ALONE, ColocatedClasses
from ._futures import Future, Result
from ._hosts import Classes, Hosts
from ._pools import ResourcePool
from ._ray import need_cluster, ray
from ._register import Dispatch, Execute, Mesh, Mode, Own
from ._rows import are_rows, divided, joined, register_batches
from ._shares import Length, Spec, known, length_of, need_items, shares_of
from ._watch import Watch
from ._worker import FUNCTION, Call

_LARGE = 100_000  #: bytes of an argument that goes whole to several workers: above, it goes to Ray's store once


class WorkerGroup:
    """The workers of a pool. Each method of their class that has @register is a method of the group.

    resource_pool: of which each slot gets a process. class_with_init: ClassWithInitArgs, or what
    create_colocated_worker_cls gives. name_prefix: of the workers' names in Ray, PREFIX CLASS_ENTRY:SLOT without the
    space; six letters by chance unless it is given. worker_env: added to the environment of the workers; may not
    override what the group sets. detached: workers outlive this process; the pool must, too. timeout: seconds until
    all workers are made.

    auto_padding, pad_with_first: of calls that divide rows (docs/dispatch.md); may be set at any time.
    Raises Refused for what cannot be, Peer if a worker fails, and Timeout."""

    def __init__(
        self,
        resource_pool: ResourcePool,
        class_with_init: Classes,
        *,
        name_prefix: str = "",
        worker_env: typing.Mapping[str, str] | None = None,
        detached: bool = False,
        timeout: float = 300,
    ) -> None:
        need_cluster("WorkerGroup")
        register_batches()
        if detached and not resource_pool.detached:
            raise errors.Refused("detached workers need a detached pool: its placement groups would end with this process")
        hosts = _hosts.start(resource_pool, class_with_init, name_prefix, worker_env or {}, detached, timeout)
        self._take(hosts, class_with_init)

    @classmethod
    def from_detached(
        cls, worker_names: typing.Sequence[str], class_with_init: Classes, *, name_prefix: str = "", timeout: float = 300
    ) -> WorkerGroup:
        """A group of workers that another process made, by their names (worker_names), in the order of ranks. Ray looks
        in the namespace of ray.init."""
        need_cluster("from_detached")
        register_batches()
        group = cls.__new__(cls)
        group._take(_hosts.find(worker_names, name_prefix or "detached", class_with_init, timeout), class_with_init)
        return group

    def _take(self, hosts: Hosts, classes: Classes, key: str = ALONE) -> None:
        self._hosts, self._classes, self._key = hosts, classes, key
        self.auto_padding = self.pad_with_first = False
        self._meshes: dict[str, tuple[tuple[int, bool], ...]] = {}
        self._callers: dict[tuple[str, str, int, bool], typing.Any] = {}  # Ray's: by member, method, rank, with a Call
        self._running = ""
        self._futures: weakref.WeakSet[Future] = weakref.WeakSet()
        self._watch: Watch | None = None
        methods = classes.methods()
        self._plain = {(of, mode.name): name for name, (of, mode) in methods.items()}  # the actor has them by these names
        if key != ALONE:
            methods = {mode.name: (key, mode) for _, (of, mode) in methods.items() if of == key}
        self.methods = sorted(methods)
        for name, (of, mode) in methods.items():
            if hasattr(type(self), name):
                raise errors.Refused(f"'{name}' of {classes.name} is a name of WorkerGroup: give the method another one")
            setattr(self, name, functools.partial(self._call, of, mode))

    # ---- What it is ----

    @property
    def world_size(self) -> int:
        return len(self._hosts.names)

    @property
    def worker_names(self) -> list[str]:
        """In Ray, by rank."""
        return list(self._hosts.names)

    @property
    def workers(self) -> list[typing.Any]:
        """Ray's handles, by rank."""
        return list(self._hosts.handles)

    @property
    def nodes(self) -> list[str]:
        """Of each rank: "node 10.0.0.1 (0a1b2c3d)", its address and the head of Ray's id."""
        return list(self._hosts.nodes)

    def spawn(self, prefixes: typing.Iterable[str]) -> dict[str, WorkerGroup]:
        """Of colocated classes: a group for each prefix, on the same processes."""
        if not isinstance(self._classes, ColocatedClasses) or self._key != ALONE:
            raise errors.Refused("spawn: this group has one class; create_colocated_worker_cls puts several together")
        groups: dict[str, WorkerGroup] = {}
        for prefix in prefixes:
            if prefix not in self._classes.members:
                raise errors.Refused(f"spawn: no class '{prefix}'; classes: {', '.join(self._classes.members)}")
            group = groups[prefix] = type(self).__new__(type(self))
            group._take(self._hosts, self._classes, prefix)
        return groups

    def close(self) -> None:
        """Ends the workers, also for groups that share them."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        self._hosts.close()

    def watch(self, every: float = 1.0, on_death: typing.Callable[[str], object] | None = None) -> None:
        """Looks after the workers every so many seconds. When one has died, says so on standard error and ends this
        process by SIGABRT; or calls on_death with the sentence, once, in another thread. Calls that wait raise Peer
        without it."""
        if self._watch is not None:
            raise errors.State("watch: the group is watched already")
        self._watch = Watch(self._hosts, self._doing, every, on_death)

    def _doing(self) -> str:
        """The method whose results are waited for."""
        if self._running:
            return self._running
        return next((future._method for future in list(self._futures) if not future.ready()), "nothing")

    def __getattr__(self, name: str) -> typing.Any:
        if name.startswith("_"):
            raise AttributeError(name)
        methods = ", ".join(self.__dict__.get("methods", [])) or "none"
        raise AttributeError(f"'{name}' is no registered method of the group's class; it has {methods}")

    # ---- Calls of registered methods ----

    def _call(self, key: str, mode: Mode, *arguments: typing.Any, **named: typing.Any) -> typing.Any:
        names = list(named)
        values = [*arguments, *named.values()]
        counts = mode.collects_rows and not mode.blocking
        head = Call(key, mode.name, 0, unpads=mode.collects_rows, counts=counts, materialize=mode.materialize)
        if isinstance(mode.dispatch, Own):
            given = self._divide_own(mode.dispatch, mode, arguments, named)
            calls = [(head._replace(rank=rank), *parts) for rank, parts in enumerate(given)]
            if mode.execute == Execute.RANK_ZERO:
                calls = calls[:1]
            collected = list(range(len(calls)))
        else:
            calls, collected = self._divide(head, mode, values, len(arguments), names)
        refs, sizes = [], []
        for call, positional, by_name in calls:
            sent = self._send(call, positional, by_name)
            refs.append((call.rank, sent[1] if counts else sent))
            sizes.append(sent[0] if counts else None)
        back = set(collected)
        finish = functools.partial(self._finish, mode, [i for i, (rank, _) in enumerate(refs) if rank in back])
        if mode.blocking:
            return finish(self._fetch(mode.name, refs))
        result = None
        if not isinstance(mode.dispatch, Own):
            form = "rows" if mode.collects_rows else "one" if mode.execute == Execute.RANK_ZERO else "list"
            chosen = [i for i, (rank, _) in enumerate(refs) if rank in back]
            result = Result(form, [refs[i][1] for i in chosen], [sizes[i] for i in chosen] if counts else [], mode.name)
        future = Future(self, mode.name, refs, finish, result)
        self._futures.add(future)
        return future

    def _finish(self, mode: Mode, chosen: list[int], results: list[typing.Any]) -> typing.Any:
        if isinstance(mode.dispatch, Own):
            return mode.dispatch.collect(self, results)
        kept = [results[i] for i in chosen]
        if mode.collects_rows:
            return joined(kept)
        return kept[0] if mode.execute == Execute.RANK_ZERO else kept

    def _divide_own(
        self, own: Own, mode: Mode, arguments: tuple[typing.Any, ...], named: dict[str, typing.Any]
    ) -> list[tuple[list[typing.Any], dict[str, typing.Any]]]:
        given, by_name = own.dispatch(self, *arguments, **named)
        what = f"{mode.name}: dispatch_fn gave an argument that"
        columns = [need_items(what, values, self.world_size) for values in given]
        rows = {key: need_items(what, values, self.world_size) for key, values in by_name.items()}
        return [
            ([column[rank] for column in columns], {key: values[rank] for key, values in rows.items()})
            for rank in range(self.world_size)
        ]

    def _divide(
        self, head: Call, mode: Mode, values: list[typing.Any], positional: int, names: list[str]
    ) -> tuple[list[tuple[Call, list[typing.Any], dict[str, typing.Any]]], list[int]]:
        """(call, arguments, named arguments) of each worker that runs; and ranks whose results come back."""
        mesh = mode.dispatch.name if isinstance(mode.dispatch, Mesh) else ""
        spec = Spec(
            mode.kind,
            mode.execute.value,
            self.world_size,
            mesh,
            self._mesh(head.key, mesh) if mesh else (),
            self.auto_padding,
            self.pad_with_first,
        )
        held = [value.result if isinstance(value, Future) else value for value in values]
        lengths = tuple(map(_length_of, held))
        late = mode.divides_rows and any(isinstance(v, Result) and v.form == "rows" for v in held)
        count = known(lengths)
        first = tuple((kind, count if kind == "rows" and n is None else n) for kind, n in lengths)
        if late and count is None:  # who runs and who collects does not depend on it
            spec_of_roles, first = spec._replace(auto_padding=True), tuple((k, n or 0) for k, n in first)
        else:
            spec_of_roles = spec
        shares = shares_of(spec_of_roles, first)
        columns = [self._column(value, shares, spec) for value in held]
        calls = []
        for rank, share in enumerate(shares):
            if not share.runs:
                continue
            if late:
                call = head._replace(rank=rank, spec=spec, lengths=lengths)
            else:
                call = head._replace(rank=rank, given=len(share.rows), padding=share.padding)
            given = [column[rank] for column in columns]
            calls.append((call, given[:positional], dict(zip(names, given[positional:]))))
        return calls, [rank for rank, share in enumerate(shares) if share.collected]

    def _column(self, value: typing.Any, shares: typing.Sequence[typing.Any], spec: Spec) -> list[typing.Any]:
        """An argument's part for each worker."""
        if isinstance(value, Result):
            if value.form == "list" and not shares[0].whole:
                return [value.item(share.rows[0]) for share in shares]
            return [value] * len(shares)
        if isinstance(value, (list, tuple)):
            return [value if share.whole or not share.rows else value[share.rows[0]] for share in shares]
        if not are_rows(value) or shares[0].whole:
            return [_once(value, len(shares))] * len(shares)
        made: dict[tuple[int, int], typing.Any] = {}  # workers with one dp rank get one object
        often = len({share.rows for share in shares}) < len(shares)
        for share in shares:
            where = share.rows.start, share.rows.stop
            if where not in made:
                part = divided(value, share.rows, spec.pad_with_first)
                made[where] = ray.put(part) if often else part
        return [made[share.rows.start, share.rows.stop] for share in shares]

    def _mesh(self, key: str, name: str) -> tuple[tuple[int, bool], ...]:
        """(dp rank, collects) of each worker, asked once."""
        if name not in self._meshes:
            asked = [(rank, host.treadle_mesh.remote(key, name)) for rank, host in enumerate(self._hosts.handles)]
            found = self._fetch("register_mesh", asked)
            for rank, registered in enumerate(found):
                if registered is None:
                    raise errors.Refused(f"mesh '{name}' is not registered by worker {rank} of {self.world_size}")
            self._meshes[name] = tuple((int(dp_rank), bool(collects)) for dp_rank, collects in found)
        return self._meshes[name]

    def _send(self, call: Call, arguments: typing.Sequence[typing.Any], named: dict[str, typing.Any]) -> typing.Any:
        """Starts a call: its place, or those of the number of rows and of the rows."""
        held = [value.result if isinstance(value, Future) else value for value in arguments]
        held_by_name = {k: value.result if isinstance(value, Future) else value for k, value in named.items()}
        plain = self._plain.get((call.key, call.method)) if not (call.unpads or call.spec or call.padding) else None
        place = call.key, call.method, call.rank, plain is None
        caller = self._callers.get(place)
        if caller is None:
            if not self._hosts.handles:
                raise errors.State(f"'{call.method}': the group {self._hosts.name} is closed")
            handle = self._hosts.handles[call.rank]
            if plain is not None:
                caller = getattr(handle, plain)
            else:
                named_so = {"name": call.method or "function", "num_returns": 2 if call.counts else 1}
                caller = handle.treadle_call.options(**named_so)
            self._callers[place] = caller
        if plain is not None:
            return caller.remote(*held, **held_by_name)
        return caller.remote(call, *held, **held_by_name)

    def _fetch(self, method: str, refs: list[tuple[int, typing.Any]], timeout: float | None = None) -> list[typing.Any]:
        before, self._running = self._running, method
        try:
            return self._hosts.get(method, refs, timeout)
        finally:
            self._running = before

    # ---- Calls by name ----

    def execute_all_async(self, method_name: str, *arguments: typing.Any, **named: typing.Any) -> list[typing.Any]:
        """Calls a method of all workers, registered or not: Ray's places of results, by rank. If all arguments are lists
        with an item for each worker, each gets its own."""
        spec = Spec("ALL_TO_ALL", "ALL", self.world_size)
        values = [*arguments, *named.values()]
        shares = shares_of(spec, tuple(map(length_of, values)))
        columns = [self._column(value, shares, spec) for value in values]
        count = len(arguments)
        return [
            self._send(
                Call(self._only(method_name), method_name, rank),
                [column[rank] for column in columns[:count]],
                {key: column[rank] for key, column in zip(named, columns[count:])},
            )
            for rank in range(self.world_size)
        ]

    def execute_all_sync(self, method_name: str, *arguments: typing.Any, **named: typing.Any) -> list[typing.Any]:
        """The results of execute_all_async."""
        return self._fetch(method_name, list(enumerate(self.execute_all_async(method_name, *arguments, **named))))

    def execute_rank_zero_async(self, method_name: str, *arguments: typing.Any, **named: typing.Any) -> typing.Any:
        """Calls a method of rank 0: Ray's place of the result."""
        return self._send(Call(self._only(method_name), method_name, 0), arguments, named)

    def execute_rank_zero_sync(self, method_name: str, *arguments: typing.Any, **named: typing.Any) -> typing.Any:
        """The result of execute_rank_zero_async."""
        return self._fetch(method_name, [(0, self.execute_rank_zero_async(method_name, *arguments, **named))])[0]

    execute_all = execute_all_async
    execute_rank_zero = execute_rank_zero_async

    def execute_with_func_generator(self, function: typing.Callable[..., typing.Any], *rows: typing.Any) -> typing.Any:
        """Runs function(worker, *its rows) in all workers; rows are divided, and one batch comes back."""
        mode = Mode(FUNCTION, Dispatch.DP_COMPUTE_PROTO_WITH_FUNC, Execute.ALL, True, True)
        return self._call(self._only("function"), mode, function, *rows)

    def execute_func_rank_zero(self, function: typing.Callable[..., typing.Any], *arguments: typing.Any) -> typing.Any:
        """Runs function(worker, *arguments) in the worker of rank 0, and gives its result."""
        call = Call(self._only("function"), FUNCTION, 0)
        return self._fetch("function", [(0, self._send(call, [function, *arguments], {}))])[0]

    def _only(self, what: str) -> str:
        """The key of its class."""
        if self._key == ALONE and ALONE not in self._classes.members:
            raise errors.Refused(f"'{what}': the group has {', '.join(self._classes.members)}; spawn() gives a group for each")
        cls = self._classes.members[self._key].cls
        if what != "function" and not callable(getattr(cls, what, None)):
            raise errors.Refused(f"{cls.__name__} has no method '{what}'; registered are {', '.join(self.methods) or 'none'}")
        return self._key

    def __repr__(self) -> str:
        return f"<treadle.ray.WorkerGroup {self._hosts.name} of {self.world_size}>"


def _length_of(value: object) -> Length:
    if isinstance(value, Result):
        return {"rows": ("rows", None), "list": ("list", len(value.refs))}.get(value.form, ("value", 0))
    return length_of(value)


def _once(value: typing.Any, workers: int) -> typing.Any:
    """What goes whole to several workers."""
    size = getattr(value, "nbytes", len(value) if isinstance(value, (bytes, bytearray)) else 0)
    large = are_rows(value) or (isinstance(size, int) and size > _LARGE)
    return ray.put(value) if large and workers > 1 else value
