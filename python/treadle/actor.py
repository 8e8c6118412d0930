"""The worker that trains in one layout and generates in another, on the same memory.

    with treadle.Actor(train, infer, trainer=treadle.TrainerOptions(threads=4)) as actor:
        actor.load()
        prompts = [[31, 7, 2]]
        answers = actor.generate(prompts, treadle.Sampling(n=4))
        batch = treadle.Batch.of({"prompt_ids": prompts}).repeat(4)
        batch.union(answers)
        batch["advantage"] = advantages_of(answers)
        actor.update(batch, treadle.Loss("ppo"), lr=1e-6)

treadle_loop.h says which mode a call needs; a call switches where it needs another one than the present one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import typing

from . import _abi, _calls, _library, errors
from ._foreign import Foreign, InferEngine
from .batch import Batch
from .generator import GeneratorOptions, Prompts, Sampling, answered
from .group import Group
from .layout import Layout
from .switch import KEEPS, MODES
from .trainer import (
    AnyLoss,
    Forward,
    Slice,
    StepFigures,
    TrainerOptions,
    UpdateFigures,
    forward_of,
    given_out,
    loss_figures,
    loss_options,
    save_with,
    seed_of,
    sliced,
    used,
)

_BY_MODE = {MODES[number]: number for number in (_abi.TREADLE_TRAIN, _abi.TREADLE_FORWARD, _abi.TREADLE_INFER)}
_CLASSES = ("params", "grads", "optimizer", "infer_params", "kv", "work", "train_work", "reference")
_OFFLOADS = {
    "params": "offload_train_param",
    "grads": "offload_train_grad",
    "optimizer": "offload_train_optimizer",
}


class ActorInfo(typing.NamedTuple):
    """Figures of an actor on this rank: treadle_actor_info."""

    mode: str  #: "train", "infer", "forward" or "lost"
    version: int  #: how often the weights have gone to mode INFER
    kv_blocks: int  #: of this rank's cache
    bytes: dict[str, int]  #: on the device now, by class: "params", "grads", "optimizer", "infer_params", "kv", "work",
    #: "train_work", "reference"
    peaks: dict[str, int]  #: the most so far, by class
    peak_bytes: int  #: the most so far, of all classes together
    to_infer: float  #: seconds in switches so far, to mode INFER
    to_train: float  #: to modes FORWARD and TRAIN
    pulled_bytes: int  #: from other ranks, by the last switch to mode INFER


class PromptSlice(typing.NamedTuple):
    """The prompts that a rank's replica answers."""

    batch: Batch  #: these rows, which share the memory of the whole batch
    rows: range  #: their numbers in the whole batch
    leads: bool  #: is this rank the first of its replica?


class Actor(_calls.Engine):
    """A policy that trains in one layout and generates in another, on the same memory, on the ranks of a group (None:
    this process alone). All ranks make the same calls, each with its own rows; all functions except slices and info are
    collective. One call at a time runs. Weights come from load, randomise or resume.

    train_layout, infer_layout: of one model.
    trainer, engine: options of the built-in trainer and generator.
    generator: a generator of one's own in place of the built-in one (InferEngine), which the actor ends with itself,
        also where it cannot be made.
    reference: a layout that equals train_layout, of the reference's model.
    offload: what leaves the device in mode INFER: of "params", "grads" and "optimizer". keep: as in Switch.
    page_bytes, cap_bytes: as page and cap of Switch. kv_bytes: the least size of the cache. budget_bytes: that this
        rank may hold, of all classes; 0: no limit. timeout: seconds, of a switch.

    Where a call fails the actor goes on, in mode TRAIN, INFER or FORWARD; if weights are lost with keep="infer" it says
    so by mode "lost". Raises Refused, NoMemory, State, Peer, Timeout."""

    _word = "actor"
    _instead = "save() it, and make one in the other process that can resume() it"
    _foreign: Foreign | None = None

    @_calls.collective
    def __init__(
        self,
        train_layout: Layout,
        infer_layout: Layout,
        group: Group | None = None,
        *,
        trainer: TrainerOptions | None = None,
        engine: GeneratorOptions | None = None,
        generator: InferEngine | None = None,
        reference: Layout | None = None,
        offload: typing.Iterable[str] = ("params", "grads", "optimizer"),
        keep: str = "infer",
        page_bytes: int = 0,
        cap_bytes: int = 0,
        kv_bytes: int = 0,
        budget_bytes: int = 0,
        timeout: float = 60,
    ) -> None:
        super().__init__(train_layout, group)
        if keep not in KEEPS:
            raise errors.Refused(f"Actor: keep is {keep!r}, and must be 'infer' or 'host'")
        leaves = {offload} if isinstance(offload, str) else set(offload)
        if strange := leaves - set(_OFFLOADS):
            raise errors.Refused(f"Actor: offload has {min(strange)!r}, and knows {', '.join(_OFFLOADS)}")
        for name, given, kind in (("trainer", trainer, TrainerOptions), ("engine", engine, GeneratorOptions)):
            if given is not None and not isinstance(given, kind):
                raise errors.Refused(
                    f"Actor: {name} is a {type(given).__name__}; it must be a treadle.{kind.__name__} or None"
                )
        if generator is not None and engine is not None:
            raise errors.Refused("Actor: engine has options of the built-in generator, and generator= is in its place")
        training, generating = (trainer or TrainerOptions())._struct(), (engine or GeneratorOptions())._struct()
        self._most_rows = trainer.most_rows if trainer is not None else 0
        choices = {
            field: _abi.TREADLE_ON if name in leaves else _abi.TREADLE_OFF for name, field in _OFFLOADS.items()
        }
        options = _library.sized(
            _abi.treadle_actor_options,
            trainer=ctypes.pointer(training),
            engine=ctypes.pointer(generating),
            reference=reference._use() if reference is not None else None,
            keep=KEEPS[keep],
            page_bytes=page_bytes,
            cap_bytes=cap_bytes,
            kv_bytes=kv_bytes,
            budget_bytes=budget_bytes,
            timeout_seconds=timeout,
            **choices,
        )
        layouts = (train_layout, infer_layout, *([reference] if reference is not None else []))
        kept: list[object] = [layout._object for layout in layouts]
        if generator is not None:
            self._foreign = Foreign(generator, infer_layout, self._rank, self._calls)
            options.open_infer = self._foreign.open
            kept.append(self._foreign.functions)
        try:
            self._make(
                "treadle_actor_create",
                "treadle_actor_destroy",
                kept,
                train_layout._use(),
                infer_layout._use(),
                ctypes.byref(options),
            )
        except BaseException:
            self._end()
            raise
        if self._foreign is not None:
            self._foreign.owner = self._object

    def __enter__(self) -> Actor:
        return self

    def _end(self) -> None:
        if self._foreign is not None:
            self._foreign.end()

    # ---- Weights ----

    @_calls.collective
    def load(self) -> None:
        """Loads the weights of the model's checkpoint, and starts the optimizer anew."""
        self._call("load", "treadle_actor_load")

    @_calls.collective
    def randomise(self, seed: int) -> None:
        """Makes up random weights, as Trainer.randomise."""
        self._call("randomise", "treadle_actor_randomise", seed_of(seed))

    @_calls.collective
    def resume(self, folder: str | os.PathLike[str]) -> None:
        """Reads what an actor or a trainer of any layout has saved."""
        self._call("resume", "treadle_actor_resume", _library.given("folder", folder))

    @_calls.collective
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes weights and the optimizer's state into a folder, as Trainer.save."""
        save_with(self._call, "treadle_actor_save", folder)

    @_calls.collective
    def load_reference(self) -> None:
        """Loads the reference's weights from its model's checkpoint. If they are made up, it gets the present weights
        of the policy."""
        self._call("load_reference", "treadle_actor_load_reference")

    @_calls.collective
    def weights_digest(self) -> int:
        """A hash of the policy's weights, the same in every layout: Switch.digest. Master weights and moments of the
        optimizer are not in it."""
        return self._number("weights_digest", "treadle_actor_weights_digest")

    # ---- Modes ----

    @_calls.collective
    def enter(self, mode: str) -> None:
        """The actor stays in a mode, "train", "forward" or "infer", until exit: what needs another one is State."""
        self._call("enter", "treadle_actor_enter", _mode("enter", mode))

    def exit(self, mode: str) -> None:
        """It need not stay in that mode any more. Nothing moves until a call needs another one."""
        self._call("exit", "treadle_actor_exit", _mode("exit", mode))

    @contextlib.contextmanager
    def mode(self, mode: str) -> typing.Iterator[Actor]:
        """enter() and exit(): `with actor.mode("infer"):`."""
        self.enter(mode)
        try:
            yield self
        finally:
            if self._object is not None:
                self.exit(mode)

    # ---- Prompts ----

    def slice_prompts(self, prompts: Batch) -> PromptSlice:
        """The prompts that this rank's replica answers, of a batch that all ranks have whole. Local."""
        leads = ctypes.c_bool()

        def call(what: str, name: str, *given: typing.Any) -> None:
            batch, rows, pointer = given
            self._call(what, name, batch, rows, ctypes.byref(leads), pointer)

        made = sliced(call, "treadle_actor_slice_prompts", prompts)
        return PromptSlice(made.batch, made.rows, leads.value)

    @_calls.collective
    def generate(
        self,
        prompts: Prompts,
        sampling: Sampling | None = None,
        *,
        progress: _calls.Progress | None = None,
        stop: _calls.Stop | None = None,
    ) -> Batch:
        """Answers the prompts of this rank's replica, as Generator.generate. progress and stop are for the built-in
        generator. Raises Refused, by row and column, for answers of a generator of the caller's that are not as
        InferEngine.generate says."""
        name = "treadle_actor_generate_sequences"
        return answered(self._call, self._calls, "generate", name, prompts, sampling, progress, stop)

    # ---- Rows ----

    def slice(self, batch: Batch, forward: Forward | None = None) -> Slice:
        """This rank's rows of a batch that all ranks have whole, as Trainer.slice. Local."""
        return sliced(self._call, "treadle_actor_slice", batch, self._forward(forward))

    @_calls.collective
    def log_probs(self, batch: Batch, forward: Forward | None = None) -> Batch:
        """Log-probabilities of the policy, as Trainer.logprobs."""
        return self._log_probs("log_probs", "treadle_actor_compute_log_prob", batch, forward)

    @_calls.collective
    def ref_log_probs(self, batch: Batch, forward: Forward | None = None) -> Batch:
        """Log-probabilities of the reference, in the column log_probs. Raises State where load_reference was not
        called."""
        return self._log_probs("ref_log_probs", "treadle_actor_compute_ref_log_prob", batch, forward)

    def _log_probs(self, what: str, name: str, batch: Batch, forward: Forward | None) -> Batch:
        out = Batch(len(batch))
        self._call(what, name, used(what, batch), self._forward(forward), out._use(what))
        return out

    @_calls.collective
    def update(
        self,
        batch: Batch,
        loss: AnyLoss,
        forward: Forward | None = None,
        *,
        lr: float,
        weight_decay: float = 0.0,
        clip_grad: float = 0.0,
        out: Batch | None = None,
    ) -> UpdateFigures:
        """Gradients and a step, as Trainer.update."""
        options = loss_options(loss, self._calls)
        step = _library.sized(_abi.treadle_optimizer_step, lr=lr, weight_decay=weight_decay, clip_grad=clip_grad)
        after = _library.sized(_abi.treadle_optimizer_figures)
        self._call(
            "update",
            "treadle_actor_update",
            used("update", batch),
            self._forward(forward),
            ctypes.byref(options),
            ctypes.byref(step),
            given_out("update", out),
            ctypes.byref(after),
        )
        return UpdateFigures(*loss_figures(loss, after.loss), *_calls.figures(StepFigures, after))

    def _forward(self, forward: Forward | None) -> typing.Any:
        return forward_of(forward, self._most_rows)

    # ---- What there is to know ----

    def info(self) -> ActorInfo:
        """Figures of this rank. Local."""
        info = _library.sized(_abi.treadle_actor_info)
        self._call("info", "treadle_actor_get_info", ctypes.byref(info))
        by_class = {name: dict(zip(_CLASSES, getattr(info, name))) for name in ("bytes", "peaks")}
        made: ActorInfo = _calls.figures(ActorInfo, info, mode=MODES[info.mode], **by_class)
        return made


def _mode(what: str, mode: str) -> int:
    if mode not in _BY_MODE:
        raise errors.Refused(f"{what}: mode is {mode!r}, and must be one of {', '.join(_BY_MODE)}")
    return _BY_MODE[mode]
