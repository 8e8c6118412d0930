"""The worker's side: a weight transfer engine of vLLM, one in each worker.

No exception leaves it. vLLM's executor answers every later call one call late once a worker of several has raised; so
what goes wrong is kept, said on standard error, and raised where the trainers are, to whom the switch or the meeting
tells it. An update writes the worker's own parameters; where one fails after the first byte was written and nothing
brings the old ones back, the worker ends its process: it never serves a mixture."""

from __future__ import annotations

import os
import sys
import traceback
import typing
from dataclasses import dataclass, field

from vllm.distributed.weight_transfer import base  # type: ignore[import-not-found,unused-ignore]

from .. import errors
from .._engines import meet
from .._engines.link import About, Link, meet_trainers
from ..group import Group
from ..matches import Report
from . import _infos, _layout


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


class Engine(base.WeightTransferEngine[InitInfo, UpdateInfo]):  # type: ignore[misc,unused-ignore]
    """vLLM's weight transfer engine "treadle", in a worker. problem: why the last call did nothing, "" after one that
    did. report: how each tensor gets its weights."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False

    def __init__(self, config: typing.Any, vllm_config: typing.Any, device: typing.Any, model: typing.Any) -> None:
        super().__init__(config, vllm_config, device, model)
        self.problem = ""
        self.session = False  # an update was started, and not finished: trainers may have died in between
        self._link: Link | None = None
        self._store: typing.Any = None  # where the trainers of the link are met

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

    @staticmethod
    def trainer_send_weights(iterator: typing.Any, trainer_args: typing.Any) -> None:
        """How trainers sent before vLLM had trainer classes: full tensors, which no rank of treadle's gathers."""
        raise errors.Refused(
            "the backend 'treadle' takes shards, not full tensors: make a treadle.vllm.Trainer on every trainer rank, "
            "and call its send_weights()"
        )

    def _meet(self, info: InitInfo) -> None:
        if self._link is not None:
            meet.leave(self._store)
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
        self._store = store
        self._link = meet_trainers(group, self.model, info, self._about, session=self.session)

    def _about(self) -> About:
        return About(_layout.layout_text(self.vllm_config), self.model_config.hf_config.to_dict())

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
        print(
            f"treadle: this worker's weights are of two versions, and it ends: {self.problem}",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)
