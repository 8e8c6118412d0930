"""Groups of workers: one process a slot of a pool, and the registered methods of their class."""

from __future__ import annotations

import functools
import typing
import weakref

from .. import errors
from . import _hosts
from ._classes import ALONE, ColocatedClasses
from ._divide import column, divide, divide_own
from ._futures import Future, Result
from ._hosts import Classes, Hosts
from ._pools import ResourcePool
from ._ray import need_cluster
from ._register import Dispatch, Execute, Mesh, Mode, Own
from ._rows import joined, register_batches
from ._shares import Spec, length_of, shares_of
from ._watch import Watch
from ._worker import FUNCTION, Call, Host


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
        self._refuse_names(class_with_init)
        if detached and not resource_pool.detached:
            raise errors.Refused(
                "detached workers need a detached pool: its placement groups would end with this process"
            )
        hosts = _hosts.start(resource_pool, class_with_init, name_prefix, worker_env or {}, detached, timeout)
        self._take(hosts, class_with_init)

    @classmethod
    def from_detached(
        cls,
        worker_names: typing.Sequence[str],
        class_with_init: Classes,
        *,
        name_prefix: str = "",
        timeout: float = 300,
    ) -> WorkerGroup:
        """A group of workers that another process made, by their names (worker_names), in the order of ranks. Ray looks
        in the namespace of ray.init."""
        need_cluster("from_detached")
        register_batches()
        cls._refuse_names(class_with_init)
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
        self._plain = {
            (of, mode.name): name for name, (of, mode) in methods.items()
        }  # the actor has them by these names
        if key != ALONE:
            methods = {mode.name: (key, mode) for _, (of, mode) in methods.items() if of == key}
        self.methods = sorted(methods)
        for name, (of, mode) in methods.items():
            setattr(self, name, functools.partial(self._call, of, mode))

    @classmethod
    def _refuse_names(cls, classes: Classes) -> None:
        for public, (_, mode) in classes.methods().items():
            for name in (public, mode.name):
                if hasattr(cls, name) or hasattr(Host, name) or name == "methods":
                    raise errors.Refused(f"'{name}' of {classes.name} is a name of WorkerGroup: give it another one")

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
        """Looks after the workers every `every` seconds. When one has died, says so on standard error and ends this
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
        raise AttributeError(f"'{name}' is not a registered method of the group's class, which has {methods}")

    # ---- Calls of registered methods ----

    def _call(self, key: str, mode: Mode, *arguments: typing.Any, **named: typing.Any) -> typing.Any:
        names = list(named)
        values = [*arguments, *named.values()]
        counts = mode.collects_rows and not mode.blocking
        head = Call(key, mode.name, 0, unpads=mode.collects_rows, counts=counts, materialize=mode.materialize)
        if isinstance(mode.dispatch, Own):
            calls = divide_own(self, head, mode.dispatch, arguments, named)
            if mode.execute == Execute.RANK_ZERO:
                calls = calls[:1]
            collected = list(range(len(calls)))
        else:
            calls, collected = divide(head, mode, self._spec(key, mode), values, names)
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

    def _spec(self, key: str, mode: Mode) -> Spec:
        mesh = mode.dispatch.name if isinstance(mode.dispatch, Mesh) else ""
        registered = self._mesh(key, mesh) if mesh else ()
        execute = mode.execute.value
        return Spec(mode.kind, execute, self.world_size, mesh, registered, self.auto_padding, self.pad_with_first)

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
        """Calls a method of all workers, registered or not: Ray's places of results, by rank. If all arguments are
        lists with an item for each worker, each gets its own."""
        spec = Spec("ALL_TO_ALL", "ALL", self.world_size)
        values = [*arguments, *named.values()]
        shares = shares_of(spec, tuple(map(length_of, values)))
        columns = [column(value, shares, spec) for value in values]
        count = len(arguments)
        return [
            self._send(
                Call(self._only(method_name), method_name, rank),
                [parts[rank] for parts in columns[:count]],
                {key: parts[rank] for key, parts in zip(named, columns[count:])},
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
            raise errors.Refused(
                f"'{what}': the group has {', '.join(self._classes.members)}; spawn() gives a group for each"
            )
        cls = self._classes.members[self._key].cls
        if what != "function" and not callable(getattr(cls, what, None)):
            raise errors.Refused(
                f"{cls.__name__} has no method '{what}'; registered are {', '.join(self.methods) or 'none'}"
            )
        return self._key

    def __repr__(self) -> str:
        return f"<treadle.ray.WorkerGroup {self._hosts.name} of {self.world_size}>"
