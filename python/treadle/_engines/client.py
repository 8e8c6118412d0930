"""What the first trainer calls of an engine, and how a server is called."""

from __future__ import annotations

import json
import typing
import urllib.error
import urllib.request

from .. import errors

Payload = typing.Mapping[str, typing.Any]


class Client(typing.Protocol):
    """The engine's calls in an update, in their order."""

    def workers(self) -> int: ...

    def init_weight_transfer_engine(self, init_info: Payload) -> None: ...

    def pause(self, mode: str) -> None: ...

    def start_weight_update(self) -> None: ...

    def update_weights(self, update_info: Payload) -> None: ...

    def finish_weight_update(self, weight_version: str | None = None) -> None: ...

    def reset_caches(self) -> None: ...

    def resume(self) -> None: ...


def call(
    url: str,
    path: str,
    body: Payload | None,
    *,
    method: str = "POST",
    headers: typing.Mapping[str, str] | None = None,
    timeout: float = 300,
    may: tuple[int, ...] = (),
    hints: typing.Mapping[int, str] | None = None,
) -> tuple[int, typing.Any]:
    """Calls a server's route, and returns the status and the answer, of JSON or as text. may: statuses that are no
    errors. hints: what another one means. Raises System with the route and what the server says."""
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(  # noqa: S310
        f"{url}/{path}", data, {"Content-Type": "application/json", **(headers or {})}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
            return answer.status, _read(answer.read())
    except urllib.error.HTTPError as error:
        said = _read(error.read())
        if error.code in may:
            return error.code, said
        words = (hints or {}).get(error.code) or (said.get("message", said) if isinstance(said, dict) else said)
        raise errors.System(f"{url}/{path} answered {error.code}: {str(words)[:500]}") from error
    except OSError as error:
        raise errors.System(f"{url}/{path}: {error}") from error


def _read(said: bytes) -> typing.Any:
    try:
        return json.loads(said) if said else None
    except ValueError:
        return said.decode(errors="replace")
