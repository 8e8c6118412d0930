"""The built-in engine that generates and scores, on processors.

    with treadle.Generator(treadle.Layout(model, "vllm", 1), threads=4) as generator:
        generator.load()
        answers = generator.generate([[31, 7, 2]], treadle.Sampling(max_tokens=16, seed=1))
        answers["ids"].tolist(), answers["rollout_log_probs"].torch()

treadle_builtin.h says what it computes and what it refuses."""

from __future__ import annotations

import ctypes
import dataclasses
import typing

from . import _abi, _calls, _library, errors
from . import batch as batches
from .batch import Batch
from .group import Group
from .layout import Layout
from .model import DTYPES, weights_of

if typing.TYPE_CHECKING:
    from ._columns import Array

Prompts: typing.TypeAlias = "Batch | typing.Sequence[typing.Any]"

_LOGPROBS_OF = {
    "model": _abi.TREADLE_LOGPROBS_MODEL,
    "scaled": _abi.TREADLE_LOGPROBS_SCALED,
    "drawn": _abi.TREADLE_LOGPROBS_DRAWN,
}


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. Names, ranges and defaults are those of treadle_sampling, and so vLLM's."""

    temperature: float = 1.0  #: below 1e-5: the largest logit, and of equal ones the lower id
    top_k: int = 0  #: 0, -1: all
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0  #: 1: none
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    n: int = 1  #: answers to each prompt
    max_tokens: int = 256  #: of an answer
    min_tokens: int = 0
    stop_token_ids: typing.Sequence[int] = ()  #: end an answer, beside the model's own
    ignore_eos: bool = False  #: the model's own end tokens do not end an answer
    seed: int = 0  #: of prompts without a seed of their own
    never: typing.Sequence[int] = ()  #: ids that are never drawn
    #: whose log-probabilities: "model", its distribution; "scaled", of logits over temperature; or "drawn", of what a
    #: token was drawn from
    logprobs_of: str = "model"
    most_kept: int = 0  #: with "drawn": the largest number of ids that a cut leaves; 0: no limit

    def _struct(self) -> typing.Any:
        if self.logprobs_of not in _LOGPROBS_OF:
            raise errors.Refused(
                f"sampling: logprobs_of is {self.logprobs_of!r}, and must be one of {', '.join(_LOGPROBS_OF)}"
            )
        return _calls.struct(
            _abi.treadle_sampling, "sampling", self, logprobs_of=_LOGPROBS_OF[self.logprobs_of]
        )

    @classmethod
    def _of(cls, struct: typing.Any) -> Sampling:
        """From the struct."""
        values = {field.name: getattr(struct, field.name) for field in dataclasses.fields(cls)}
        values["stop_token_ids"] = tuple(struct.stop_token_ids[: struct.stop_token_id_count])
        values["never"] = tuple(struct.never[: struct.never_count])
        values["logprobs_of"] = next(word for word, number in _LOGPROBS_OF.items() if number == struct.logprobs_of)
        return cls(**values)


@dataclasses.dataclass(frozen=True)
class GeneratorOptions:
    """Options of a Generator, for an actor's. 0 and None: the library's default (treadle_generator_options)."""

    fast: bool = False  #: False: exact mode
    kernels: str | None = None  #: of matrix products, by name; None: the best of the machine
    threads: int = 0  #: of this rank; 0: the processors of the machine, divided among its ranks
    max_batch: int = 0  #: sequences that are generated at once
    prefill_chunk: int = 0  #: tokens of prompts that are read at once
    block_tokens: int = 0  #: tokens in a block of the cache
    prefix_cache: bool = True  #: sequences with equal first tokens share blocks
    kv_bytes: int = 0  #: memory of the cache
    max_len: int = 0  #: tokens of a sequence
    experts: bool = False  #: record the experts that tokens chose; refused if the model has none

    def _struct(self) -> typing.Any:
        cache = _abi.TREADLE_ON if self.prefix_cache else _abi.TREADLE_OFF
        return _calls.struct(_abi.treadle_generator_options, "generator", self, prefix_cache=cache)


class GeneratorInfo(typing.NamedTuple):
    """Facts about a generator, on this rank."""

    dtype: str  #: in which it computes, by torch's name
    exact: bool
    kernels: str  #: of products: "amx", or "amx, avx512"
    threads: int
    vocabulary: int
    max_len: int
    work_bytes: int  #: activations
    packed_bytes: int  #: packed copies of weights
    kv_blocks: int  #: of the cache
    kv_blocks_peak: int
    kv_blocks_used: int
    version: int  #: how often weights were bound
    kv_block_bytes: int


class Generator(_calls.Engine):
    """Generates and scores with a model in a layout, on the ranks of a group (None: this process alone). All ranks make
    the same calls. One call at a time runs.

    The other options are those of GeneratorOptions.

    Raises Refused, by name, for families, layouts and kinds of attention that it does not compute."""

    _word = "generator"
    _instead = "make one of the same layout in the other process, and load() it there"

    @_calls.collective
    def __init__(
        self,
        layout: Layout,
        group: Group | None = None,
        *,
        fast: bool = False,
        kernels: str | None = None,
        threads: int = 0,
        max_batch: int = 0,
        prefill_chunk: int = 0,
        block_tokens: int = 0,
        prefix_cache: bool = True,
        kv_bytes: int = 0,
        max_len: int = 0,
        experts: bool = False,
    ) -> None:
        super().__init__(layout, group)
        options = GeneratorOptions(
            fast, kernels, threads, max_batch, prefill_chunk, block_tokens, prefix_cache, kv_bytes, max_len, experts
        )
        self._make(
            "treadle_generator_create",
            "treadle_generator_destroy",
            [layout._object],
            layout._use(),
            ctypes.byref(options._struct()),
        )
        self._kept = self._check("Generator").keep  # beside the memory of its weights

    def __enter__(self) -> Generator:
        return self

    # ---- Weights ----

    def bind(self, memory: typing.Any) -> None:
        """Gives the weights from now on: memory of this rank's window in the layout (Layout.storages says what lies
        where), on the host, which is not copied and must not change until unbind() or the next bind(). It may be a
        tensor of torch, an array, whatever has the buffer protocol, or a Window, such as `switch.infer` in mode INFER.
        Collective."""
        refusal: errors.Error | None = None
        room = _calls.Room(0, 0, None)
        try:
            self._check("bind")
            room = _calls.room("bind", memory)
            if room.nbytes < (needed := self._layout.window_bytes(self._rank)):
                raise errors.Refused(f"bind: a window of {room.nbytes} bytes; the layout has {needed}")
        except errors.Error as error:
            refusal = error
        self._tell(refusal)
        self._bind("bind", room)

    def _tell(self, refusal: errors.Error | None) -> None:
        """All ranks go on, or none."""
        if self._group is not None:
            self._group._tell(refusal)
        elif refusal is not None:
            raise refusal

    def _bind(self, what: str, room: _calls.Room) -> None:
        here = self._check(what)
        before, here.keep = here.keep, (*here.keep, room.owner)  # until the new one is there, the old one is used
        try:
            self._call(what, "treadle_generator_bind", room.address or None, room.nbytes)
        except BaseException:
            here.keep = before
            raise
        here.keep = (*self._kept, room.owner)

    def load(self, weights: str | None = None) -> None:
        """Binds memory of its own, with the values of the model's weights. weights: "files", of its checkpoint;
        "random", made up; None: as the model was opened (Model). Collective."""
        refusal: errors.Error | None = None
        room = _calls.fresh(self._layout.window_bytes(self._rank))
        try:
            source = weights_of("load", weights)
            self._check("load").use("load")
            _library.call("treadle_layout_load_weights", self._layout._use(), self._rank, source, room.address)
        except errors.Error as error:
            refusal = error
        self._tell(refusal)
        self._bind("load", room)

    def unbind(self) -> None:
        """Takes the weights away. Collective."""
        self._call("unbind", "treadle_generator_unbind")
        here = self._check("unbind")
        here.keep = self._kept

    # ---- Texts ----

    @_calls.collective
    def generate(
        self,
        prompts: Prompts,
        sampling: Sampling | None = None,
        *,
        progress: _calls.Progress | None = None,
        stop: _calls.Stop | None = None,
    ) -> Batch:
        """Answers prompts: a Batch with prompt_ids and perhaps seed, or a list with the ids of each. The ranks of a
        replica give equal prompts, two replicas different ones or none.

        sampling: None: the model's own values (generation_config.json).
        progress: called with what takes long now, how much of it is done, and of how much (0: unknown).
        stop: asked again and again; something true ends the call as Cancelled.

        A batch with n rows for each prompt, one prompt's answers after the other's: ids, rollout_log_probs, finish
        ("stop" or "length"), version; with logprobs_of="drawn", where something was cut, kept_counts and kept. What
        `progress` or `stop` raises ends the call, and is raised again. Collective."""
        name = "treadle_generator_generate"
        return answered(self._call, self._calls, "generate", name, prompts, sampling, progress, stop)

    @_calls.collective
    def score(self, texts: typing.Sequence[typing.Any], *, temperature: float = 1.0) -> list[Array]:
        """The log-probabilities of texts, a list of the ids of each: of each text a float32 array [ids], with the
        logarithm of the probability of each token after those before it; of the first one NaN. temperature: logits are
        divided by it. Collective."""
        import numpy

        held = [_calls.ids(f"score: text {number}", text) for number, text in enumerate(texts)]
        given = (_abi.treadle_score_text * max(1, len(held)))()
        for to, (numbers, count) in zip(given, held):
            to.ids, to.count = numbers, count
        found: list[Array] = []

        def done(_context: object, text: int, log_probs: typing.Any) -> int:
            def work() -> None:
                self._calls.check()
                found.append(numpy.ctypeslib.as_array(log_probs, (held[text][1],)).copy())

            return self._calls.guard(work)

        kind, observer = _abi.treadle_score_options, self._calls.observer(None, None)
        options = _library.sized(
            kind,
            temperature=temperature,
            done=self._calls.function(_library.field(kind, "done"), done),
            observer=ctypes.pointer(observer),
        )
        self._call("score", "treadle_generator_score", given, len(held), ctypes.byref(options))
        return found

    def info(self) -> GeneratorInfo:
        """Facts about it. Local."""
        info = _library.sized(_abi.treadle_generator_info)
        self._call("info", "treadle_generator_get_info", ctypes.byref(info))
        kernels, dtype = _library.text(info.kernels), DTYPES[info.dtype]
        made: GeneratorInfo = _calls.figures(GeneratorInfo, info, kernels=kernels, dtype=dtype)
        return made


def answered(
    call: typing.Callable[..., None],
    calls: _calls.Calls,
    what: str,
    name: str,
    prompts: Prompts,
    sampling: Sampling | None,
    progress: _calls.Progress | None,
    stop: _calls.Stop | None,
) -> Batch:
    """The answers of a function of the library that takes prompts, sampling values and an observer."""
    if sampling is not None and not isinstance(sampling, Sampling):
        raise errors.Refused(f"{what}: sampling is a {type(sampling).__name__}; it must be a treadle.Sampling or None")
    given = prompts if isinstance(prompts, Batch) else Batch.of({"prompt_ids": prompts})
    values = sampling._struct() if sampling is not None else None
    observer = calls.observer(progress, stop)
    pointer = ctypes.c_void_p()
    try:
        call(
            what,
            name,
            given._lent(what),
            ctypes.byref(values) if values is not None else None,
            ctypes.byref(observer),
            ctypes.byref(pointer),
        )
    finally:  # also where `progress` has raised at the end
        made = batches._object(pointer) if pointer else None
    assert made is not None
    return Batch._from(made)
