"""How the first trainer calls verl's servers: actors of Ray, and SGLang's over HTTP at the address that its actor says.
verl's manager pauses them before, and lets them go on afterwards. Nothing of verl's or of the engines' is imported:
that would take a trainer's memory."""

from __future__ import annotations

import typing

import ray  # type: ignore[import-not-found,unused-ignore]

from .. import errors
from .._engines.client import Payload
from ..sglang._client import Http


class _Actor:
    def __init__(self, name: str, seconds: float) -> None:
        self._name, self._seconds = name, seconds
        self._handle: typing.Any = None

    def call(self, method: str, *arguments: typing.Any, **options: typing.Any) -> typing.Any:
        """Raises System with the server and what was called."""
        try:
            if self._handle is None:
                self._handle = ray.get_actor(self._name)
            return ray.get(getattr(self._handle, method).remote(*arguments, **options), timeout=self._seconds)
        except Exception as error:
            raise errors.System(
                f"{self._name}.{arguments[0] if method == 'collective_rpc' else method}: {error}"
            ) from error

    def tell(self, global_steps: int | None) -> None:
        """The trainers' step, which verl's server gives along with what it generates."""
        if global_steps is not None:
            self.call("set_global_steps", global_steps)


class VLLM:
    """A server of vLLM's."""

    def __init__(self, name: str, workers: int, seconds: float) -> None:
        self._workers, self._actor = workers, _Actor(name, seconds)
        self.global_steps: int | None = None  # of the next update

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
        self._actor.call("clear_kv_cache")
        self._actor.tell(self.global_steps)

    def resume(self) -> None: ...

    def _rpc(self, method: str, **options: typing.Any) -> None:
        """In each worker of the engine."""
        self._actor.call("collective_rpc", method, kwargs=options)


class SGLang(Http):
    """A server of SGLang's."""

    def __init__(self, name: str, workers: int, seconds: float) -> None:
        self._actor = _Actor(name, seconds)
        self.global_steps: int | None = None  # of the next update
        host, port = self._actor.call("get_server_address")
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        try:
            args = self._actor.call("treadle_args")
        except errors.System as error:
            raise errors.System(
                f"{error}: the server was started without treadle; install the wheel where verl starts its servers"
            ) from error
        super().__init__(url, timeout=seconds, args=args)
        if self.workers() != workers:
            raise errors.Refused(f"{name} has {self.workers()} workers, and verl's rollout {workers}")

    def pause(self, mode: str) -> None: ...

    def reset_caches(self) -> None:
        super().reset_caches()
        self._actor.tell(self.global_steps)

    def resume(self) -> None:
        if self._stale:
            self.reset_caches()


KINDS: dict[str, typing.Callable[[str, int, float], VLLM | SGLang]] = {"vllm": VLLM, "sglang": SGLang}
