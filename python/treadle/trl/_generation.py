"""TRL's class for generation with vLLM, whose weights come by treadle. Its trainers have the class by its name, so methods of the class itself are replaced."""

from __future__ import annotations

import typing

from trl.generation import vllm_client, vllm_generation  # type: ignore[import-not-found,unused-ignore]

from .. import errors
from . import _interface
from ._client import Client, Options, Server
from ._colocated import Colocated

_inner: dict[str, typing.Callable[..., typing.Any]] = {}  # TRL's own methods


def install(options: Options) -> None:
    if not _inner:
        _interface.check()
    Client.options = options
    vllm_generation.VLLMClient = vllm_client.VLLMClient = Client
    kind = vllm_generation.VLLMGeneration
    for method in (_init_vllm, sync_weights, generate):
        _inner.setdefault(method.__name__, getattr(kind, method.__name__))
        setattr(kind, method.__name__, method)


def _init_vllm(self: typing.Any) -> None:
    _interface.check_training(self.model, self._dist)
    self._treadle, self._treadle_options = None, Client.options
    _inner["_init_vllm"](self)


def sync_weights(self: typing.Any) -> None:
    """Brings vLLM to the present weights. Collective."""
    if self.mode == "server":
        if self._treadle is None:
            self._treadle = Server(self.server_base_url or f"http://{self.server_host}:{self.server_port}", self._treadle_options)
        self._treadle.send(self.model)
        return
    if self.enable_sleep_mode:  # as TRL does it
        vllm_generation.empty_cache()
        self.llm.wake_up(tags=["weights"])
        self._llm_weights_sleeping = False
    if self._treadle is None:
        self._treadle = Colocated(self.model, self.llm, self._treadle_options)
    self._treadle.send()
    self.llm.reset_prefix_cache()


def generate(self: typing.Any, *arguments: typing.Any, **options: typing.Any) -> typing.Any:
    if isinstance(self._treadle, Colocated) and self._treadle.mixed:
        raise errors.State("vLLM's weights are of two versions, since an update has failed in the middle: it does not generate with them (install(undo=True) keeps the old ones)")
    return _inner["generate"](self, *arguments, **options)
