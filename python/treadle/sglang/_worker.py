"""The worker's side: what SGLang's custom loader does in each worker.

SGLang ends all processes where a loader raises, its caller's among them. So the loader's answer is always ordinary. What goes wrong is kept (problem), said on standard
error and in the trainers' store, and raised where the trainers are. An update writes the worker's own parameters; host memory keeps what they held (undo_bytes), and a
failed update brings it back. If workers of one engine have different versions all the same, each ends its process: no mixture serves."""

from __future__ import annotations

import hashlib
import os
import sys
import traceback
import typing

from .. import errors
from .._engines import configs, meet
from ..group import Group
from ..matches import Report, match
from ..switch import Switch
from . import _interface, _layout, _manifest

_SAYING = 10.0  # seconds, in which the trainers' store has to be reached to say what went wrong


class _Link:
    """A worker's group and switch, from the meeting until the next one."""

    def __init__(self, model: typing.Any, store: typing.Any, manifest: _manifest.Manifest) -> None:
        self.store, self.name, self.hash = store, manifest.group, manifest.hash
        group = Group.store(meet.Watched(store), manifest.first_rank + _interface.worker_rank(), manifest.ranks, job=manifest.group, timeout=manifest.timeout)
        text, problem = "", ""
        try:
            _interface.check_args(_interface.worker_args())
            text = _layout.layout_text(_interface.worker_args())
            self._check(model, manifest)
        except Exception as error:  # noqa: BLE001
            problem = str(error)
        said = meet.agree(group, {"layout": text, "session": False, "undo": True}, problem)
        text = meet.engine_layout(said, manifest.layout)
        train, infer = meet.layouts(meet.model_of(manifest.model), None, group, said, text)
        try:
            self.match = match(infer.model, infer, group.rank, model)
            self.match.check()
        except Exception as error:  # noqa: BLE001
            problem = str(error)
        meet.agree(group, {}, problem)
        self.report = Report(list(self.match.rows))
        device = next(iter(model.parameters())).device
        self.switch = Switch(group, train, infer, infer_tensors=self.match.own, device=str(device), timeout=manifest.timeout, cap=said[0].get("cap", 0),
                             undo_bytes=infer.window_bytes(group.rank), bind=self._bind if self.match.layer or self.match.window else None)

    @staticmethod
    def _check(model: typing.Any, manifest: _manifest.Manifest) -> None:
        if hasattr(model, "config"):
            configs.check_config(manifest.model, model.config.to_dict())
        if manifest.hash != meet.hash_of(meet.model_of(manifest.model)):
            raise errors.Refused("the trainers' model has other tensors than this version of treadle makes of its config.json: use one version everywhere")

    def _bind(self, _window: object) -> None:
        self.report = self.match.attach(self.switch)

    def update(self, manifest: _manifest.Manifest) -> None:
        if manifest.group != self.name:
            raise errors.State("the engine follows other trainers, who came later")
        if manifest.hash != self.hash:
            raise errors.Refused("the trainers' model is another one than that of their meeting")
        self.switch.next_version()


def _number_of(name: str) -> int:
    """Of a group, for words of a fixed size; 0 is none's."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest(), "little") + 1


class _Worker:
    """What this process keeps between calls."""

    def __init__(self) -> None:
        self.problem = ""  # why the last call did nothing; "" after one that did
        self.link: _Link | None = None

    def receive(self, model: typing.Any, named_tensors: typing.Any) -> None:
        self.problem = ""
        manifest, store = None, None
        try:
            manifest = _manifest.read(named_tensors)
            if manifest.version == 0:
                self._leave()
                store = meet.open_store(manifest.store, False, manifest.timeout)
                self.link = _Link(model, store, manifest)
            elif self.link is None:
                raise errors.State("no trainer has come to this worker: connect comes first")
            else:
                self.link.update(manifest)
        except BaseException as error:  # noqa: BLE001
            self._failed(error, manifest, store)
        self._one_version()

    def _leave(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            meet.leave(link.store)
            link.switch.close()

    def _failed(self, error: BaseException, manifest: _manifest.Manifest | None, store: typing.Any) -> None:
        self.problem = str(error) or type(error).__name__
        print(f"treadle: {self.problem}", file=sys.stderr, flush=True)
        if not isinstance(error, errors.Error):
            traceback.print_exc()
        if manifest is None:
            return
        try:
            if store is None:
                store = self.link.store if self.link is not None and self.link.name == manifest.group else meet.open_store(manifest.store, False, min(manifest.timeout, _SAYING))
            store.set(meet.PROBLEM if manifest.version == 0 else manifest.problem_key, f"worker {_interface.worker_rank()} of the engine: {self.problem}".encode())
        except Exception as error:  # noqa: BLE001
            print(f"treadle: the trainers' store at {manifest.store} cannot be told: {error}", file=sys.stderr, flush=True)

    def _one_version(self) -> None:
        """All workers of the engine have the same version, or none of them serves."""
        mine = (_number_of(self.link.name), self.link.switch.version) if self.link is not None else (0, 0)
        said = _interface.gather(mine)
        if any(one not in (mine, (0, 0)) for one in said) and self.link is not None:
            print(f"treadle: this engine's workers have different versions, and end: {said}; {self.problem}", file=sys.stderr, flush=True)
            os._exit(1)


worker = _Worker()
receive = worker.receive
