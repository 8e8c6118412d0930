"""Whole runs: training by rewards, supervised training, and what a model's answers are worth.

    figures = treadle.train("examples/grpo-gsm8k.yaml", ["megatron_training.train_iters=100"], progress=print)
    treadle.sft("examples/sft-policy.yaml", group=treadle.Group.torch(), resume="auto")
    treadle.evaluate("path/to/hf-model", "test.jsonl", "gsm8k", samples=4).mean

They do what the commands of the same names do: docs/grpo.md, docs/training.md. Functions of Python's that are given are
called in the thread of the call, and other threads of Python run meanwhile."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import threading
import time
import typing
import warnings

from . import _abi, _library, errors
from .group import Group, held
from .model import WEIGHTS, weights_of

Path: typing.TypeAlias = "str | os.PathLike[str]"
Doing = typing.Callable[[str, int, int], object]

_IMPATIENT = 1.0  # seconds: a launcher may send the same signal twice


# ---- Figures ----


class TrainStep(typing.NamedTuple):
    """A step of train(), on rank 0."""

    step: int  #: from 1; 0: the test before the first step, of which only val_reward is known
    steps: int  #: all steps of the run
    reward: float  #: mean over the samples
    kl: float | None  #: to the reference; None: there is none
    entropy: float | None  #: mean over the tokens; None: not computed
    response_length: float  #: mean, in tokens
    loss: float  #: as grad_norm and lr, of the last mini batch
    grad_norm: float
    lr: float
    skipped: bool  #: a norm was not finite
    tested: bool
    val_reward: float | None  #: mean@N over all prompts of the test; None: the step was not tested
    tokens: int  #: of prompts and responses
    seconds: float
    gen_seconds: float  #: of generating
    switch_seconds: float  #: of switches both ways
    peak_bytes: int  #: of the fullest rank so far
    logprob_differing: int  #: tokens with log-probabilities that differ between generator and trainer
    checkpoint: str | None  #: the folder that was saved after the step
    expert_load_max: float  #: choices of the most loaded expert over the mean; 0: there are no experts
    expert_load_min: float


class TrainFigures(typing.NamedTuple):
    """What train() has done, on all ranks alike."""

    steps: int  #: taken by this call
    last_step: int  #: of the run
    reward_first: float | None  #: means of the first and last tenth of the steps
    reward_last: float | None
    val_first: float | None  #: of the first test and of the last one
    val_last: float | None
    logprob_tokens: int  #: tokens that were compared between generator and trainer
    logprob_differing: int
    logprob_max_diff: float
    peak_bytes: int  #: of the fullest rank
    peak_predicted_bytes: int
    kv_blocks: int  #: of the rank with the fewest
    step_seconds: float  #: median
    tokens_per_second: float  #: of prompts and responses, over all steps
    weights_digest: int
    losses_digest: int  #: of the losses of all mini batches of the run
    stopped: bool  #: before the last step
    checkpoint: str | None  #: the newest
    weights: str | None  #: where the weights come from with which the run started or resumed: "files", "random"


class SftStep(typing.NamedTuple):
    """A step of sft(), on rank 0."""

    step: int  #: from 1
    steps: int  #: all steps of the run
    loss: float
    grad_norm: float
    lr: float
    skipped: bool  #: the norm was not finite
    tested: bool
    val_loss: float | None  #: None: the step was not tested
    tokens: int  #: of the step's rows
    seconds: float
    checkpoint: str | None  #: the folder that was saved after the step
    aux_loss: float  #: losses of routers; 0, as the next two: there are no experts
    expert_load_max: float  #: choices of the most loaded expert over the mean
    expert_load_min: float


class SftFigures(typing.NamedTuple):
    """What sft() has done."""

    steps: int  #: taken by this call
    last_step: int  #: of the run
    loss_first: float | None  #: of the steps of this call
    loss_last: float | None
    tokens: int
    seconds: float
    peak_bytes: int  #: of the fullest rank
    peak_predicted_bytes: int
    weights_digest: int
    losses_digest: int  #: of the losses of all steps of the run
    stopped: bool  #: before the last step
    checkpoint: str | None  #: the newest
    weights: str | None  #: where the weights come from with which the run started or resumed: "files", "random"


class EvalFigures(typing.NamedTuple):
    """What evaluate() has found, on all ranks alike."""

    rows: int
    samples: int  #: of each row
    tokens: int
    mean: float  #: mean@N
    best: float  #: best@N/mean
    majority: float | None  #: maj@N/mean; None: the reward does not say what it took for the answer
    response_length: float  #: mean, in tokens
    seconds: float
    left_out: int  #: prompts without an answer
    weights: str | None  #: where the model's weights come from: "files", "random"


# of which NaN says that there is none; a loss, say, may be NaN
_MAY_LACK = {
    *("kl", "entropy", "majority"),
    *("reward_first", "reward_last", "val_first", "val_last", "loss_first", "loss_last"),
}

Made = typing.TypeVar("Made", TrainStep, TrainFigures, SftStep, SftFigures, EvalFigures)


def _value(of: typing.Any, name: str) -> typing.Any:
    value = getattr(of, name)
    if name == "checkpoint":
        return _library.text(value) if value else None
    if name == "weights":
        return next((word for word, number in WEIGHTS.items() if number == value), None)
    if name in _MAY_LACK and math.isnan(value) or name.startswith("val_") and not getattr(of, "tested", True):
        return None
    return value


def _made(kind: type[Made], of: typing.Any) -> Made:
    """From the struct of the library, with the same names."""
    return kind(**{name: _value(of, name) for name in kind._fields})


# ---- Functions of Python's, and Ctrl-C ----


class _Calls:
    """Functions of Python's that a call of the library calls. What the first of them raises asks the run to stop, as
    the first Ctrl-C does; none is called afterwards."""

    def __init__(self, stop: typing.Callable[[], object] | None) -> None:
        self._stop = stop
        self.raised: BaseException | None = None
        self.interrupted: float | None = None  # when

    def tell(self, kind: typing.Any, field: str, work: typing.Callable[..., object] | None) -> typing.Any:
        """`work` as a function of C that answers nothing; NULL where it is None."""
        type_ = _library.field(kind, field)
        if work is None:
            return type_()

        def call(_context: object, *given: typing.Any) -> None:
            try:
                if self.raised is None:
                    work(*given)
            except BaseException as error:  # noqa: BLE001
                self.raised = error

        return type_(call)

    def _stops(self) -> typing.Any:
        def call(_context: object) -> bool:
            try:
                return self.is_over or bool(self._stop is not None and self._stop())
            except BaseException as error:  # noqa: BLE001
                self.raised = error
                return True

        return _library.field(_abi.treadle_observer, "stop")(call)

    def observer(self, tell: typing.Callable[[bytes], object], doing: Doing | None = None) -> typing.Any:
        """Who is told what a run does; a pointer, which keeps the struct."""
        kind = _abi.treadle_observer
        return ctypes.pointer(
            _library.sized(
                kind,
                progress=self.tell(kind, "progress", _watcher(doing)),
                note=self.tell(kind, "note", lambda _warns, line: tell(line)),
                stop=self._stops(),
            )
        )

    @property
    def is_over(self) -> bool:
        return self.raised is not None or self.interrupted is not None

    @contextlib.contextmanager
    def listening(self) -> typing.Iterator[None]:
        """The first Ctrl-C asks the run to stop. Another one, more than a second later, is a KeyboardInterrupt where it
        comes, which ends a wait. As long as nobody else handles SIGINT, and in the main thread; others get no
        signals."""
        here = threading.current_thread() is threading.main_thread()
        if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return

        def handle(_number: int, _frame: object) -> None:
            now = time.monotonic()
            if self.interrupted is None:
                self.interrupted = now
            elif now - self.interrupted > _IMPATIENT:
                raise KeyboardInterrupt

        before = signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def run(self, group: Group | None, name: str, *given: typing.Any) -> None:
        """Calls a function whose first argument is the group. Raises what was raised in a function of Python's."""
        failure: errors.Error | None = None
        callbacks = group._net.callbacks if group is not None and group._net is not None else None
        with held(group, f"{name} ({id(self):#x})") as pointer, self.listening():
            try:
                _library.call(name, pointer, *given, callbacks=callbacks)
            except errors.Error as error:
                failure = error
        raised = self.raised
        if raised is None and self.interrupted is not None:
            raised = KeyboardInterrupt()
        if raised is None and failure is not None:
            raise failure
        if raised is None:
            return
        if failure is None or isinstance(failure, errors.Cancelled):
            raise raised
        if isinstance(raised, Exception):
            raise failure from raised
        raise raised from failure


def _tellers(note: typing.Callable[[str], object] | None) -> typing.Callable[[bytes], object]:
    """Who is told the lines of the library that a person should know."""

    def tell(line: bytes) -> None:
        text = _library.text(line)
        if note is not None:
            note(text)
        else:
            warnings.warn(text, stacklevel=2)

    return tell


def _watcher(doing: Doing | None) -> typing.Callable[[bytes, int, int], object] | None:
    if doing is None:
        return None
    return lambda what, done, total: doing(_library.text(what), done, total)


# ---- Configurations ----


def _read(
    name: str,
    path: Path,
    overrides: typing.Iterable[str],
    group: Group | None,
    tell: typing.Callable[[bytes], object],
) -> _library.Object:
    """The configuration; rank 0 tells what it warns of. Where one rank cannot read it, all ranks raise."""
    given = [_library.given("override", text) for text in overrides]
    texts = (ctypes.c_char_p * len(given))(*given)
    file = _library.given("the path of the configuration", path)
    pointer, count = ctypes.c_void_p(), ctypes.c_size_t()
    refusal: errors.Error | None = None
    try:
        _library.call(name, file, texts, len(given), ctypes.byref(pointer))
    except errors.Error as error:
        refusal = error
    if group is not None:
        group._tell(refusal)
    elif refusal is not None:
        raise refusal
    config = _library.Object(pointer, "treadle_train_config_destroy")
    lines = _library.value("treadle_train_config_warnings", pointer, ctypes.byref(count))
    for number in range(count.value if group is None or group.rank == 0 else 0):
        tell(lines[number])
    return config


def _optional(what: str, value: Path | None) -> bytes | None:
    return None if value is None else _library.given(what, value)


def _start(resume: Path) -> dict[str, typing.Any]:
    """The fields of the options that say where a run starts."""
    if resume == "never":
        return {"resume": _abi.TREADLE_RESUME_NEVER}
    if resume == "auto":
        return {"resume": _abi.TREADLE_RESUME_AUTO}
    return {"resume": _abi.TREADLE_RESUME_FROM, "from": _library.given("resume", resume)}


# ---- Runs ----


def train(
    config: Path,
    overrides: typing.Iterable[str] = (),
    *,
    group: Group | None = None,
    resume: Path | None = None,
    progress: typing.Callable[[TrainStep], object] | None = None,
    doing: Doing | None = None,
    note: typing.Callable[[str], object] | None = None,
    stop: typing.Callable[[], object] | None = None,
    families: Path | None = None,
    kernels: str | None = None,
    threads: int = 0,
) -> TrainFigures:
    """Trains a policy by rewards, as the configuration says: what `treadle train` does (docs/grpo.md). Collective.

    config: a YAML file with the keys of docs/grpo-keys.md. overrides: texts "section.key=value", which go before it.
    group: the ranks, which nobody else may use meanwhile; None: this process alone.
    resume: "auto", from the newest checkpoint of the run, or from scratch where there is none; "never", refused where
        there are checkpoints; or a folder global_step_K. None: what the configuration says (resume_mode).
    progress: called on rank 0 after each step. doing: called on rank 0 with what takes long now, how much of it is
        done, and of how much (0: unknown). note: called on rank 0 with what a person should know; None: warnings.warn.
    stop: asked on each rank after each step. If one says something true, the run saves a checkpoint and ends.
    families, kernels, threads: as the options of the command.

    What such a function raises stops the run in the same way, and is raised again from here; other ranks return.
    Ctrl-C does so, too, as KeyboardInterrupt. A second one, more than a second later, ends a wait in the step at hand.

    Raises Refused for wrong input, before the run starts; Different where log-probabilities of generator and trainer
    differ in exact mode; and what fails in a run, such as a reward."""
    calls, tell, kind = _Calls(stop), _tellers(note), _abi.treadle_rl_options
    read = _read("treadle_rl_config_read", config, overrides, group, tell)
    if resume is None:
        from_ = ctypes.c_char_p()
        number = _library.value("treadle_rl_config_start", read.pointer, ctypes.byref(from_))
        start = {"resume": number, "from": from_.value}
    else:
        start = _start(resume)
    options = _library.sized(
        kind,
        **start,
        families=_optional("families", families),
        kernels=_optional("kernels", kernels),
        threads=threads,
        progress=calls.tell(
            kind, "progress", None if progress is None else lambda step: progress(_made(TrainStep, step.contents))
        ),
        observer=calls.observer(tell, doing),
    )
    figures = _library.sized(_abi.treadle_rl_figures)
    calls.run(group, "treadle_rl_run", read.pointer, ctypes.byref(options), ctypes.byref(figures))
    return _made(TrainFigures, figures)


def sft(
    config: Path,
    overrides: typing.Iterable[str] = (),
    *,
    group: Group | None = None,
    resume: Path = "never",
    progress: typing.Callable[[SftStep], object] | None = None,
    note: typing.Callable[[str], object] | None = None,
    stop: typing.Callable[[], object] | None = None,
    budget: int = 0,
    families: Path | None = None,
    kernels: str | None = None,
    threads: int = 0,
) -> SftFigures:
    """Trains on rows of text, as the configuration says: what `treadle sft` does (docs/training.md). Collective.

    config: a YAML file with the keys of docs/training.md. budget: bytes that no rank may exceed. The rest is as in
    train(), with other steps and figures."""
    calls, tell, kind = _Calls(stop), _tellers(note), _abi.treadle_sft_options
    read = _read("treadle_train_config_read", config, overrides, group, tell)
    options = _library.sized(
        kind,
        **_start(resume),
        families=_optional("families", families),
        kernels=_optional("kernels", kernels),
        threads=threads,
        progress=calls.tell(
            kind, "progress", None if progress is None else lambda step: progress(_made(SftStep, step.contents))
        ),
        observer=calls.observer(tell),
        budget_bytes=budget,
    )
    figures = _library.sized(_abi.treadle_sft_figures)
    calls.run(group, "treadle_sft_run", read.pointer, ctypes.byref(options), ctypes.byref(figures))
    return _made(SftFigures, figures)


def evaluate(
    model: Path,
    data: Path,
    reward: str,
    *,
    group: Group | None = None,
    samples: int = 1,
    temperature: float = 1.0,
    max_tokens: int = 0,
    seed: int = 0,
    reward_command: str | None = None,
    tokenizer: Path | None = None,
    prompt_key: str | None = None,
    answer_key: str | None = None,
    leave_unanswered_out: bool = False,
    layout: str | None = None,
    weights: str | None = None,
    doing: Doing | None = None,
    note: typing.Callable[[str], object] | None = None,
    stop: typing.Callable[[], object] | None = None,
    families: Path | None = None,
    kernels: str | None = None,
    threads: int = 0,
) -> EvalFigures:
    """Generates answers of a model and scores them: what `treadle eval` does. Collective.

    model: a Hugging Face folder. data: a file of prompts and answers. reward: the name of a reward (docs/rewards.md);
        reward_command is of the reward "command".
    samples: of each prompt. temperature: 0 is the most probable token. max_tokens: of a response; 0: half of the
        model's positions, at most 1024.
    tokenizer: a folder; None: the model's. prompt_key, answer_key: names in the data; None: "prompt", "answer".
    leave_unanswered_out: prompts without an answer are left out if the reward needs one, and not refused.
    layout: of inference; None: vllm, with one replica on each rank. weights: as of Model.
    doing, note, families, kernels, threads: as in train(). stop: asked on rank 0, often; something true ends the call
        as Cancelled.

    What a function raises ends the call, and is raised again from here; so does Ctrl-C."""
    calls, tell, kind = _Calls(stop), _tellers(note), _abi.treadle_eval_options
    options = _library.sized(
        kind,
        model=_library.given("model", model),
        data=_library.given("data", data),
        reward=_library.given("reward", reward),
        reward_command=_optional("reward_command", reward_command),
        tokenizer=_optional("tokenizer", tokenizer),
        prompt_key=_optional("prompt_key", prompt_key),
        answer_key=_optional("answer_key", answer_key),
        families=_optional("families", families),
        layout=_optional("layout", layout),
        kernels=_optional("kernels", kernels),
        threads=threads,
        samples=samples,
        temperature=temperature,
        max_tokens=max_tokens,
        seed=seed,
        observer=calls.observer(tell, doing),
        leave_unanswered_out=leave_unanswered_out,
        weights=weights_of("evaluate", weights),
    )
    figures = _library.sized(_abi.treadle_eval_figures)
    calls.run(group, "treadle_eval", ctypes.byref(options), ctypes.byref(figures))
    return _made(EvalFigures, figures)
