"""verl's SGLang: the adapter, and how the first trainer calls a server: over HTTP, at the address that its actor says."""

from __future__ import annotations

import ray  # type: ignore[import-not-found,unused-ignore]
from verl.workers.rollout.sglang_rollout.sglang_rollout import ServerAdapter as Verl  # type: ignore[import-not-found,unused-ignore]

from .. import errors
from ..sglang._client import Http
from ._adapter import Adapter


class ServerAdapter(Adapter, Verl):  # type: ignore[misc,unused-ignore]
    KIND = "sglang"

    def _name(self, replica: int) -> str:
        return f"sglang_server_{replica}_0"


class Server(Http):
    """verl's manager pauses the server before, and lets it go on afterwards."""

    global_steps: int | None = None  # of the next update

    def __init__(self, name: str, workers: int, timeout: float) -> None:
        try:
            self._actor = ray.get_actor(name)
            host, port = ray.get(self._actor.get_server_address.remote(), timeout=timeout)
        except Exception as error:
            raise errors.System(f"{name}.get_server_address: {error}") from error
        super().__init__(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}", timeout=2 * timeout + 60)

    def pause(self, mode: str) -> None: ...

    def reset_caches(self) -> None:
        super().reset_caches()
        if self.global_steps is not None:
            ray.get(self._actor.set_global_steps.remote(self.global_steps))

    def resume(self) -> None:
        if self._stale:
            self.reset_caches()
