"""A generator of the caller's, as the table of functions by which an actor knows it (treadle_infer_engine).

The functions of the table do not keep the generator, which may keep tensors, which keep the actor: they find it while
the Actor of Python is there, and do nothing afterwards."""

from __future__ import annotations

import ctypes
import typing
import weakref

from . import _abi, _calls, _device, _library, errors
from . import batch as batches
from .batch import Batch
from .generator import Sampling
from .layout import Layout, key_of
from .switch import infer_storages
from .windows import Memory, Place, Window

_COLUMNS = "ids, rollout_log_probs and finish"


class InferEngine(typing.Protocol):
    """A generator of one's own for an Actor. It may have close(), which is called once, with the actor's.

    What a function raises ends the actor's call, and is raised again from it; other ranks raise an Error with its
    words. While a call of the actor runs, nobody else may use its group: ranks that talk to each other have another
    one."""

    def bind(self, tensors: Window) -> object:
        """The weights are whole: the names of storage tensors of the infer layout (or (chunk, name)) to their memory,
        which torch() and numpy() show without a copy. Addresses never change, and nobody may write there. Called
        before the first generate, and whenever the weights have come anew."""

    def unbind(self) -> object:
        """The weights go: their memory is not to be read until the next bind. Also called where bind has raised.
        Where it raises itself the weights stay, and bind is called again before the next generate."""

    def generate(self, prompts: Batch, sampling: Sampling | None) -> Batch:
        """Answers to prompts (the columns that were given, with prompt_ids): sampling.n for each, one prompt's answers
        after the other's. The columns are ids, rollout_log_probs (fp32, one of each of ids) and finish ("stop" or
        "length"). sampling None: the generator's own values; one answer each. All ranks of a replica give its
        answers."""


class _Source:
    """The infer window of an actor, as what its memory is of."""

    __slots__ = ("device", "base", "state")

    def __init__(self, base: int) -> None:
        self.device, self.base = _device.HOST, base
        self.state = ""  # why it may not be read; "": it may

    def check(self, which: int) -> None:
        """At any time while the actor is there: addresses stay."""
        if self.state == "closed":
            raise errors.State("the weights of an actor: it is closed")

    def given(self, which: int, number: int) -> None:
        """Nobody fills it."""

    def read(self, which: int, offset: int, count: int, to: int) -> None:
        if self.state:
            raise errors.State(f"read: the weights of an actor: {'it is ' * (self.state == 'closed')}{self.state}")
        ctypes.memmove(to, self.base + offset, count)

    def write(self, which: int, offset: int, count: int, source: typing.Any) -> None:
        raise errors.Refused("write: the memory is read-only")


class Foreign:
    """A generator of the caller's, and its table. `functions` has to live as long as the actor of the library."""

    def __init__(self, generator: InferEngine, layout: Layout, rank: int, calls: _calls.Calls) -> None:
        lacks = [name for name in ("bind", "unbind", "generate") if not callable(getattr(generator, name, None))]
        if lacks:
            raise errors.Refused(f"the generator is a {type(generator).__name__}, which has no {', '.join(lacks)}")
        self._generator, self._layout, self._rank, self._calls = generator, layout, rank, calls
        self._switch: int | None = None
        self._window: Window | None = None
        self._source: _Source | None = None
        self._is_bound = self._is_closed = False
        self._is_torn = False  # its unbind has raised: perhaps it has no weights any more
        self.owner: _library.Object | None = None  # the actor of the library, when it is there
        hooks, table = _abi.treadle_engine_hooks, _abi.treadle_infer_engine
        self._hooks = {
            "bind": self._function(_library.field(hooks, "bind"), Foreign._bind),
            "unbind": self._function(_library.field(hooks, "unbind"), Foreign._unbind),
            "attach": self._function(_library.field(hooks, "attach"), Foreign._attach),
        }
        self._table = {
            "hooks": self._function(_library.field(table, "hooks"), Foreign._give_hooks),
            "generate": self._function(_library.field(table, "generate"), Foreign._generate),
            "close": self._function(_library.field(table, "close"), lambda *_: None),  # end() does it
        }
        self.open = self._function(_abi.treadle_infer_engine_open, Foreign._open)
        self.functions = (*self._hooks.values(), *self._table.values(), self.open)

    def _function(self, kind: typing.Any, method: typing.Callable[..., object]) -> typing.Any:
        this = weakref.ref(self)

        def call(*given: typing.Any) -> int:
            here = this()
            return here._calls.guard(lambda: method(here, *given)) if here is not None else 0

        return kind(call)

    # ---- The table ----

    def _open(self, _context: object, _group: object, _layout: object, _options: object, engine_p: typing.Any) -> None:
        for name, function in self._table.items():
            setattr(engine_p.contents, name, function)

    def _give_hooks(self, _engine: object, hooks_p: typing.Any) -> None:
        for name, function in self._hooks.items():
            setattr(hooks_p.contents, name, function)

    def _attach(self, _context: object, switch: int | None) -> None:
        self._switch = switch

    def _bind(self, _context: object, window: int, count: int) -> None:
        self._calls.check()
        if self._window is None:
            self._window = self._make_window(window, count)
        assert self._source is not None
        self._is_bound, self._source.state = True, ""
        self._calls.work(self._generator.bind, self._window)
        self._is_torn = False

    def _unbind(self, _context: object = None) -> None:
        if not self._is_bound or self._is_closed:
            return
        self._is_torn = True
        self._calls.work(self._generator.unbind)
        self._is_bound = self._is_torn = False
        if self._source is not None:
            self._source.state = "not bound"

    def _make_window(self, address: int, count: int) -> Window:
        source = self._source = _Source(address)
        entries: dict[typing.Any, Memory] = {}
        for number, storage in enumerate(infer_storages(self._switch, self._layout, self._rank)):
            which = _abi.TREADLE_INFER_PARAMS
            at = _library.value("treadle_switch_tensor", self._switch, which, number, None) or 0
            place = Place(source, which, storage.offset_bytes, number)
            entries[key_of(storage)] = Memory(self.owner, at, storage.shape, storage.dtype, False, place)
        return Window(entries, count, address, _device.HOST)

    def _generate(
        self, _engine: object, prompts: int, sampling: typing.Any, _observer: object, out_p: typing.Any
    ) -> None:
        self._calls.check()
        if self._is_torn:
            self._calls.work(self._generator.bind, self._window)
            self._is_torn = False
        rows = _library.value("treadle_batch_rows", prompts)
        given = Batch._from(batches._new("treadle_batch_slice", prompts, 0, rows))  # it may be kept
        values = Sampling._of(sampling.contents) if sampling else None
        answers = self._calls.work(self._generator.generate, given, values)
        if not isinstance(answers, Batch):
            raise errors.Refused(
                f"the generator's answers are a {type(answers).__name__}; they must be a treadle.Batch with {_COLUMNS}"
            )
        pointer = ctypes.c_void_p()  # the library's own, which it ends
        _library.call("treadle_batch_slice", answers._use("generate"), 0, len(answers), ctypes.byref(pointer))
        out_p[0] = pointer.value

    # ---- The end ----

    def end(self) -> None:
        """Unbinds and closes the generator, once. Raises what the first of both raises."""
        if self._is_closed:
            return
        try:
            self._unbind()
        finally:
            self._is_closed = True
            if self._source is not None:
                self._source.state = "closed"
            self._window = self.owner = None
            close = getattr(self._generator, "close", None)
            if close is not None:
                close()
