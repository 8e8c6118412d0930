"""verl's vLLM: the adapter, and how the first trainer calls a server, which is an actor of Ray."""

from __future__ import annotations

import typing

import ray  # type: ignore[import-not-found,unused-ignore]
from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter as Verl  # type: ignore[import-not-found,unused-ignore]

from .. import errors
from .._engines.client import Payload
from ._adapter import Adapter


class ServerAdapter(Adapter, Verl):  # type: ignore[misc,unused-ignore]
    KIND = "vllm"

    def _name(self, replica: int) -> str:
        return f"{self._get_server_name_prefix()}server_{replica}_0"


class Server:
    """The calls of an update. verl's manager pauses the server before, and lets it go on afterwards."""

    global_steps: int | None = None  # of the next update

    def __init__(self, name: str, workers: int, timeout: float) -> None:
        self._name, self._workers, self._timeout = name, workers, timeout

    def workers(self) -> int:
        return self._workers

    def init_weight_transfer_engine(self, init_info: Payload) -> None:
        self._rpc("init_weight_transfer_engine", init_info=dict(init_info))

    def pause(self, mode: str) -> None: ...

    def start_weight_update(self) -> None:
        self._rpc("start_weight_update")

    def update_weights(self, update_info: Payload) -> None:
        self._rpc("update_weights", update_info=dict(update_info))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._rpc("finish_weight_update")

    def reset_caches(self) -> None:
        self._call("clear_kv_cache")
        if self.global_steps is not None:
            self._call("set_global_steps", self.global_steps)

    def resume(self) -> None: ...

    def _rpc(self, method: str, **options: typing.Any) -> None:
        """In each worker of the engine."""
        self._call("collective_rpc", method, kwargs=options)

    def _call(self, name: str, *arguments: typing.Any, **options: typing.Any) -> typing.Any:
        """Ends by itself where a worker has waited for `timeout`; so this waits longer."""
        try:
            return ray.get(getattr(ray.get_actor(self._name), name).remote(*arguments, **options), timeout=2 * self._timeout + 60)
        except Exception as error:
            raise errors.System(f"{self._name}.{arguments[0] if name == 'collective_rpc' else name}: {error}") from error
