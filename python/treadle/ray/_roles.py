"""The built-in roles as classes of workers: engines of treadle's own, with a method for each thing that a step needs.

    actor = WorkerGroup(pool, ClassWithInitArgs(ActorRollout, "MODEL", "megatron:tp=2", "vllm:tp=1"))
    critic = WorkerGroup(other, ClassWithInitArgs(Critic, "MODEL", "megatron:tp=1"))
    actor.init_model(), critic.init_model()
    samples = actor.generate_sequences(prompts)  # a future
    values = critic.compute_values(samples)  # rows go from the actor's workers to the critic's

The workers of a group are the ranks of a layout, and must be on one node, as the built-in engines need it. Rows are
divided by the layout: ranks with one data parallel coordinate get the same rows, and one of them gives results back.

A method that takes rows takes any number of batches and futures, whose columns are united. It gives a Future."""

from __future__ import annotations

import dataclasses
import itertools
import os
import typing

from .. import errors
from ..actor import Actor
from ..batch import Batch
from ..generator import GeneratorOptions, Sampling
from ..group import Group, hash_of
from ..layout import Layout
from ..model import Model
from ..trainer import Forward, Loss, Trainer, TrainerOptions, UpdateFigures
from ._register import Dispatch, nd_mesh, register
from ._worker import Worker, said_by_group

Path = typing.Union[str, "os.PathLike[str]"]

_numbers = itertools.count()  #: of the roles in this process, which are made in one order on all ranks
_ONE = Forward(micro_batch_size=1)


@dataclasses.dataclass(frozen=True)
class OptimizerStep:
    """What a step of the optimizer does with gradients: treadle_optimizer_step."""

    lr: float = 1e-6  #: unless the samples have their own: meta["lr"]
    weight_decay: float = 0.01
    clip_grad: float = 1.0  #: 0: none


class _Role(Worker):
    """An engine on the ranks of the group. init_model makes it, and says which rows this rank gets."""

    _engine: typing.Any = None

    def _meet(self) -> Group | None:
        """The ranks of this role."""
        if self.world_size == 1:
            return None
        if (nodes := int(said_by_group("WG_NODES"))) != 1:
            raise errors.Refused(
                f"{type(self).__name__}: its pool is on {nodes} nodes; the built-in engines need all ranks on one: "
                "give the pool one entry"
            )
        of_this = "/".join(said_by_group(name) for name in ("WG_PREFIX", "MASTER_ADDR", "MASTER_PORT"))
        return Group.join(f"ray{hash_of(f'{of_this}/{next(_numbers)}')}", self.rank, self.world_size)

    def _ready(self) -> typing.Any:
        if self._engine is None:
            raise errors.State(f"{type(self).__name__}: init_model was not called")
        return self._engine

    def _register_rows(self, mesh: str, probe: typing.Callable[[Batch, Forward], Batch]) -> None:
        """Which rows are this rank's, as the engine divides them; and whether it is the one that has results, which a
        row that is tried shows."""
        rows = self._engine.slice(_rows(self.world_size), _ONE).rows
        self.register_mesh(mesh, rows.start // len(rows), bool(probe(_rows(1), _ONE).columns))

    def _update(self, batches: typing.Sequence[Batch], loss: Loss, forward: Forward, step: OptimizerStep) -> Batch:
        batch = _united(batches)
        if self.padding:
            raise errors.Refused(
                f"{type(self).__name__}: {self.padding} rows of padding would count in the loss: give a number of rows "
                "that divides by the layout's data parallel ranks"
            )
        figures: UpdateFigures = self._ready().update(
            batch,
            loss,
            forward,
            lr=float(batch.meta.get("lr", step.lr)),
            weight_decay=step.weight_decay,
            clip_grad=step.clip_grad,
        )
        made = Batch(len(batch))
        made.meta["figures"] = dict(figures._asdict())  # the same on all ranks
        return made

    # ---- What all of them do ----

    @register(Dispatch.ONE_TO_ALL)
    def weights_digest(self) -> int:
        """A hash of the weights, the same in every layout and on every rank: Trainer.weights_digest."""
        return int(self._ready().weights_digest())


class _Trained(_Role):
    """With checkpoints."""

    @register(Dispatch.ONE_TO_ALL)
    def save_checkpoint(self, folder: Path) -> None:
        """Writes weights and the optimizer's state into a folder: Trainer.save. All nodes see it."""
        self._ready().save(folder)

    @register(Dispatch.ONE_TO_ALL)
    def load_checkpoint(self, folder: Path) -> None:
        """Reads what a role of any layout has saved, or a run of `treadle train`: Trainer.resume."""
        self._ready().resume(folder)


class ActorRollout(_Trained):
    """Trains a policy in one layout and generates with it in another, on the same memory: treadle.Actor.

    model: a folder with weights. train, infer: layouts (docs/layouts.md) on as many ranks as the group has workers.
    reference: the folder of a reference's model; None: there is no reference here. seed: weights are made up with it.
    sampling, forward, loss, step: of its calls. trainer, engine: options of the engines. options: others of
    treadle.Actor: keep, offload, kv_bytes, ..."""

    def __init__(
        self,
        model: Path,
        train: str,
        infer: str,
        *,
        reference: Path | None = None,
        seed: int | None = None,
        sampling: Sampling = Sampling(logprobs_of="scaled"),
        forward: Forward = Forward(),
        loss: Loss = Loss("ppo"),
        step: OptimizerStep = OptimizerStep(),
        trainer: TrainerOptions = TrainerOptions(),
        engine: GeneratorOptions | None = None,
        families: Path | None = None,
        **options: typing.Any,
    ) -> None:
        self._model, self._train, self._infer, self._reference = model, train, infer, reference
        self._seed, self._families, self._options = seed, families, options
        self._sampling, self._forward, self._loss, self._step = sampling, forward, loss, step
        self._trainer, self._generator = trainer, engine

    @register(Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Makes the engines, and loads weights."""
        model = Model(self._model, self._families)
        reference = Model(self._reference, self._families) if self._reference is not None else None
        self._engine = Actor(
            Layout(model, self._train, self.world_size),
            Layout(model, self._infer, self.world_size),
            self._meet(),
            trainer=self._trainer,
            engine=self._generator,
            reference=Layout(reference, self._train, self.world_size) if reference is not None else None,
            **self._options,
        )
        _fill(self._engine, self._seed)
        if reference is not None:
            self._engine.load_reference()
        mine = self._engine.slice_prompts(_rows(self.world_size))
        self.register_mesh("rollout", mine.rows.start // len(mine.rows), mine.leads)
        self._register_rows("actor", self._engine.log_probs)

    @register(nd_mesh("rollout"), blocking=False)
    def generate_sequences(self, *prompts: Batch) -> Batch:
        """The samples: each prompt (prompt_ids, perhaps seed) sampling.n times, with all its columns, beside the
        columns of its answer: ids, rollout_log_probs, finish, version (Generator.generate). meta["sampling"], a dict,
        has values of Sampling in place of the role's: {"n": 1, "temperature": 0}."""
        asked = _united(prompts)
        sampling = dataclasses.replace(self._sampling, **asked.meta.get("sampling", {}))
        samples = asked.repeat(sampling.n)
        samples.union(self._ready().generate(asked, sampling))
        return samples

    @register(nd_mesh("actor"), blocking=False)
    def compute_log_prob(self, *samples: Batch) -> Batch:
        """old_log_probs, and entropies if forward asks for them."""
        return _renamed(self._ready().log_probs(_united(samples), self._forward), "old_log_probs")

    @register(nd_mesh("actor"), blocking=False)
    def compute_ref_log_prob(self, *samples: Batch) -> Batch:
        """ref_log_probs, of the reference."""
        return _renamed(self._ready().ref_log_probs(_united(samples), self._forward), "ref_log_probs")

    @register(nd_mesh("actor"), blocking=False)
    def update_actor(self, *samples: Batch) -> Batch:
        """One step with the loss of these samples: one mini batch. No columns; meta["figures"] has UpdateFigures."""
        return self._update(samples, self._loss, self._forward, self._step)


class Critic(_Trained):
    """Trains a model with a score head, which says what a sample will be worth: treadle.Trainer.

    model: a folder with weights; without score.weight in it the head begins with zeros. layout: on as many ranks as the
    group has workers. The rest is as in ActorRollout."""

    def __init__(
        self,
        model: Path,
        layout: str,
        *,
        seed: int | None = None,
        forward: Forward = Forward(),
        loss: Loss = Loss("value"),
        step: OptimizerStep = OptimizerStep(),
        trainer: TrainerOptions = TrainerOptions(),
        families: Path | None = None,
    ) -> None:
        self._model, self._layout, self._seed, self._families = model, layout, seed, families
        self._forward, self._loss, self._step, self._trainer = forward, loss, step, trainer

    @register(Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Makes the engine, and loads weights."""
        model = Model(self._model, self._families, head="score", score_zeros=True)
        self._engine = _trainer(Layout(model, self._layout, self.world_size), self._meet(), self._trainer)
        _fill(self._engine, self._seed)
        self._register_rows("critic", self._engine.values)

    @register(nd_mesh("critic"), blocking=False)
    def compute_values(self, *samples: Batch) -> Batch:
        """values, which treadle.advantages(samples, "gae") reads."""
        return typing.cast(Batch, self._ready().values(_united(samples), self._forward))

    @register(nd_mesh("critic"), blocking=False)
    def update_critic(self, *samples: Batch) -> Batch:
        """One step, as ActorRollout.update_actor, by the columns values and returns."""
        return self._update(samples, self._loss, self._forward, self._step)


class _Frozen(_Role):
    def __init__(
        self,
        model: Path,
        layout: str,
        *,
        forward: Forward = Forward(),
        trainer: TrainerOptions = TrainerOptions(),
        families: Path | None = None,
    ) -> None:
        self._model, self._layout, self._families = model, layout, families
        self._forward = forward
        self._trainer = dataclasses.replace(trainer, forward_only=True, optimizer=False)

    def _open(self, head: str) -> None:
        model = Model(self._model, self._families, head=head)
        self._engine = _trainer(Layout(model, self._layout, self.world_size), self._meet(), self._trainer)
        self._engine.load()


class RefPolicy(_Frozen):
    """A reference on ranks of its own. Arguments are as in Critic."""

    @register(Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Makes the engine, and loads weights."""
        self._open("lm")
        self._register_rows("ref", self._engine.logprobs)

    @register(nd_mesh("ref"), blocking=False)
    def compute_ref_log_prob(self, *samples: Batch) -> Batch:
        """ref_log_probs, the same bits as ActorRollout's."""
        return _renamed(self._ready().logprobs(_united(samples), self._forward), "ref_log_probs")


class RewardModel(_Frozen):
    """A model with a score head that judges samples. Arguments are as in Critic."""

    @register(Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Makes the engine, and loads weights."""
        self._open("score")
        self._register_rows("reward", self._engine.scores)

    @register(nd_mesh("reward"), blocking=False)
    def compute_rm_score(self, *samples: Batch) -> Batch:
        """rm_score (fp64): what the head gives at the last token of each sample."""
        return _renamed(self._ready().scores(_united(samples), self._forward), "rm_score")


# ---- Rows and engines ------------------------------------------------------------------------------------------


def _rows(count: int) -> Batch:
    """The smallest samples, by which an engine shows who gets which."""
    return Batch.of({"prompt_ids": [[0]] * count, "ids": [[0]] * count})


def _united(batches: typing.Sequence[Batch]) -> Batch:
    """The columns of all, in the first one."""
    if not batches:
        raise errors.Refused("a call without rows: give it a batch or a future")
    for other in batches[1:]:
        batches[0].union(other)
    return batches[0]


def _renamed(found: Batch, name: str) -> Batch:
    """log_probs or score, where this rank has it."""
    for before in ("log_probs", "score"):
        if before in found:
            found.rename(before, name)
    return found


def _trainer(layout: Layout, group: Group | None, options: TrainerOptions) -> Trainer:
    return Trainer(layout, group, **{field.name: getattr(options, field.name) for field in dataclasses.fields(options)})


def _fill(engine: Actor | Trainer, seed: int | None) -> None:
    if seed is None:
        engine.load()
    else:
        engine.randomise(seed)
