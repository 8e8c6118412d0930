"""How the first trainer speaks to an engine: over HTTP, or to an LLM in its own process. What vLLM's clients have is
the four phases; pausing, the caches and the number of workers are other routes of the same server."""

from __future__ import annotations

import inspect
import typing

from .. import errors
from .._engines.client import Client, Payload, call


class Http:
    """A server at a URL, in its development mode (VLLM_SERVER_DEV_MODE=1), which has the routes. timeout: seconds of a
    call."""

    def __init__(self, url: str, timeout: float = 300) -> None:
        self.url, self.timeout = url.rstrip("/"), timeout

    def _call(self, path: str, body: Payload | None = None, method: str = "POST") -> typing.Any:
        return call(
            self.url,
            path,
            body,
            method=method,
            timeout=self.timeout,
            hints={404: "the server is not in its development mode (VLLM_SERVER_DEV_MODE=1)"},
        )[1]

    def workers(self) -> int:
        return int(self._call("get_world_size", method="GET")["world_size"])

    def init_weight_transfer_engine(self, init_info: Payload) -> None:
        self._call("init_weight_transfer_engine", {"init_info": init_info})

    def pause(self, mode: str) -> None:
        self._call(f"pause?mode={mode}")

    def start_weight_update(self) -> None:
        self._call("start_weight_update")

    def update_weights(self, update_info: Payload) -> None:
        self._call("update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._call("finish_weight_update", {"weight_version": weight_version} if weight_version is not None else None)

    def reset_caches(self) -> None:
        answer = self._call("reset_prefix_cache?reset_running_requests=true")
        if isinstance(answer, dict) and not answer.get("success", True):
            raise errors.System(
                f"{self.url}/reset_prefix_cache: the cache was not reset, since blocks are held: "
                "it has keys and values of the old weights"
            )

    def resume(self) -> None:
        self._call("resume")


class InProcess:
    """vllm.LLM in this process. It generates only while it is called, so that nothing has to be paused."""

    def __init__(self, llm: typing.Any) -> None:
        self.llm = llm

    def workers(self) -> int:
        return int(self.llm.llm_engine.vllm_config.parallel_config.world_size_across_dp)

    def init_weight_transfer_engine(self, init_info: Payload) -> None:
        self.llm.init_weight_transfer_engine({"init_info": dict(init_info)})

    def pause(self, mode: str) -> None:
        pass

    def start_weight_update(self) -> None:
        self.llm.start_weight_update()

    def update_weights(self, update_info: Payload) -> None:
        self.llm.update_weights({"update_info": dict(update_info)})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        # vLLM 0.25 keeps no version.
        versions = [weight_version] if inspect.signature(self.llm.finish_weight_update).parameters else []
        self.llm.finish_weight_update(*versions)

    def reset_caches(self) -> None:
        if not self.llm.reset_prefix_cache():
            raise errors.System(
                "LLM.reset_prefix_cache: the cache was not reset, since blocks are held: "
                "it has keys and values of the old weights"
            )

    def resume(self) -> None:
        pass


class Given:
    """A client of the caller's: vLLM's four methods, and those that pause the engine, empty its caches and let it go
    on."""

    def __init__(self, client: typing.Any) -> None:
        self.client = client

    def workers(self) -> int:
        if not hasattr(self.client, "workers"):
            raise errors.Refused(
                f"{type(self.client).__name__} does not say how many workers the engine has: give Trainer workers="
            )
        return int(self.client.workers())

    def init_weight_transfer_engine(self, init_info: Payload) -> None:
        self.client.init_weight_transfer_engine(dict(init_info))

    def start_weight_update(self) -> None:
        self.client.start_weight_update()

    def update_weights(self, update_info: Payload) -> None:
        self.client.update_weights(dict(update_info))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self.client.finish_weight_update(weight_version)

    def pause(self, mode: str) -> None:
        self.client.pause(mode)

    def reset_caches(self) -> None:
        self.client.reset_caches()

    def resume(self) -> None:
        self.client.resume()


def client_of(given: typing.Any) -> Client:
    """A URL, an LLM, or a client: with base_url, as vLLM's own HTTP client has it, it is taken for a server there."""
    if isinstance(given, str):
        return Http(given)
    if isinstance(getattr(given, "base_url", None), str):
        return Http(given.base_url, getattr(given, "timeout", 300))
    if hasattr(given, "llm_engine"):
        return InProcess(given)
    phases = (
        "init_weight_transfer_engine",
        "start_weight_update",
        "update_weights",
        "finish_weight_update",
        "pause",
        "reset_caches",
        "resume",
    )
    # Without the last three requests would go on with caches of the old weights.
    if missing := [name for name in phases if not hasattr(given, name)]:
        raise errors.Refused(
            f"client is a {type(given).__name__} without {missing[0]}; it must be a URL, a vllm.LLM, "
            f"or have {', '.join(phases)}"
        )
    return Given(given)
