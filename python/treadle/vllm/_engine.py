"""The worker's side: a weight transfer engine of vLLM, one in each worker.

No exception leaves it. vLLM's executor answers every later call one call late once a worker of several has raised; so what goes wrong is kept, said on standard
error, and raised where the trainers are, to whom the switch or the meeting tells it. An update writes the worker's own parameters; where one fails
after the first byte was written and nothing brings the old ones back, the worker ends its process: it never serves a mixture."""

from __future__ import annotations

import os
import sys
import traceback
import typing
from dataclasses import dataclass, field

from vllm.distributed.weight_transfer import base  # type: ignore[import-not-found,unused-ignore]

from .. import errors
from .._engines import configs, meet
from ..group import Group
from ..matches import Report, match
from ..switch import Switch
from . import _infos, _layout

if typing.TYPE_CHECKING:
    from ._trainer import Trainer


@dataclass
class InitInfo(base.WeightTransferInitInfo):  # type: ignore[misc,unused-ignore]
    """How a worker meets the trainers. They make it (Trainer)."""

    store: str = ""  #: "host:port" of the trainers' TCPStore
    group: str = ""  #: the name of the meeting
    ranks: int = 0  #: trainers and workers
    first_rank: int = 0  #: of the engine's first worker
    model: str = ""  #: config.json of the trainers' model, its text
    layout: str = ""  #: that the engine must have; "": whatever it has
    hash: str = ""  #: of the trainers' model's tensors
    timeout: float = 60.0  #: seconds, of every wait
    problem: str = field(default="", init=False)  #: why it is not one


@dataclass
class UpdateInfo(base.WeightTransferUpdateInfo):  # type: ignore[misc,unused-ignore]
    """An update. The trainers make it (Trainer)."""

    version: int = 0  #: that the update leads to
    problem: str = field(default="", init=False)  #: why it is not one


class _Link:
    """A worker's group and switch, from the meeting until the next one."""

    def __init__(self, engine: Engine, store: typing.Any, group: Group, info: InitInfo) -> None:
        self.store = store
        text, problem = "", ""
        try:
            text = _layout.layout_text(engine.vllm_config)
            self._check(engine, info)
        except Exception as error:  # noqa: BLE001
            problem = str(error)
        said = meet.agree(group, {"layout": text, "session": engine.session, "undo": False}, problem)
        text = meet.engine_layout(said, info.layout)
        model = meet.model_of(info.model)
        train, infer = meet.layouts(model, None, group, said, text)
        try:
            self.match = match(model, infer, group.rank, engine.model)
            self.match.check()
        except Exception as error:  # noqa: BLE001
            problem = str(error)
        meet.agree(group, {}, problem)
        self.report = Report(list(self.match.rows))
        self._written = False  # has the engine something of an update that is not whole?
        self._first: list[int] = []
        self.group = group
        undo = infer.window_bytes(group.rank) if any(one["undo"] for one in said) else 0
        self.switch = Switch(group, train, infer, infer_tensors=self.match.own, device=str(engine.device), timeout=info.timeout, cap=said[0].get("cap", 0), undo_bytes=undo,
                             bind=self._bind if self._rebuilds else None)

    @staticmethod
    def _check(engine: Engine, info: InitInfo) -> None:
        configs.check_config(info.model, engine.model_config.hf_config.to_dict())
        if info.hash and info.hash != meet.hash_of(meet.model_of(info.model)):
            raise errors.Refused("the trainers' model has other tensors than this version of treadle makes of its config.json: use one version everywhere")

    @property
    def _rebuilds(self) -> bool:
        """Does the engine get something of an update after its commit?"""
        return bool(self.match.layer or self.match.window)

    def _bind(self, _window: object) -> None:
        """The switch's weights are whole, on all ranks; where this fails, all ranks' arrows do."""
        self._written = True
        self.report = self.match.attach(self.switch)
        self._written = False

    def update(self) -> int:
        first, version = self.switch.mode == "train", self.switch.version
        if first:
            self._first = self._sums()
        try:
            return self.switch.next_version()
        except errors.Error:
            self._written |= bool(self.match.own) and (self._first != self._sums() if first else not self.switch.valid)
            # All ranks have committed, and then not all layers were processed: here, or in another worker.
            self._written |= self._rebuilds and self.switch.version != version
            raise

    def _sums(self) -> list[int]:
        """Of the engine's own tensors: before the first arrow the switch has no version of them, and cannot say whether they were written."""
        import torch  # type: ignore[import-not-found,unused-ignore]

        words = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
        return [int(tensor.detach().view(words[tensor.element_size()]).sum(dtype=torch.int64)) for tensor in self.match.own.values()]

    @property
    def mixed(self) -> bool:
        """Does the engine hold something of a version that is not whole?"""
        return self._written

    def close(self) -> None:
        self.switch.close()


class Engine(base.WeightTransferEngine[InitInfo, UpdateInfo]):  # type: ignore[misc,unused-ignore]
    """vLLM's weight transfer engine "treadle", in a worker. problem: why the last call did nothing, "" after one that did. report: how each tensor gets its weights."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False

    def __init__(self, config: typing.Any, vllm_config: typing.Any, device: typing.Any, model: typing.Any) -> None:
        super().__init__(config, vllm_config, device, model)
        self.problem = ""
        self.session = False  # an update was started, and not finished: trainers may have died in between
        self._link: _Link | None = None

    @property
    def report(self) -> Report | None:
        return self._link.report if self._link is not None else None

    def parse_init_info(self, init_dict: typing.Any) -> InitInfo:
        return _infos.read(InitInfo, init_dict)

    def parse_update_info(self, update_dict: typing.Any) -> UpdateInfo:
        return _infos.read(UpdateInfo, update_dict)

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Meets the trainers; those of before are left."""
        self._keep("init_weight_transfer_engine", lambda: self._meet(init_info))

    def start_weight_update(self) -> None:
        self.session = True

    def finish_weight_update(self) -> None:
        self.session = False

    def update_weights(self, update_info: typing.Any) -> None:
        self.receive_weights(self.parse_update_info(update_info))  # the switch waits for its device itself

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Takes part in the trainers' update."""
        self._keep("update_weights", lambda: self._receive(update_info))
        if self._link is not None and self._link.mixed:
            self._end()

    def shutdown(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            self._keep("shutdown", link.close)

    def _meet(self, info: InitInfo) -> None:
        if self._link is not None:
            meet.leave(self._link.store)
        self.shutdown()
        if info.problem and not info.store:
            raise errors.Refused(f"init_info: {info.problem}")
        store = meet.open_store(info.store, False, info.timeout)
        try:
            if info.problem:
                raise errors.Refused(f"init_info: {info.problem}")
            rank = info.first_rank + _layout.worker_rank(self.vllm_config.parallel_config)
            group = Group.store(meet.Watched(store), rank, info.ranks, job=info.group, timeout=info.timeout)
        except Exception as error:
            store.set(meet.PROBLEM, f"a worker of the engine: {error}".encode())
            raise
        self._link = _Link(self, store, group, info)

    def _receive(self, info: UpdateInfo) -> None:
        if info.problem:
            raise errors.Refused(f"update_info: {info.problem}")
        if self._link is None:
            raise errors.State(f"no trainer has come: {self.problem or 'init_weight_transfer_engine comes first'}")
        self._link.update()

    def _keep(self, what: str, work: typing.Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001
            self.problem = f"{what}: {error}"
            print(f"treadle: {self.problem}", file=sys.stderr, flush=True)
            if not isinstance(error, errors.Error):
                traceback.print_exc()
        else:
            self.problem = ""

    def _end(self) -> typing.NoReturn:
        print(f"treadle: this worker's weights are of two versions, and it ends: {self.problem}", file=sys.stderr, flush=True)
        os._exit(1)


@dataclass
class TrainerInfo(base.TrainerInitInfo):  # type: ignore[misc,unused-ignore]
    """For vLLM's WeightTransferTrainerFactory.trainer_init: what Trainer takes, of the trainer `rank` of `ranks`."""

    backend: typing.ClassVar[str] = "treadle"
    ranks: int = 1
    model: typing.Any = None
    layout: str = ""
    undo: bool = False
    timeout: float = 60


class TrainerEngine(base.TrainerWeightTransferEngine[TrainerInfo]):  # type: ignore[misc,unused-ignore]
    """The trainer as vLLM's factory makes it; Trainer does the work."""

    init_info_cls = TrainerInfo

    def __init__(self, trainer: Trainer, *, client: typing.Any, source: typing.Any, is_sender: bool) -> None:
        super().__init__(client=client, source=source, is_sender=is_sender)
        self.trainer = trainer

    @classmethod
    def trainer_init(cls, init_info: TrainerInfo, *, client: typing.Any, source: typing.Any = None) -> TrainerEngine:
        from ._trainer import Trainer

        trainer = Trainer(source, client, model=init_info.model, rank=init_info.rank, ranks=init_info.ranks, layout=init_info.layout, undo=init_info.undo,
                          timeout=init_info.timeout)
        return cls(trainer, client=client, source=source, is_sender=init_info.is_sender)

    def send_weights(self) -> None:
        self.trainer.send_weights()

    def shutdown(self) -> None:
        self.trainer.close()
