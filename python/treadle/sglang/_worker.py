"""The worker's side: what SGLang's custom loader does in each worker.

SGLang ends all processes where a loader raises, its caller's among them. So the loader's answer is always ordinary.
What goes wrong is kept (problem), said on standard error and in the trainers' store, and raised where the trainers are.
An update writes the worker's own parameters; host memory keeps what they held (undo_bytes), and a failed update brings
it back. If workers of one engine have different versions all the same, each ends its process: no mixture serves."""

from __future__ import annotations

import hashlib
import os
import sys
import traceback
import typing

from .. import errors
from .._engines import meet
from .._engines.link import About, Link, meet_trainers
from ..group import Group
from . import _interface, _layout, _manifest

_SAYING = 10.0  # seconds, in which the trainers' store has to be reached to say what went wrong


class _Met(typing.NamedTuple):
    """The trainers of the last meeting."""

    store: typing.Any
    name: str  #: of the meeting
    hash: str  #: of their model
    link: Link

    @classmethod
    def of(cls, model: typing.Any, store: typing.Any, manifest: _manifest.Manifest) -> _Met:
        def about() -> About:
            arguments = _interface.worker_args()
            _interface.check_args(arguments)  # that they have a layout, too
            return About(_layout.layout_text(arguments), model.config.to_dict() if hasattr(model, "config") else None)

        group = Group.store(
            meet.Watched(store),
            manifest.first_rank + _interface.worker_rank(),
            manifest.ranks,
            job=manifest.group,
            timeout=manifest.timeout,
        )
        return cls(store, manifest.group, manifest.hash, meet_trainers(group, model, manifest, about, undo=True))

    def update(self, manifest: _manifest.Manifest) -> None:
        if manifest.group != self.name:
            raise errors.State("the engine follows other trainers, who came later")
        if manifest.hash != self.hash:
            raise errors.Refused("the trainers' model is another one than that of their meeting")
        self.link.update()


def _number_of(name: str) -> int:
    """Of a group, for words of a fixed size; 0 is none's."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest(), "little") + 1


class _Worker:
    """What this process keeps between calls."""

    def __init__(self) -> None:
        self.problem = ""  # why the last call did nothing; "" after one that did
        self.met: _Met | None = None

    def receive(self, model: typing.Any, named_tensors: typing.Any) -> None:
        self.problem = ""
        manifest, store = None, None
        try:
            manifest = _manifest.read(named_tensors)
            if manifest.version == 0:
                self._leave()
                store = meet.open_store(manifest.store, False, manifest.timeout)
                self.met = _Met.of(model, store, manifest)
            elif self.met is None:
                raise errors.State("no trainer has come to this worker: connect comes first")
            else:
                self.met.update(manifest)
        except BaseException as error:  # noqa: BLE001
            self._failed(error, manifest, store)
        self._one_version()

    def _leave(self) -> None:
        met, self.met = self.met, None
        if met is not None:
            meet.leave(met.store)
            met.link.close()

    def _failed(self, error: BaseException, manifest: _manifest.Manifest | None, store: typing.Any) -> None:
        self.problem = meet.words_of(error)
        print(f"treadle: {self.problem}", file=sys.stderr, flush=True)
        if not isinstance(error, errors.Error):
            traceback.print_exc()
        if manifest is None:
            return
        try:
            if store is None:
                store = (
                    self.met.store
                    if self.met is not None and self.met.name == manifest.group
                    else meet.open_store(manifest.store, False, min(manifest.timeout, _SAYING))
                )
            store.set(
                meet.PROBLEM if manifest.version == 0 else manifest.problem_key,
                f"worker {_interface.worker_rank()} of the engine: {self.problem}".encode(),
            )
        except Exception as error:  # noqa: BLE001
            print(
                f"treadle: the trainers' store at {manifest.store} cannot be told: {error}", file=sys.stderr, flush=True
            )

    def _one_version(self) -> None:
        """All workers of the engine have the same version, or none of them serves."""
        mine = (_number_of(self.met.name), self.met.link.switch.version) if self.met is not None else (0, 0)
        said = _interface.gather(mine)
        if any(one not in (mine, (0, 0)) for one in said) and self.met is not None:
            print(
                f"treadle: this engine's workers have different versions, and end: {said}; {self.problem}",
                file=sys.stderr,
                flush=True,
            )
            os._exit(1)


worker = _Worker()
receive = worker.receive
