"""The trainers' side of an engine's plug-in: the meeting with the engine's workers, and updates."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import secrets
import threading
import typing

from .. import _declared, _tensors, errors
from ..group import Group
from ..switch import Switch
from . import configs, meet
from .client import Client

Made = typing.TypeVar("Made", bound="EngineTrainer")
# Of the Trainers that this process has made with others: equal on all ranks, since they make them together.
_numbers = itertools.count()


class _Call:
    """A blocking call to the engine, in a thread; what it raises is given to `failed` at once."""

    def __init__(self, call: typing.Callable[[], object], failed: typing.Callable[[Exception], object]) -> None:
        self.error: Exception | None = None
        self._call, self._failed = call, failed
        self._thread = threading.Thread(target=self._run, name="treadle-engine", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except Exception as error:  # noqa: BLE001
            self.error = error
            self._failed(error)

    def join(self, seconds: float | None = None) -> Exception | None:
        self._thread.join(seconds)
        return self.error


class EngineTrainer:
    """What a plug-in's trainer side does. A plug-in says how its engine is called (_client_of, _substitute), and names
    the arguments to its users; they are the same for all: treadle.vllm.Trainer has them. trained: the text of the
    trainers' layout, where their tensors do not say it (Megatron's). problem: why this rank cannot take part, which all
    are told."""

    NAME = ""  #: of the plug-in, "treadle.vllm"

    def __init__(
        self,
        source: typing.Any,
        client: typing.Any,
        *,
        model: str | os.PathLike[str] | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        workers: int | None = None,
        layout: str = "",
        address: str | None = None,
        pause: str = "abort",
        finite: bool = True,
        undo: bool = False,
        timeout: float = 60,
        cap: int = 0,
        trained: str = "",
        problem: str = "",
    ) -> None:
        if pause not in ("abort", "wait", "keep"):
            raise errors.Refused(f"Trainer: pause is '{pause}', and must be 'abort', 'wait' or 'keep'")
        self.rank, self.ranks = _ranks(rank, ranks)
        self._pause, self._finite, self._undo, self._timeout = pause, finite, undo, timeout
        self._key = f"{self.NAME}/{next(_numbers)}" if self.ranks > 1 else ""  # in torch's store
        self._client: Client | None = None
        self._given = client
        self._store: typing.Any = None
        self._trainers: Group | None = None
        self._switch: Switch | None = None
        self._session = False  # the engine's update was started by this trainer, and not finished
        self._before = 0  # the switch's version, when the update that runs began
        self._cause: Exception | None = None  # why this rank cannot take part
        config = ""
        try:
            if problem:
                raise errors.Refused(problem)
            if self.rank == 0:
                self._client = self._client_of(client)
            config = config_of(source, model)
            self._source = source if _declared.is_source(source) else None
            self._named = dict(_declared.local_pairs(source)) if self._source is not None else source
            if self._source is None and not trained:  # every rank has all names
                config = configs.without_drafts(config, (name for name, _ in _tensors.pairs(source)))
        except Exception as error:  # noqa: BLE001
            problem, self._cause = meet.words_of(error), error
        place = self._open(address, workers, problem)
        try:
            self._join(source, config, place, layout, problem, cap, trained)
        except BaseException:
            self.close()
            raise

    def _client_of(self, given: typing.Any) -> Client:
        """The engine's calls, of what the first trainer was given."""
        raise NotImplementedError

    def _substitute(self) -> Client | None:
        """By which another trainer lets the engine go on when the first one may be dead; None: it cannot."""
        raise NotImplementedError

    # ---- Meeting ----

    def _open(self, address: str | None, workers: int | None, problem: str) -> dict[str, typing.Any]:
        """The first trainer opens the store, and tells the others by torch's store where it is."""
        if self.rank > 0:
            try:
                place: dict[str, typing.Any] = json.loads(_said(self._key, self._timeout))
            # torch's, of a store that has gone with its process, or of a key that does not come.
            except RuntimeError as error:
                raise errors.Peer(f"rank 0 has not said where trainers meet: {error}") from error
            if place["problem"]:
                raise errors.Peer(f"rank 0: {place['problem']}")
            self._store = meet.open_store(place["store"], False, self._timeout)
            return place
        try:
            if problem and (self.ranks == 1 or self._client is None):
                raise self._cause if isinstance(self._cause, errors.Error) else errors.Refused(f"Trainer: {problem}")
            place = {
                "group": self.NAME.rpartition(".")[2] + secrets.token_hex(8),
                "problem": "",
                "workers": workers if workers is not None else self._client.workers(),  # type: ignore[union-attr]
            }
            self._store = meet.open_store(address or f"{_host()}:0", True, self._timeout)
            host = address.rpartition(":")[0] if address else _host()
            place["store"] = f"{host}:{self._store.port}"
        except Exception as error:
            if self.ranks > 1:
                _torch_store().set(self._key, json.dumps({"problem": meet.words_of(error)}))
            raise
        if self.ranks > 1:
            _torch_store().set(self._key, json.dumps(place))
        return place

    def _join(
        self,
        source: typing.Any,
        config: str,
        place: typing.Mapping[str, typing.Any],
        layout: str,
        problem: str,
        cap: int,
        trained: str,
    ) -> None:
        store = meet.Watched(self._store)
        if self.ranks > 1:
            self._trainers = Group.store(
                store, self.rank, self.ranks, job=f"{place['group']}/trainers", timeout=self._timeout
            )
            meet.agree(self._trainers, {}, problem)
        model = meet.model_of(config)
        size = self.ranks + place["workers"]
        call = None
        if self._client is not None:
            info = {
                "store": place["store"],
                "group": place["group"],
                "ranks": size,
                "first_rank": self.ranks,
                "model": config,
                "layout": layout,
                "hash": meet.hash_of(model),
                "timeout": float(self._timeout),
            }
            call = _Call(
                lambda: self._client.init_weight_transfer_engine(info),  # type: ignore[union-attr]
                lambda error: store.set(meet.PROBLEM, f"the engine: {error}".encode()),
            )
        group = Group.store(store, self.rank, size, job=place["group"], timeout=self._timeout)
        said = meet.agree(group, {"layout": "", "session": False, "undo": self._undo, "trained": trained, "cap": cap})
        text = meet.engine_layout(said, layout)
        train, infer = meet.layouts(
            model, source if self._source is None else list(self._entries(source)), group, said, text
        )
        meet.agree(group, {})
        self._switch = Switch(
            group, train, infer, train_tensors=self._named, device=_device(self._named), timeout=self._timeout, cap=cap
        )
        if call is not None and (error := call.join(self._timeout)) is not None:
            raise errors.System(f"the engine: {error}") from error
        if any(one["session"] for one in said):  # trainers before these died in an update
            self._session = self._client is not None
            self._after_failure()

    def _entries(self, source: typing.Any) -> typing.Iterable[tuple[str, typing.Any]]:
        """What the source declares, with the tensors that the switch reads."""
        for name, shards in _declared.entries(source):
            yield name, shards._replace(local=self._named.get(name))

    # ---- Updates ----

    def ask(self, words: typing.Mapping[str, typing.Any], problem: str = "") -> list[dict[str, typing.Any]]:
        """What all trainers say, in their order; where one has a problem all raise. Collective over the trainers."""
        if self._trainers is not None:
            return meet.agree(self._trainers, words, problem)
        if problem:
            raise errors.Refused(f"rank {self.rank}: {problem}")
        return [dict(words)]

    @property
    def switch(self) -> Switch:
        """The switch whose update send_weights is; for its figures (stats)."""
        if self._switch is None:
            raise errors.State("Trainer: it is closed")
        return self._switch

    @property
    def version(self) -> int:
        """How many updates the engine has had from this Trainer."""
        return self.switch.version

    def send_weights(self) -> int:
        """Brings the engine to the present weights, and returns the version that it has then: it is paused, all its
        workers commit together, its caches are emptied, and it goes on. Weights may not be written meanwhile.
        Collective.

        Raises Refused for weights that are not finite (nothing was touched then), Peer and Timeout with the rank and
        what it says. After a failure the engine serves the version of before, whole, or where all ranks had committed
        the next one; workers that had begun to write have ended, and their engine with them. Where all ranks live, the
        next call may work; where a trainer died, a new Trainer meets the same engine again."""
        self._tell(self._refresh)
        self._before = self.switch.version
        try:
            self._tell(self._first(self._start))
            version = self._move()
            self._tell(self._first(lambda: self._finish(version)))
        except BaseException:  # KeyboardInterrupt, too: the engine is not left paused
            self._after_failure()
            raise
        return version

    def _move(self) -> int:
        """The arrow, while the first trainer's call to the engine runs."""
        switch = self.switch
        call = self._update(switch.version + 1)
        failure: Exception | None = None
        try:
            switch.next_version()
        except errors.Error as error:
            failure = error
        if (
            call is not None
            and (called := call.join(self._timeout)) is not None
            and (failure is None or isinstance(failure, errors.Cancelled))
        ):
            failure = errors.System(f"the engine: {called}")
        if failure is not None:
            raise failure
        return switch.version

    def _start(self) -> None:
        if self._store.check([meet.LEFT]):
            raise errors.State(self._store.get(meet.LEFT).decode())
        client = typing.cast(Client, self._client)
        client.pause(self._pause)
        client.start_weight_update()
        self._session = True

    def _update(self, version: int) -> _Call | None:
        if self._client is None:
            return None
        client, switch = self._client, self.switch
        return _Call(lambda: client.update_weights({"version": version}), lambda _: switch.cancel())

    def _finish(self, version: int) -> None:
        client = typing.cast(Client, self._client)
        client.finish_weight_update(str(version))
        self._session = False
        client.reset_caches()
        client.resume()

    @property
    def _committed(self) -> bool:
        """Had all ranks the next version, when the update failed after all?"""
        return self._switch is not None and self._switch.version != self._before

    def _after_failure(self) -> None:
        """The engine's session ends, and it goes on with the version that it has, if it lives. The first trainer may be
        dead: then any other one lets it go on, and the session ends when new trainers come."""
        client = self._client
        try:
            if client is None:
                client = self._substitute()
        except Exception:  # noqa: BLE001
            return
        if client is None:
            return
        calls: list[typing.Callable[[], object]] = []
        if self._session:
            version = str(self.switch.version) if self._committed else None
            calls.append(lambda: client.finish_weight_update(version))
            self._session = False  # vLLM's workers raise where one is ended twice
        if self._committed:
            calls.append(client.reset_caches)
        calls.append(client.resume)
        for call in calls:
            try:
                call()
            except Exception:  # noqa: BLE001, S112
                continue

    def _first(self, call: typing.Callable[[], object]) -> typing.Callable[[], object]:
        return call if self.rank == 0 else lambda: None

    def _tell(self, work: typing.Callable[[], object]) -> None:
        """Does it on each trainer; where one fails, all raise. Collective over the trainers."""
        problem: Exception | None = None
        try:
            work()
        except Exception as error:  # noqa: BLE001
            problem = error
        try:
            self.ask({}, meet.words_of(problem) if problem is not None else "")
        except errors.Refused:
            assert problem is not None
            if isinstance(problem, errors.Refused):
                raise  # with the rank
            raise problem from None
        except errors.Error as error:
            if problem is not None:
                raise problem from error
            raise

    def _refresh(self) -> None:
        """Tensors that a source makes anew in each pass go to where the switch reads them; and nothing may be NaN."""
        if self._source is not None:
            for name, tensor in _declared.local_pairs(self._source):
                if _tensors.address_of(tensor) != _tensors.address_of(self._named[name]):
                    _tensors.local(self._named[name]).copy_(_tensors.local(tensor))
        if self._finite:
            check_weights(self._named)

    def close(self) -> None:
        """Leaves the engine, which goes on with the version that it has. Local."""
        if self._switch is not None:
            self._switch.close()
        self._switch = None
        self._trainers = None
        self._store = None

    def __enter__(self: Made) -> Made:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<{self.NAME}.Trainer rank {self.rank} of {self.ranks}"
            f"{', closed' if self._switch is None else f', version {self.version}'}>"
        )


def _ranks(rank: int | None, ranks: int | None) -> tuple[int, int]:
    import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]

    if (rank is None) != (ranks is None):
        raise errors.Refused("Trainer: rank and ranks are given together, or neither is")
    if rank is not None and ranks is not None:
        if not 0 <= rank < ranks:
            raise errors.Refused(f"Trainer: rank is {rank}, and must be one of {ranks}")
        return rank, ranks
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def _said(key: str, timeout: float) -> bytes:
    """What the first trainer says in torch's store. Raises RuntimeError."""
    store = _torch_store()
    store.wait([key], datetime.timedelta(seconds=timeout))
    return bytes(store.get(key))


def _torch_store() -> typing.Any:
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    if not dist.is_initialized():
        raise errors.State(
            "Trainer: several trainers meet by torch.distributed: call init_process_group first, with any backend"
        )
    store: typing.Any = distributed_c10d._get_default_store()
    return store


def config_of(source: typing.Any, model: str | os.PathLike[str] | None = None) -> str:
    """config.json of a source's model, as text: model's, its folder or the file, or the one that the source has."""
    if model is not None:
        path = os.fspath(model)
        with open(os.path.join(path, "config.json") if os.path.isdir(path) else path, encoding="utf-8") as file:
            return file.read()
    config: typing.Any = getattr(source, "config", None) or getattr(getattr(source, "module", None), "config", None)
    if not hasattr(config, "to_json_string"):
        raise errors.Refused(
            f"{type(source).__name__} has no config of transformers: give model=, "
            "the folder or config.json of the model"
        )
    return str(config.to_json_string())


def _host() -> str:
    """By which others reach this machine."""
    from ..group import _where

    return _where()[1].rpartition(":")[0]


def _device(named: typing.Any) -> str:
    for _, tensor in _tensors.pairs(named):
        device = _tensors.local(tensor).device
        return "cpu" if device.type == "cpu" else str(device)
    return "cpu"


def check_weights(named: typing.Any) -> None:
    """Raises Refused for a tensor of this rank with NaN or infinity."""
    for name, whole in _tensors.pairs(named):
        tensor = _tensors.local(whole)
        if not tensor.is_floating_point() or tensor.element_size() < 2 or not tensor.numel():
            continue
        bad = int((~tensor.detach().isfinite()).sum())
        if bad:
            raise errors.Refused(
                f"'{name}' of shape {list(tensor.shape)} has {bad} element{'s' if bad != 1 else ''} of NaN or "
                "infinity; the engine keeps what it has"
            )
