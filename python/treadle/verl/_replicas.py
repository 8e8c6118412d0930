"""verl's replicas, whose servers are started with what the plug-ins of vLLM and SGLang ask for."""

from __future__ import annotations

import typing

from .. import errors
from . import _interface


class Loader:
    """In place of verl's loader of a replica class; the class it gives is verl's, prepared."""

    def __init__(self, name: str, inner: typing.Callable[[], type]) -> None:
        self.name, self._inner = name, inner
        self._made: type | None = None

    def __call__(self) -> type:
        if self._made is None:
            inner = self._inner()
            self._made = type(
                inner.__name__, (_Prepared, inner), {"__doc__": inner.__doc__, "_treadle_kind": self.name}
            )
        return self._made


class _Prepared:
    _treadle_kind = ""

    def __init__(self, *arguments: typing.Any, **options: typing.Any) -> None:
        super().__init__(*arguments, **options)
        this: typing.Any = self
        if _interface.chosen(this.config) and not this.is_reward_model and not this.is_teacher_model:
            _interface.check_rollout(this.config, this.model_config)
            prepare(self._treadle_kind, this.config)
            if self._treadle_kind == "sglang":
                import ray  # type: ignore[import-not-found,unused-ignore]

                from ._sglang_server import Server

                this.server_class = ray.remote(Server)


def prepare(kind: str, rollout: typing.Any) -> None:
    """Writes into rollout.engine_kwargs what the server has to be started with. Raises Refused where another thing
    stands there."""
    if rollout.engine_kwargs is None:
        rollout.engine_kwargs = {}
    if rollout.engine_kwargs.get(kind) is None:
        rollout.engine_kwargs[kind] = {}
    given = rollout.engine_kwargs[kind]
    if kind == "vllm":
        config = given.get("weight_transfer_config")
        if config is not None and dict(config).get("backend") != "treadle":
            raise errors.Refused(
                f"rollout.engine_kwargs.vllm.weight_transfer_config is {dict(config)}; "
                "with checkpoint_engine.backend 'treadle' it must be absent"
            )
        given["weight_transfer_config"] = {"backend": "treadle"}
        return
    from ..sglang import LOADER

    loaders = list(given.get("custom_weight_loader") or [])
    given["custom_weight_loader"] = loaders if LOADER in loaders else [*loaders, LOADER]
