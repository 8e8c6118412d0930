"""TRL's class for generation with vLLM, whose weights come by treadle. Its trainers have the class by its name, so
methods of the class itself are replaced."""

from __future__ import annotations

import functools
import typing

from trl.generation import vllm_client, vllm_generation  # type: ignore[import-not-found,unused-ignore]

from .. import errors
from . import _interface
from ._client import Client, Options, Server
from ._colocated import Colocated

_inner: dict[str, typing.Callable[..., typing.Any]] = {}  # TRL's own methods


def install(options: Options) -> None:
    Client.options = options
    if _inner:
        return
    vllm_generation.VLLMClient = vllm_client.VLLMClient = Client
    kind = vllm_generation.VLLMGeneration
    for method in (_init_vllm, sync_weights, generate):
        _inner[method.__name__] = getattr(kind, method.__name__)
        setattr(kind, method.__name__, functools.wraps(_inner[method.__name__])(method))


def _init_vllm(self: typing.Any) -> None:
    _interface.check_training(self)
    if self.enable_sleep_mode and Client.options.undo:
        raise errors.Refused(
            "vllm_enable_sleep_mode discards vLLM's weights before each update, so that install(undo=True) "
            "has nothing to bring back"
        )
    self._treadle, self._treadle_options = None, Client.options
    _inner["_init_vllm"](self)


def sync_weights(self: typing.Any) -> None:
    """Brings vLLM to the present weights. Collective."""
    options = getattr(self, "_treadle_options", None)
    if options is None:  # it was made before install()
        _inner["sync_weights"](self)
        return
    self.accelerator.wait_for_everyone()  # as long as it takes: one process may be writing a checkpoint
    if self.mode == "server":
        if self._treadle is None:
            self._treadle = Server(self.vllm_client.base_url if self.accelerator.is_main_process else None, options)
        self._treadle.send(self.model)
        return
    if self.enable_sleep_mode:  # as TRL does it
        vllm_generation.empty_cache()
        self.llm.wake_up(tags=["weights"])
    if self._treadle is None:
        self._treadle = Colocated(self.model, self.llm, options)
    self._treadle.send()
    self._llm_weights_sleeping = False  # not before: after a refused update it still has none


def generate(self: typing.Any, *arguments: typing.Any, **options: typing.Any) -> typing.Any:
    if isinstance(getattr(self, "_treadle", None), Colocated) and self._treadle.mixed:
        raise errors.State(
            "vLLM's weights may be of two versions, since an update failed in the middle, "
            "and it does not generate with them; the next update that "
            "succeeds mends them, and install(undo=True) keeps the old ones"
        )
    return _inner["generate"](self, *arguments, **options)
