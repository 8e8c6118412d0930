"""The built-in engine that trains, on processors.

    with treadle.Trainer(treadle.Layout(model, "fsdp2", 1), threads=4) as trainer:
        trainer.load()
        batch = treadle.Batch.of({"prompt_ids": [[31, 7]], "ids": [[2, 9, 4]]})
        print(trainer.update(batch, "nll", lr=1e-5).loss)

treadle_builtin.h says what it computes and what it refuses; treadle_engine.h has what a row is
(treadle_forward_options)."""

from __future__ import annotations

import ctypes
import dataclasses
import operator
import os
import typing

from . import _abi, _calls, _library, errors
from . import batch as batches
from .batch import Batch
from .group import Group
from .layout import Layout

if typing.TYPE_CHECKING:
    from ._columns import Array

_MOST_ROWS = 4096  # tokens of a micro batch, where options leave it open (treadle_trainer_options)


# ---- Values that a call takes --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Forward:
    """How rows go through the layers, and what is wanted of them: treadle_forward_options. Micro batches have
    micro_batch_size rows, or as many as fit in max_tokens_per_micro tokens. Both 0: as many as there is memory for
    (most_rows of the trainer)."""

    micro_batch_size: int = 0
    max_tokens_per_micro: int = 0
    temperature: float = 1.0  #: logits are divided by it
    entropies: bool = False  #: also of the tokens' distributions
    never: typing.Sequence[int] = ()  #: ids that are never drawn, ascending
    replay_experts: bool = False  #: tokens go to the experts of the rows' column "experts"
    experts: bool = False  #: also the experts that tokens chose by themselves

    def _struct(self, most_rows: int) -> typing.Any:
        given = self
        if not self.micro_batch_size and not self.max_tokens_per_micro:
            given = dataclasses.replace(self, max_tokens_per_micro=most_rows or _MOST_ROWS)
        return _calls.struct(_abi.treadle_forward_options, "forward", given)


@dataclasses.dataclass(frozen=True)
class Loss:
    """A loss that the library has: "nll", "ppo" or "value". Names are those of treadle_loss_options, which has the
    formulas."""

    name: str = "ppo"
    clip_low: float = 0.2
    clip_high: float = 0.2
    clip_c: float = 3.0
    #: "token-mean", "seq-mean-token-sum", "seq-mean-token-mean" or "seq-mean-token-sum-norm", by norm_length
    aggregation: str = "token-mean"
    norm_length: float = 0.0
    entropy_coeff: float = 0.0  #: not 0: Forward must ask for entropies
    kl: str | None = None  #: "kl", "abs", "mse", "low_var_kl" (docs/grpo.md); None: none
    kl_coef: float = 0.0
    importance_cap: float = 0.0  #: 0: none
    clip_value: float = 0.5  #: of "value", the loss of a model with a score head; math.inf: no clip


class LossRow:
    """The tokens of a row that count, for a loss of one's own, as numpy arrays with a place for each: log_probs and
    entropies (float32; None: not asked for) are read; losses, what each token adds to the loss, and its derivatives
    by_log_prob and by_entropy (float64, 0 before; None: as entropies) are written, or set to other arrays."""

    __slots__ = ("row", "count", "log_probs", "entropies", "losses", "by_log_prob", "by_entropy")

    def __init__(self, of: typing.Any) -> None:
        """Copies: what the library gives lives for one call alone."""
        import numpy

        self.row, self.count = int(of.row), int(of.count)  #: of the batch that this rank was given
        shape = (self.count,)
        self.log_probs: Array = numpy.ctypeslib.as_array(of.log_probs, shape).copy()
        self.entropies: Array | None = numpy.ctypeslib.as_array(of.entropies, shape).copy() if of.entropies else None
        self.losses: Array = numpy.zeros(shape)
        self.by_log_prob: Array = numpy.zeros(shape)
        self.by_entropy: Array | None = numpy.zeros(shape) if of.by_entropy else None

    def _write(self, of: typing.Any) -> None:
        for name in ("losses", "by_log_prob", "by_entropy"):
            self._write_one(name, getattr(self, name), getattr(of, name))

    def _write_one(self, name: str, values: typing.Any, to: typing.Any) -> None:
        import numpy

        if not to:
            if values is not None:
                raise errors.Refused(f"row {self.row}: the loss gives {name}; entropies=True of Forward asks for them")
            return
        try:
            array = numpy.asarray(values, numpy.float64)
        except (TypeError, ValueError) as error:
            raise errors.Refused(f"row {self.row}: the loss gives {name} that are no numbers: {error}") from error
        if array.shape != (self.count,):
            raise errors.Refused(
                f"row {self.row}: the loss gives {name} of shape {list(array.shape)}; it must be [{self.count}]"
            )
        ctypes.memmove(to, numpy.ascontiguousarray(array).ctypes.data, array.nbytes)


#: A loss of the library, its name, or a function of one's own.
AnyLoss: typing.TypeAlias = "Loss | str | typing.Callable[[LossRow], object]"


def loss_options(loss: AnyLoss, calls: _calls.Calls) -> typing.Any:
    kind = _abi.treadle_loss_options
    if isinstance(loss, str):
        loss = Loss(loss)
    if isinstance(loss, Loss):
        return _calls.struct(kind, "loss", loss)
    if not callable(loss):
        raise errors.Refused(
            f"loss is a {type(loss).__name__}; it must be a treadle.Loss, 'nll', 'ppo', 'value' or a function "
            "of a row"
        )
    own = loss

    def of_row(_context: object, row_p: typing.Any) -> int:
        def work() -> None:
            calls.check()
            row = LossRow(row_p.contents)
            if (answer := calls.work(own, row)) is not None:
                raise errors.Refused(
                    f"row {row.row}: the loss returns a {type(answer).__name__}; it must write row.losses and its "
                    "derivatives, and return None"
                )
            row._write(row_p.contents)

        return calls.guard(work)

    return _library.sized(kind, of_row=calls.function(_library.field(kind, "of_row"), of_row))


# ---- Figures ------------------------------------------------------------------------------------------------


class LossFigures(typing.NamedTuple):
    """What a loss came to, over all ranks: treadle_loss."""

    nll: float  #: of "nll", the sum of -log p over the tokens that count; 0 of others
    tokens: int  #: that count
    loss: float  #: of "nll" nll / tokens
    pg_loss: float  #: parts of "ppo", weighted as the loss; 0 of others
    kl_loss: float
    entropy: float
    clipfrac: float  #: means over tokens, of "ppo"
    clipfrac_lower: float
    ppo_kl: float
    vf_loss: float  #: of "value", as are the rest: the loss itself
    vf_clipfrac: float  #: the share of tokens whose clipped square counts
    vpred_mean: float  #: the mean of what the head gives
    aux_loss: float  #: of models with experts: losses of routers, which loss does not include
    expert_load_max: float  #: choices of the most loaded expert over the mean, of the layer that is farthest from it
    expert_load_min: float  #: of the least loaded one
    experts_compared: int  #: tokens with a record of experts
    experts_differing: int  #: of these, tokens that would have gone to others


class StepFigures(typing.NamedTuple):
    """What a step came to."""

    grad_norm: float  #: before clipping
    skipped: bool  #: a gradient was not finite, and the step did nothing
    steps: int  #: taken so far


class UpdateFigures(typing.NamedTuple):
    """What a loss, and a step with its gradients, came to: the fields of LossFigures and StepFigures."""

    nll: float
    tokens: int
    loss: float
    pg_loss: float
    kl_loss: float
    entropy: float
    clipfrac: float
    clipfrac_lower: float
    ppo_kl: float
    vf_loss: float
    vf_clipfrac: float
    vpred_mean: float
    aux_loss: float
    expert_load_max: float
    expert_load_min: float
    experts_compared: int
    experts_differing: int
    grad_norm: float
    skipped: bool
    steps: int


class Slice(typing.NamedTuple):
    """The rows of a batch that a rank takes."""

    batch: Batch  #: these rows, which share the memory of the whole batch
    rows: range  #: their numbers in the whole batch


def loss_figures(loss: AnyLoss, of: typing.Any) -> LossFigures:
    name = loss.name if isinstance(loss, Loss) else loss
    made: LossFigures = _calls.figures(LossFigures, of)
    return made._replace(loss=of.nll / of.tokens) if name == "nll" and of.tokens else made


# ---- The trainer --------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TrainerOptions:
    """Options of a Trainer, for an actor's. 0 and None: the library's default (treadle_trainer_options)."""

    fast: bool = False  #: may add in any order; otherwise rows and micro batches alone decide the bits
    kernels: str | None = None  #: of matrix products, by name; None: the best of the machine
    threads: int = 0  #: 0: the number of processors
    most_rows: int = 0  #: the most tokens of a micro batch, for which there is memory; 0: 4096
    most_tokens: int = 0  #: of a row; 0: the smaller of most_rows and the model's positions
    most_sequences: int = 0  #: the most rows of a micro batch
    most_micro_batches: int = 0  #: of a step of a replica, for which a pipeline has memory
    fewer_micro_batches: bool = False  #: a step may have fewer
    optimizer: bool = True  #: AdamW; without it there are gradients, and no steps
    distributed_optimizer: bool = False  #: data parallel ranks divide the optimizer's state
    adam_beta1: float = 0.0  #: 0: 0.9
    adam_beta2: float = 0.0  #: 0: 0.999
    adam_eps: float = 0.0  #: 0: 1e-8
    recompute: bool = False  #: backward computes each layer again, so that less is kept
    sequence_parallel: bool = False
    offload_policy: bool = False  #: of fsdp2: shards lie in host memory
    companions: str | os.PathLike[str] | None = None  #: a folder whose tokenizer is saved with the weights
    forward_only: bool = False  #: no memory for gradients; with optimizer=False: of a reward model
    aux_loss_coeff: float = 0.0  #: of models with experts: of the loss that keeps experts evenly loaded
    z_loss_coeff: float = 0.0  #: of the z loss of routers
    expert_bias_rate: float = 0.0  #: by how much a step moves the biases of routers towards an even load
    freeze_routers: bool = False  #: routers keep their weights
    seq_aux_loss: bool = False  #: the loss of aux_loss_coeff is of each row by itself
    ulysses_ranks: int = 0  #: this many data parallel ranks take the same rows and divide their tokens
    lora_rank: int = 0  #: adapters of this rank train in place of the weights; 0: the weights train
    lora_alpha: float = 0.0  #: 0: 16
    lora_modules: str | None = None  #: "q_proj,lm_head"; None: all matrices of layers that can have adapters
    lora_adapter: str | os.PathLike[str] | None = None  #: a folder of peft's to begin with; None: random ones
    lora_seed: int = 0  #: of random ones
    lora_save_merged: bool = False  #: save() writes the weights with the adapters in them, too
    lora_gather: bool = False  #: each rank can have the adapters of all; an actor sets it

    def _struct(self) -> typing.Any:
        folders = {
            name: None if folder is None else _library.given(name, folder)
            for name, folder in (("companions", self.companions), ("lora_adapter", self.lora_adapter))
        }
        return _calls.struct(_abi.treadle_trainer_options, "trainer", self, **folders)


class Trainer(_calls.Engine):
    """Trains a model in a layout, on the ranks of a group (None: this process alone): its weights, gradients as fp32,
    and AdamW. All ranks make the same calls, each with its own rows (slice), and all functions except slice are
    collective. One call at a time runs. Weights come from load, randomise or resume.

    The other options are those of TrainerOptions.

    Where a call fails the trainer may be used again: step is State until gradients succeed, and after a resume that
    failed it has no weights.
    Raises Refused by name for what it does not compute, and by row and token for rows; State."""

    _word = "trainer"
    _instead = "save() it, and make one in the other process that can resume() it"

    @_calls.collective
    def __init__(
        self,
        layout: Layout,
        group: Group | None = None,
        *,
        fast: bool = False,
        kernels: str | None = None,
        threads: int = 0,
        most_rows: int = 0,
        most_tokens: int = 0,
        most_sequences: int = 0,
        most_micro_batches: int = 0,
        fewer_micro_batches: bool = False,
        optimizer: bool = True,
        distributed_optimizer: bool = False,
        adam_beta1: float = 0.0,
        adam_beta2: float = 0.0,
        adam_eps: float = 0.0,
        recompute: bool = False,
        sequence_parallel: bool = False,
        offload_policy: bool = False,
        companions: str | os.PathLike[str] | None = None,
        forward_only: bool = False,
        aux_loss_coeff: float = 0.0,
        z_loss_coeff: float = 0.0,
        expert_bias_rate: float = 0.0,
        freeze_routers: bool = False,
        seq_aux_loss: bool = False,
        ulysses_ranks: int = 0,
        lora_rank: int = 0,
        lora_alpha: float = 0.0,
        lora_modules: str | None = None,
        lora_adapter: str | os.PathLike[str] | None = None,
        lora_seed: int = 0,
        lora_save_merged: bool = False,
        lora_gather: bool = False,
    ) -> None:
        super().__init__(layout, group)
        options = TrainerOptions(
            fast=fast,
            kernels=kernels,
            threads=threads,
            most_rows=most_rows,
            most_tokens=most_tokens,
            most_sequences=most_sequences,
            most_micro_batches=most_micro_batches,
            fewer_micro_batches=fewer_micro_batches,
            optimizer=optimizer,
            distributed_optimizer=distributed_optimizer,
            adam_beta1=adam_beta1,
            adam_beta2=adam_beta2,
            adam_eps=adam_eps,
            recompute=recompute,
            sequence_parallel=sequence_parallel,
            offload_policy=offload_policy,
            companions=companions,
            forward_only=forward_only,
            aux_loss_coeff=aux_loss_coeff,
            z_loss_coeff=z_loss_coeff,
            expert_bias_rate=expert_bias_rate,
            freeze_routers=freeze_routers,
            seq_aux_loss=seq_aux_loss,
            ulysses_ranks=ulysses_ranks,
            lora_rank=lora_rank,
            lora_alpha=lora_alpha,
            lora_modules=lora_modules,
            lora_adapter=lora_adapter,
            lora_seed=lora_seed,
            lora_save_merged=lora_save_merged,
            lora_gather=lora_gather,
        )
        self._most_rows = most_rows
        self._make(
            "treadle_trainer_create",
            "treadle_trainer_destroy",
            [layout._object],
            layout._use(),
            ctypes.byref(options._struct()),
        )

    def __enter__(self) -> Trainer:
        return self

    # ---- Weights ----

    @_calls.collective
    def load(self) -> None:
        """Loads the weights of the model's checkpoint, and starts the optimizer anew."""
        self._call("load", "treadle_trainer_load")

    @_calls.collective
    def randomise(self, seed: int) -> None:
        """Makes up random weights in place of a checkpoint's, by the model's config."""
        self._call("randomise", "treadle_trainer_randomise", seed_of(seed))

    @_calls.collective
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes weights and the optimizer's state into a folder, which it makes if needed: huggingface/ and
        optimizer/. It overwrites the gradients."""
        save_with(self._call, "treadle_trainer_save", folder)

    @_calls.collective
    def resume(self, folder: str | os.PathLike[str]) -> None:
        """Reads what a trainer of any layout and any number of ranks has saved."""
        self._call("resume", "treadle_trainer_resume", _library.given("folder", folder))

    @_calls.collective
    def weights_digest(self) -> int:
        """A hash of the weights, the same in every layout: Switch.digest."""
        return self._number("weights_digest", "treadle_trainer_weights_digest")

    # ---- Rows ----

    def slice(self, batch: Batch, forward: Forward | None = None) -> Slice:
        """This rank's rows of a batch that all ranks have whole, which may be none: those that the functions below
        take. Data parallel ranks divide rows by whole micro batches. Local."""
        return sliced(self._call, "treadle_trainer_slice", batch, self._forward(forward))

    @_calls.collective
    def logprobs(self, batch: Batch, forward: Forward | None = None, *, weights: typing.Any = None) -> Batch:
        """A batch with as many rows and the columns log_probs and, if they are asked for, entropies: fp32, with a place
        for each of ids, 0 where a token does not count. Of ranks with the same rows one has these columns, the others
        none. weights: memory of another model's weights in this layout, as in Generator.bind; None: the trainer's."""
        other = _calls.room("logprobs", weights) if weights is not None else None
        if other is not None and other.nbytes < self._layout.window_bytes(self._rank):
            raise errors.Refused(
                f"logprobs: weights of {other.nbytes} bytes; {self._layout.text} has "
                f"{self._layout.window_bytes(self._rank)}"
            )
        out = Batch(len(batch))
        self._call(
            "logprobs",
            "treadle_trainer_logprobs",
            used("logprobs", batch),
            self._forward(forward),
            other.address if other is not None else None,
            out._use("logprobs"),
        )
        return out

    @_calls.collective
    def values(self, batch: Batch, forward: Forward | None = None) -> Batch:
        """Of a model with a score head: a batch with as many rows and the column values (fp32, with a place for each of
        ids, 0 where a token does not count), on one of the ranks with the same rows. The value of a token is what the
        head gives at the position before it."""
        return self._found("values", batch, forward)

    @_calls.collective
    def scores(self, batch: Batch, forward: Forward | None = None) -> Batch:
        """Of a model with a score head: a batch with as many rows and the column score (fp64): what the head gives at
        the last token of each row. On one of the ranks with the same rows, as values()."""
        return self._found("scores", batch, forward)

    def _found(self, what: str, batch: Batch, forward: Forward | None) -> Batch:
        out = Batch(len(batch))
        self._call(what, f"treadle_trainer_{what}", used(what, batch), self._forward(forward), out._use(what))
        return out

    @_calls.collective
    def loss(self, batch: Batch, loss: AnyLoss, forward: Forward | None = None) -> LossFigures:
        """What a loss comes to, without gradients."""
        found = _library.sized(_abi.treadle_loss)
        options = loss_options(loss, self._calls)
        self._call(
            "loss",
            "treadle_trainer_loss",
            used("loss", batch),
            self._forward(forward),
            ctypes.byref(options),
            ctypes.byref(found),
        )
        return loss_figures(loss, found)

    @_calls.collective
    def gradients(
        self, batch: Batch, loss: AnyLoss, forward: Forward | None = None, *, out: Batch | None = None
    ) -> LossFigures:
        """Computes gradients of a loss over the rows of all ranks, in place of earlier ones.

        loss: a Loss, "nll", "ppo" or "value"; or a function that is called with the LossRow of each row that has
            tokens that count, on every rank that has its logits. What it raises ends the call, and is raised again.
            Values that are not finite are Refused, by row and token.
        out: a batch with as many rows, which gets what logprobs() gives, or values() of a model with a score head."""
        found = _library.sized(_abi.treadle_loss)
        options = loss_options(loss, self._calls)
        self._call(
            "gradients",
            "treadle_trainer_gradients",
            used("gradients", batch),
            self._forward(forward),
            ctypes.byref(options),
            given_out("gradients", out),
            ctypes.byref(found),
        )
        return loss_figures(loss, found)

    @_calls.collective
    def step(self, *, lr: float, weight_decay: float = 0.0, clip_grad: float = 0.0) -> StepFigures:
        """Takes a step of AdamW (torch.optim.AdamW) with the present gradients. weight_decay: leaves out tensors of one
        dimension. clip_grad: gradients are scaled down to this norm; 0: never."""
        found = _library.sized(_abi.treadle_optimizer_figures)
        step = _library.sized(_abi.treadle_optimizer_step, lr=lr, weight_decay=weight_decay, clip_grad=clip_grad)
        self._call("step", "treadle_trainer_step", ctypes.byref(step), ctypes.byref(found))
        made: StepFigures = _calls.figures(StepFigures, found)
        return made

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
        """gradients(), and then step()."""
        found = self.gradients(batch, loss, forward, out=out)
        return UpdateFigures(*found, *self.step(lr=lr, weight_decay=weight_decay, clip_grad=clip_grad))

    # ---- Gradients ----

    def norm(self) -> float:
        """The square root of the sum of squares of all gradients, with equal bits in every layout. NaN: a gradient is
        not finite."""
        answer = ctypes.c_double()
        self._call("norm", "treadle_trainer_norm", ctypes.byref(answer))
        return answer.value

    def grad_digest(self) -> int:
        """A hash of the gradients, as weights_digest()."""
        return self._number("grad_digest", "treadle_trainer_digest")

    @_calls.collective
    def save_gradients(self, path: str | os.PathLike[str]) -> None:
        """Writes the gradients as a safetensors file: fp32, under Hugging Face's names."""
        self._call("save_gradients", "treadle_trainer_save_gradients", _library.given("path", path))

    @_calls.collective
    def save_experts(self, out: Batch, path: str | os.PathLike[str]) -> None:
        """Writes the experts that tokens chose, which a call with Forward(experts=True) has given, as a line of JSON
        for each row of all ranks."""
        self._call(
            "save_experts",
            "treadle_trainer_save_experts",
            used("save_experts", out),
            _library.given("path", path),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds on this rank. Local."""
        return int(_library.value("treadle_trainer_bytes", self._check("nbytes").use("nbytes")))

    def _forward(self, forward: Forward | None) -> typing.Any:
        return forward_of(forward, self._most_rows)


# ---- What an actor does, too ----------------------------------------------------------------------------------

Call = typing.Callable[..., None]


def forward_of(forward: Forward | None, most_rows: int) -> typing.Any:
    if forward is not None and not isinstance(forward, Forward):
        raise errors.Refused(f"forward is a {type(forward).__name__}; it must be a treadle.Forward or None")
    return ctypes.byref((forward or Forward())._struct(most_rows))


def used(what: str, batch: typing.Any) -> typing.Any:
    if not isinstance(batch, Batch):
        raise errors.Refused(f"{what}: the batch is a {type(batch).__name__}; it must be a treadle.Batch")
    return batch._lent(what)


def given_out(what: str, out: typing.Any) -> typing.Any:
    if out is not None and not isinstance(out, Batch):
        raise errors.Refused(f"{what}: out is a {type(out).__name__}; it must be a treadle.Batch or None")
    return out._use(what) if out is not None else None


def seed_of(seed: int) -> int:
    try:
        seed = operator.index(seed)
    except TypeError as error:
        raise errors.Refused(f"randomise: the seed is {seed!r}; it must be an int") from error
    if not 0 <= seed < 1 << 64:
        raise errors.Refused(f"randomise: the seed is {seed}; it must have 64 bits, without a sign")
    return seed


def save_with(call: Call, name: str, folder: str | os.PathLike[str]) -> None:
    given = _library.given("folder", folder)
    try:
        os.makedirs(given, exist_ok=True)
    except OSError:
        pass  # the library says on all ranks what is wrong with it
    call("save", name, given)


def sliced(call: Call, name: str, batch: Batch, *given: typing.Any) -> Slice:
    """`given`: between the batch and the rows that the function gives."""
    rows, pointer = _abi.treadle_row_range(), ctypes.c_void_p()
    call("slice", name, used("slice", batch), *given, ctypes.byref(rows), ctypes.byref(pointer))
    return Slice(Batch._from(batches._object(pointer)), range(rows.first, rows.end))
