"""Groups: the ranks that switch together."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
import typing

from . import _abi, _library, errors
from ._nodes import node_of

if typing.TYPE_CHECKING:
    from ._net import Torch

_REFUSING = 10.0  # seconds, in which ranks that refuse a process group wait for the others
_SLICE = 0.02  # seconds between two looks into a store: Ctrl-C is handled in between


class Store(typing.Protocol):
    """What Group.store needs: torch.distributed's stores are such."""

    def set(self, key: str, value: bytes) -> typing.Any: ...

    def get(self, key: str) -> typing.Any:
        """Waits until the key is there."""


class Group:
    """The ranks that switch together: made by alone, join, store, torch or mpi. Those of a store, and so of torch, may
    be on several machines (nodes): then what goes between them goes by a net: "tcp", sockets, which need nothing;
    "ucx", for InfiniBand (Debian's libucx0, or a wheel libucx-cu12); or "torch" (Group.torch). Functions that make or
    use a group are collective: all ranks call them in the same order."""

    _object: _library.Object
    _user: str | None = None  # the switch whose arrow runs, or the run: nobody else may use the group meanwhile
    _lock: threading.Lock  # of _user
    _net: Torch | None = None  # the net "torch"
    _members: dict[int, int] | None = None  # torch's ranks to those of this group; None: they are the same

    def __init__(self) -> None:
        raise TypeError("a group is made by Group.alone, .join, .store, .torch or .mpi")

    @classmethod
    def _make(cls, name: str, *arguments: typing.Any, callbacks: _library.Callbacks | None = None) -> Group:
        pointer = ctypes.c_void_p()
        _library.call(name, *arguments, ctypes.byref(pointer), callbacks=callbacks)
        group = cls.__new__(cls)
        group._object = _library.Object(pointer, "treadle_group_close")
        group._lock = threading.Lock()
        return group

    @classmethod
    def alone(cls, *, timeout: float = 60) -> Group:
        """One rank, this process."""
        return cls._make("treadle_group_self")

    @classmethod
    def join(cls, name: str, rank: int, size: int, *, timeout: float = 60) -> Group:
        """Processes of this machine that agree on a name (letters and digits, nobody else's meanwhile). timeout:
        seconds, of each wait. Raises Timeout with the ranks that did not come, Refused, Peer."""
        return cls._make("treadle_group_open", _library.given("the name of the group", name), rank, size, timeout)

    @classmethod
    def store(
        cls,
        store: Store,
        rank: int,
        size: int,
        *,
        job: str = "0",
        nodes: int | typing.Sequence[int] | None = None,
        net: str = "tcp",
        timeout: float = 60,
    ) -> Group:
        """Ranks that meet by a store: any object with set(key, bytes), and get(key) that waits. What an older job has
        left in it does no harm. Groups that meet at the same time need different names of their jobs.
        nodes: which ranks share a node, a number of nodes of equally many neighbours, or the node of each rank: for
        trying out on one machine what happens on several; ranks of one node have to be on one machine. None: ranks find
        out which of them are on one machine.
        The first rank of each node listens at the machine's address on a port of its own until all have met. Raises
        Refused when ranks differ in size or version; Timeout with the ranks that did not come, Peer, and System with
        what the store raised as its cause."""
        numbers = node_of(nodes, size, "group")
        node = numbers[rank] if numbers is not None and 0 <= rank < size else -1
        _check_net(net, "group", ("tcp", "ucx"))
        calls = _StoreCalls(store)
        given = _library.sized(_abi.treadle_store, set=calls.set, get=calls.get, job=_library.given("job", job))
        try:
            return cls._make(
                "treadle_group_store", ctypes.byref(given), rank, size, node, timeout, callbacks=calls.callbacks
            )._choose(net)
        finally:
            calls.release()

    @classmethod
    def torch(
        cls,
        group: typing.Any = None,
        *,
        net: str = "tcp",
        nodes: int | typing.Sequence[int] | None = None,
        timeout: float = 60,
    ) -> Group:
        """The ranks of a process group of torch.distributed; None: the default group, for which init_process_group was
        called with any backend. Its store is used to meet. nodes: as in Group.store.

        net: what goes between nodes goes by "tcp" or "ucx", and then no function of torch.distributed that moves
        tensors or objects is called, now or later; or by "torch", isend and irecv of that process group, which nobody
        else may use for messages while an arrow runs. After an attempt that failed with messages under way the process
        group is not used again: the next arrow, and a new Group with it, are Refused on all ranks, and its connections
        are closed when the process ends. So give it one of its own (torch.distributed.new_group), and a new one after a
        failure.

        Raises State without a process group, Refused for a process that is not a rank of it, Timeout, Peer."""
        import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]
        from torch.distributed import distributed_c10d

        if not dist.is_available() or not dist.is_initialized():
            raise errors.State(
                "Group.torch: call torch.distributed.init_process_group first, or start with torchrun and do so"
            )
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        if rank < 0:
            raise errors.Refused("Group.torch: this process is not a rank of that process group")
        members = ".".join(map(str, dist.get_process_group_ranks(group))) if group is not None else "all"
        job = f"torch/{members if len(members) < 100 else hash_of(members)}"
        store: typing.Any = distributed_c10d._get_default_store()
        _check_net(net, "Group.torch", ("tcp", "ucx", "torch"))
        row = None
        if net == "torch":
            from ._net import Torch

            row = Torch(group)
        refusal = row.refusal() if row is not None else ""
        try:
            made = cls.store(
                store, rank, size, job=job, nodes=nodes, timeout=min(timeout, _REFUSING) if refusal else timeout
            )
        except errors.Error as error:
            raise (errors.Refused(refusal) if refusal else error) from error.__cause__
        made._agree(net, refusal)
        if row is not None:
            _library.call("treadle_group_set_net", made._use(), ctypes.byref(row.table), None)
            made._net = row
            made._object.keep = (*made._object.keep, row)
        else:
            made._choose(net)
        if group is not None:
            made._members = {of_torch: number for number, of_torch in enumerate(dist.get_process_group_ranks(group))}
        return made

    def _choose(self, net: str) -> Group:
        _library.call("treadle_group_choose_net", self._use(), _library.given("net", net))
        return self

    def _agree(self, net: str, refusal: str) -> None:
        """All ranks have the same net, and none refuses it: one that may not use a process group again knows that by
        itself."""
        said = [words.decode() for words in self.gather(f"{net}\n{refusal}".encode())]
        for rank, (name, _, why) in enumerate(words.partition("\n") for words in said):
            if why:
                raise errors.Refused(why)
            if name != net:
                raise errors.Refused(
                    f"Group.torch: rank {rank} has net '{name}', and rank {self.rank} '{net}': "
                    "all ranks have to give the same one"
                )

    @classmethod
    def mpi(
        cls,
        comm: typing.Any,
        *,
        address: str | None = None,
        nodes: int | typing.Sequence[int] | None = None,
        net: str = "tcp",
        timeout: float = 60,
    ) -> Group:
        """The ranks of a communicator of mpi4py, whatever MPI it is built with. It is used to meet, and never again. On
        several machines, and where `nodes` says so (as in Group.store), ranks meet further by a store that rank 0
        serves until all have met, at `address`, "10.0.0.1:7000"; None: the address by which rank 0's machine reaches
        others, and a free port. Raises Refused, Timeout, Peer."""
        import secrets

        rank, size = comm.Get_rank(), comm.Get_size()
        name = comm.bcast(secrets.token_hex(16) if rank == 0 else None, root=0)
        node, free, outside = _where()
        others = sum(other != node for other in comm.allgather(node))
        address, outside = comm.bcast((address or free, bool(address) or outside) if rank == 0 else None, root=0)
        numbers = node_of(nodes, size, "Group.mpi")
        _check_net(net, "Group.mpi", ("tcp", "ucx"))
        if numbers is None and not others:
            return cls.join(name, rank, size, timeout=timeout)
        if others and not outside:
            raise errors.Refused(
                "Group.mpi: ranks are on several machines, and rank 0's has no address by which others "
                "reach it: give one, address="
            )
        options = _library.sized(
            _abi.treadle_store_options,
            address=_library.given("address", address),
            job=_library.given("job", name),
            rank=rank,
            ranks=size,
            timeout_seconds=timeout,
        )
        store = _library.sized(_abi.treadle_store)
        _library.call("treadle_store_open", ctypes.byref(options), ctypes.byref(store))
        try:
            return cls._make(
                "treadle_group_store",
                ctypes.byref(store),
                rank,
                size,
                numbers[rank] if numbers is not None else -1,
                timeout,
            )._choose(net)
        finally:
            _library.value("treadle_store_close", ctypes.byref(store))

    def _use(self) -> ctypes.c_void_p:
        return self._object.use("Group")

    def _take(self, user: str | None = None) -> ctypes.c_void_p:
        """For a call that talks to the other ranks; of a switch (`user`) that may be the one whose arrow runs: the
        library says what it may do then."""
        if self._user not in (None, user):
            raise errors.State(f"rank {self.rank}: the group is used by {self._user}, which runs: wait for it first")
        return self._use()

    def _enter(self, user: str) -> bool:
        """For an arrow of a switch, or a run: nobody else may use the group until _leave. False: an arrow of that
        switch has it already, and the library refuses this one."""
        with self._lock:
            self._take(user)
            mine = self._user is None
            self._user = user
            return mine

    def _leave(self, mine: bool) -> None:
        if mine:
            self._user = None

    @property
    def rank(self) -> int:
        """Of this process: 0 to size - 1."""
        return int(_library.value("treadle_group_rank", self._use()))

    @property
    def size(self) -> int:
        """How many ranks it has."""
        return int(_library.value("treadle_group_size", self._use()))

    def barrier(self) -> None:
        """Waits until all ranks have called it. Raises Timeout, and Peer when a rank died or failed."""
        _library.call("treadle_group_barrier", self._take())

    def gather(self, mine: bytes) -> list[bytes]:
        """Gives `mine`, of any length, and gets what all ranks have given, in their order. Raises as barrier does."""
        piece = 4000
        most = max(int.from_bytes(b, "little") for b in self._gather(len(mine).to_bytes(8, "little")))
        parts = [bytearray() for _ in range(self.size)]
        for at in range(0, most, piece):
            part = mine[at : at + piece]
            for whole, other in zip(parts, self._gather(len(part).to_bytes(2, "little") + part.ljust(piece, b"\0"))):
                whole += other[2 : 2 + int.from_bytes(other[:2], "little")]
        return [bytes(whole) for whole in parts]

    def _tell(self, refusal: errors.Error | None) -> None:
        """All ranks raise where one has a refusal: it that, with its rank in the words, the others Peer with them.
        Collective."""
        said = self.gather(str(refusal).encode() if refusal is not None else b"")
        if refusal is not None:
            raise refusal
        if (first := next((one for one in said if one), None)) is not None:
            raise errors.Peer(first.decode())

    def _gather(self, mine: bytes) -> list[bytes]:
        count = len(mine)
        room = ctypes.create_string_buffer(count * self.size)
        _library.call("treadle_group_gather", self._take(), mine, count, room)
        everything = room.raw
        return [everything[i * count : (i + 1) * count] for i in range(self.size)]

    def __repr__(self) -> str:
        return f"<treadle.Group rank {self.rank} of {self.size}>"


@contextlib.contextmanager
def held(group: Group | None, user: str) -> typing.Iterator[ctypes.c_void_p | None]:
    """The group for a call, during which nobody else may use it. None: this process alone."""
    if group is None:
        yield None
        return
    entered = group._enter(user)
    try:
        yield group._use()
    finally:
        group._leave(entered)


def refuse(group: ctypes.c_void_p, error: Exception) -> None:
    """Tells the ranks of a call that this one cannot make it, since Python has refused what it was given. The call
    begins with an agreement."""
    status, words = errors.Refused.status, f"{type(error).__name__}: {error}"
    if isinstance(error, errors.Error):
        status, words = error.status, str(error)
    with contextlib.suppress(errors.Error):  # it is this status, or the group has failed
        _library.call("treadle_group_refuse", group, status, words.encode())


def hash_of(words: str) -> str:
    import hashlib

    return hashlib.blake2b(words.encode(), digest_size=16).hexdigest()


def _where() -> tuple[bytes, str, bool]:
    """What is the same for all processes that can meet by a name; where others may reach this machine, and whether they
    may."""
    found = _abi.treadle_node_address()
    _library.call("treadle_machine_address", ctypes.byref(found))
    return bytes(found.node), found.address.decode(), bool(found.outside)


def _check_net(net: str, what: str, nets: tuple[str, ...]) -> None:
    if net not in nets:
        raise errors.Refused(f"{what}: net is '{net}', and must be one of {', '.join(nets)}")


class _StoreCalls:
    """A store of Python's as the C library sees it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.callbacks = _library.Callbacks()
        self.set = self.callbacks.function(_library.field(_abi.treadle_store, "set"), self._set)
        self.get = self.callbacks.function(_library.field(_abi.treadle_store, "get"), self._get)

    def release(self) -> None:
        """The library has done with them. They refer to each other: without this the store would stay, and its port,
        until Python looks for such rings."""
        del self.set, self.get

    def _set(self, _context: object, key: bytes, value: int, count: int) -> int:
        return self.callbacks.guard(lambda: self._store.set(key.decode(), ctypes.string_at(value, count)))

    def _get(self, _context: object, key: bytes, seconds: float, value: int, capacity: int, bytes_p: typing.Any) -> int:
        def work() -> None:
            found = _wait_for(self._store, key.decode(), seconds)
            found = found.encode() if isinstance(found, str) else bytes(found)
            ctypes.memmove(value, found, min(len(found), capacity))
            bytes_p[0] = len(found)

        return self.callbacks.guard(work, (_Late,))


class _Late(errors.Timeout):
    """A key is not there yet: an answer of the store, and no failure."""


def _wait_for(store: typing.Any, key: str, seconds: float) -> typing.Any:
    """store.get in slices where the store can say whether the key is there; else in a thread of its own, which nobody
    waits for after the time is over, and which is not begun where there is no time."""
    end = time.monotonic() + seconds
    late = _Late(f"nobody has set it in {seconds:.3g} s")
    if hasattr(store, "check"):
        while not store.check([key]):
            if time.monotonic() > end:
                raise late
            time.sleep(_SLICE)
        return store.get(key)
    if seconds <= 0:
        raise late
    answer: list[typing.Any] = []
    done = threading.Event()

    def ask() -> None:
        try:
            answer.extend((True, store.get(key)))
        except BaseException as error:  # noqa: BLE001
            answer.extend((False, error))
        done.set()

    threading.Thread(target=ask, daemon=True, name="treadle-store").start()
    if not done.wait(seconds):
        raise late
    if not answer[0]:
        raise answer[1]
    return answer[1]
