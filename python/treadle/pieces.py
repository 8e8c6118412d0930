"""What a loop of one's own is made of, beside the actor and batches: prompts, rewards, advantages, learning rates.

    prompts = treadle.read_prompts("train.jsonl", tokenizer, chat)
    reward = treadle.Reward("gsm8k")
    for step in range(steps):
        asked = treadle.draw_prompts(prompts, step, 32, seed=1)
        samples = asked.repeat(8)
        samples.union(actor.generate(asked, treadle.Sampling(n=8)))
        tokenizer.decode_rows(samples, "ids", "completion")
        reward.score(samples)
        treadle.advantages(samples)
        actor.update(samples, treadle.Loss("ppo"), lr=1e-6)

examples/python/05_own_loop.py is such a loop, on any number of ranks."""

from __future__ import annotations

import ctypes
import os
import typing

from . import _abi, _library, errors
from .batch import Batch, _new
from .group import Group, held, refuse
from .texts import Chat, Tokenizer
from .trainer import used


def read_prompts(
    path: str | os.PathLike[str],
    tokenizer: Tokenizer | None = None,
    chat: Chat | None = None,
    *,
    prompt_key: str | None = None,
    answer_key: str | None = None,
    data_source_key: str | None = None,
    vocabulary: int = 0,
    most_tokens: int = 0,
    need_answers: bool = False,
) -> Batch:
    """Prompts of a file of JSON (docs/grpo.md), a row each: the columns prompt_ids, prompt, answer and data_source.

    path: several files with commas between them are read one after the other. tokenizer: None: prompts are token ids.
        chat: None: texts stay as they are. The keys are names in the file; None: "prompt", "answer", "data_source".
    vocabulary: ids are below it. most_tokens: of a prompt. 0: no limit. need_answers: each prompt must have one.

    Raises Refused, by file and line."""
    options = _library.sized(
        _abi.treadle_prompts_options,
        path=_library.given("path", path),
        tokenizer=tokenizer._use("read_prompts") if tokenizer is not None else None,
        chat=chat._use("read_prompts") if chat is not None else None,
        prompt_key=_text("prompt_key", prompt_key),
        answer_key=_text("answer_key", answer_key),
        data_source_key=_text("data_source_key", data_source_key),
        vocabulary=vocabulary,
        most_tokens=most_tokens,
        need_answers=need_answers,
    )
    return Batch._from(_new("treadle_prompts_read", ctypes.byref(options)))


def draw_prompts(
    prompts: Batch, step: int, count: int, *, seed: int = 0, sampling_seed: int | None = None, in_place: bool = False
) -> Batch:
    """The prompts of a step, as `treadle train` draws them: rows of `prompts`, with the columns seed and group (int64).

    step: from 0; each has `count` prompts. seed: of the order of prompts, which is another one in each epoch; in_place:
        each epoch has them in their own order. sampling_seed: of their answers; None: seed."""
    options = _library.sized(
        _abi.treadle_draw_options,
        step=step,
        count=count,
        seed=seed,
        sampling_seed=seed if sampling_seed is None else sampling_seed,
        in_place=in_place,
    )
    return Batch._from(_new("treadle_prompts_draw", prompts._use("draw_prompts"), ctypes.byref(options)))


def gather(group: Group | None, mine: Batch | None) -> Batch:
    """The rows of all ranks, on all ranks, in the order of ranks. mine: this rank's; None: it has none, as a rank whose
    replica another one leads. Collective."""
    with held(group, "gather") as pointer:
        try:
            given = used("gather", mine) if mine is not None else None
        except Exception as error:
            if pointer is not None:
                refuse(pointer, error)
            raise
        return Batch._from(_new("treadle_batch_gather", pointer, given))


_LEAST = 5e-324  # in place of 0, which C takes as "not given"


def advantages(
    batch: Batch, estimator: str = "group_norm", *, keep_scale: bool = False, gamma: float = 1.0, lam: float = 1.0
) -> None:
    """Adds the column advantage (fp64), or, where tokens of a row have different ones, advantages (ragged fp64, like
    ids), by the columns group, ids and reward, or, if that is absent, score. "gae" also needs values (ragged fp32: what
    a critic expects before each token), and adds returns, of the same form.

    estimator: a word of rl_config.adv_estimator (docs/grpo-keys.md), or "gae". keep_scale: of "group_norm": without
        division by the group's deviation; of "gae": not whitened. gamma: of "reinforce_plus_plus" and "gae". lam: of
        "gae".

    Raises Refused, by row, for rewards and values that are not finite."""
    options = _library.sized(
        _abi.treadle_advantage_options,
        estimator=_library.given("estimator", estimator),
        keep_scale=keep_scale,
        gamma=gamma or _LEAST,
        lam=lam or _LEAST,
    )
    _library.call("treadle_advantages", batch._use("advantages"), ctypes.byref(options))


def learning_rate(
    done: int, *, lr: float, steps: int, style: str = "constant", min_lr: float = 0.0, warmup_fraction: float = 0.0
) -> float:
    """The learning rate of a step before which `done` of `steps` were taken, as `treadle train` has it
    (docs/training.md). style: "constant", "linear" or "cosine". warmup_fraction: of all steps, below 1."""
    options = _library.sized(
        _abi.treadle_lr_options,
        style=_library.given("style", style),
        lr=lr,
        min_lr=min_lr,
        warmup_fraction=warmup_fraction,
        steps=steps,
    )
    rate = ctypes.c_double()
    _library.call("treadle_learning_rate", ctypes.byref(options), done, ctypes.byref(rate))
    return rate.value


class Reward:
    """A function from completions to numbers (docs/rewards.md). One thread at a time uses it.

    name: "sequence", "gsm8k", "math", "regex:P", "length:target=T" or "command", which is what /bin/sh runs as
        `command`, in `parallel` processes, each of which may take `timeout` seconds for its next answer (0: 60).

    Raises Refused for an unknown reward; State when it is closed."""

    def __init__(self, name: str, *, command: str | None = None, timeout: float = 0.0, parallel: int = 0) -> None:
        options = _library.sized(
            _abi.treadle_reward_options,
            name=_library.given("the reward's name", name),
            command=_text("command", command),
            timeout_seconds=timeout,
            parallel=parallel,
        )
        pointer = ctypes.c_void_p()
        _library.call("treadle_reward_create", ctypes.byref(options), ctypes.byref(pointer))
        self._object: _library.Object | None = _library.Object(pointer, "treadle_reward_destroy")

    def score(self, batch: Batch) -> None:
        """Adds the column score (fp64), by the columns completion, answer, prompt, data_source and ids; those that the
        reward does not use may be absent. Raises Refused, Timeout, and what docs/rewards.md says of a command."""
        if (here := self._object) is None:
            raise errors.State("score: the reward is closed")
        _library.call("treadle_reward_score", here.use("score"), batch._use("score"))

    def close(self) -> None:
        """Ends it, and the processes of a command."""
        self._object = None

    def __enter__(self) -> Reward:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("a treadle.Reward cannot be pickled: make one in the other process")


def _text(name: str, text: str | None) -> bytes | None:
    return _library.given(name, text) if text is not None else None
