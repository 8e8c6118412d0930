"""The engine's side of a meeting, in one of its workers: which of its tensors are written, and the switch that writes
them."""

from __future__ import annotations

import typing

from .. import errors
from ..group import Group
from ..layout import Layout
from ..matches import Report, match
from ..model import Model
from ..switch import Switch
from . import configs, meet


class Offer(typing.Protocol):
    """What the trainers say of themselves when they call the engine's workers."""

    @property
    def model(self) -> str:
        """config.json of their model, its text."""

    @property
    def layout(self) -> str:
        """That the engine must have; "": whatever it has."""

    @property
    def hash(self) -> str:
        """Of their model's tensors; "": any."""

    @property
    def timeout(self) -> float:
        """Seconds, of every wait."""


class About(typing.NamedTuple):
    """What a worker says of its engine."""

    layout: str  #: of the engine, over all its workers
    config: typing.Mapping[str, typing.Any] | None  #: of its model; None: it does not say


class Link:
    """A worker's switch. report: how each tensor of the engine gets its weights."""

    def __init__(
        self,
        group: Group,
        train: Layout,
        infer: Layout,
        net: typing.Any,
        *,
        train_tensors: typing.Any = None,
        undo: bool = False,
        timeout: float = 60,
        cap: int = 0,
    ) -> None:
        """net: the engine's module. train_tensors: this rank's own, where it is a trainer, too. undo: host memory keeps
        what the engine's tensors hold while an update overwrites them. Collective: where one rank's tensors are
        refused, all raise."""
        self.group = group
        problem = ""
        try:
            self.match = match(infer.model, infer, group.rank, net)
            self.match.check()
        except Exception as error:  # noqa: BLE001
            problem = meet.words_of(error)
        meet.agree(group, {}, problem)
        self.report = Report(list(self.match.rows))
        self.mixed = False  #: does the engine hold something of a version that is not whole?
        self.switch = Switch(
            group,
            train,
            infer,
            train_tensors=train_tensors,
            infer_tensors=self.match.own,
            device=str(next(iter(net.parameters())).device),
            timeout=timeout,
            cap=cap,
            undo_bytes=infer.window_bytes(group.rank) if undo else 0,
            bind=self._bind if self._rebuilds else None,
        )

    @property
    def _rebuilds(self) -> bool:
        """Does the engine get something of an update after its commit?"""
        return bool(self.match.layer or self.match.window)

    def _bind(self, _window: object) -> None:
        """The switch's weights are whole, on all ranks; where this fails, all ranks' arrows do."""
        self.mixed = True
        self.report = self.match.attach(self.switch)
        self.mixed = False

    def update(self) -> int:
        """The next version, which it returns. After a failure `mixed` says whether the engine can still generate; the
        next version mends it."""
        first, version = self.switch.mode == "train", self.switch.version
        before = self._sums() if first else []
        try:
            made = self.switch.next_version()
        except BaseException:  # KeyboardInterrupt, too
            self.mixed |= bool(self.match.own) and (before != self._sums() if first else not self.switch.valid)
            # All ranks have committed, and then not all layers were processed: here, or in another worker.
            self.mixed |= self._rebuilds and self.switch.version != version
            raise
        self.mixed = False
        return made

    def _sums(self) -> list[int]:
        """Of the engine's own tensors: before the first arrow the switch has no version of them, and cannot say whether
        they were written."""
        import torch  # type: ignore[import-not-found,unused-ignore]

        words = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
        return [
            int(tensor.detach().view(words[tensor.element_size()]).sum(dtype=torch.int64))
            for tensor in self.match.own.values()
        ]

    def close(self) -> None:
        self.switch.close()


class Said(typing.NamedTuple):
    """What a process that has an engine says in a meeting."""

    words: dict[str, str]  #: its layout, and the type of its weights
    problem: str  #: why it can take no part; "": it can
    model: Model | None  #: of the trainers' config


def said_of(
    net: typing.Any, config: typing.Callable[[], str], describe: typing.Callable[[], About], tensors: str = ""
) -> Said:
    """config: config.json of the trainers' model, its text. describe: of the engine; both raise what is in the way.
    tensors: the hash that the model must have."""
    words: dict[str, str] = {}
    try:
        about = describe()
        words = {"layout": about.layout, "dtype": configs.dtype_of(net)}
        trained = config()
        model = meet.model_of(trained)
        if about.config is not None:
            configs.check_config(trained, about.config)
        if tensors and tensors != meet.hash_of(model):
            raise errors.Refused(
                "the trainers' model has other tensors than this version of treadle makes of its config.json: "
                "use one version everywhere"
            )
    except Exception as error:  # noqa: BLE001
        return Said(words, meet.words_of(error), None)
    return Said(words, "", model)


def meet_trainers(
    group: Group,
    net: typing.Any,
    offer: Offer,
    describe: typing.Callable[[], About],
    *,
    session: bool = False,
    undo: bool = False,
) -> Link:
    """The link of a worker to trainers who have called it. describe: raises what is in the way. session: an update was
    started, and not finished. undo: the engine asks for it; where somebody does, all do it. Collective over the
    trainers and the engine's workers."""
    words, problem, model = said_of(net, lambda: offer.model, describe, offer.hash)
    said = meet.agree(group, {"layout": "", "session": session, "undo": undo, **words}, problem)
    assert model is not None
    train, infer = meet.layouts(model, None, group, said, meet.engine_layout(said, offer.layout))
    return Link(
        group,
        train,
        infer,
        net,
        undo=any(one["undo"] for one in said),
        timeout=offer.timeout,
        cap=said[0].get("cap", 0),
    )
