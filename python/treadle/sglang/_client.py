"""How the first trainer speaks to an engine of SGLang: over HTTP, or to an Engine in its own process. The methods are
those that an update of vLLM's asks for."""

from __future__ import annotations

import secrets
import time
import typing

from .. import errors
from .._engines.client import Payload, call
from . import LOADER, _interface, _layout
from ._manifest import NAME, Manifest

_PAUSES = {"abort": "abort", "keep": "retract"}  # vLLM's word and SGLang's
_FLUSH = 30.0  # seconds, in which an engine has to become idle


class _Client:
    """What both have in common. args: of the engine, as a dict."""

    args: dict[str, typing.Any]

    def __init__(self) -> None:
        self._info: dict[str, typing.Any] = {}
        self._store: typing.Any = None
        self._stale = False  # has it keys and values of other weights than it may have now?
        self.sends = True  # has the engine begin and end of an update? Before 0.5.21 it has not

    def workers(self) -> int:
        return int(self.args["tp_size"]) * int(self.args.get("pp_size") or 1)

    def watch(self, store: typing.Any) -> None:
        """The trainers' store, in which a worker says why it took no part."""
        self._store = store

    def init_weight_transfer_engine(self, init_info: Payload) -> None:
        """The meeting."""
        self._info = dict(init_info)
        self.start_weight_update()
        try:
            self._send(Manifest(**self._info, version=0, attempt=secrets.token_hex(8)))
        finally:
            self._end()

    def start_weight_update(self) -> None:
        """Begins the engine's session, or takes over that of trainers who died in theirs."""
        right, words = self._begin()
        if not right and "already open" not in words:
            raise errors.System(f"begin_weight_update: {words}")

    def update_weights(self, update_info: Payload) -> None:
        """Returns when all workers have. Raises System with what a worker said that could take no part: the engine's
        answer is always ordinary."""
        known = {key: self._info[key] for key in ("store", "group", "hash", "timeout")}
        manifest = Manifest(**known, version=int(update_info["version"]), attempt=secrets.token_hex(8))
        self._stale = True
        self._send(manifest)
        if self._store is not None and self._store.check([manifest.problem_key]):
            raise errors.System(self._store.get(manifest.problem_key).decode())

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._end()
        if weight_version is not None:
            self._set_version(weight_version)

    def reset_caches(self) -> None:
        """The engine refuses while requests end."""
        until = time.monotonic() + _FLUSH
        while not self._flush():
            if time.monotonic() > until:
                raise errors.System(
                    f"flush_cache: the engine was not idle in {_FLUSH:.0f} s: it has keys and values of the old weights"
                )
            time.sleep(0.01)
        self._stale = False

    def pause(self, mode: str) -> None: ...

    def resume(self) -> None: ...

    def _begin(self) -> tuple[bool, str]:
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError

    def _send(self, manifest: Manifest) -> None:
        raise NotImplementedError

    def _set_version(self, version: str) -> None:
        raise NotImplementedError

    def _flush(self) -> bool:
        raise NotImplementedError


class Http(_Client):
    """A server at a URL. api_key: its admin key, or its key, if it has one. timeout: seconds of a call. args: what the
    engine runs with; None: the server is asked."""

    def __init__(
        self, url: str, api_key: str | None = None, timeout: float = 300, args: dict[str, typing.Any] | None = None
    ) -> None:
        super().__init__()
        self.url, self.timeout = url.rstrip("/"), timeout
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.args = args if args is not None else self._call("server_info", method="GET")[1]
        _interface.check_args(self.args, self.args.get("version"))

    def _call(
        self, path: str, body: Payload | None = None, method: str = "POST", may: tuple[int, ...] = ()
    ) -> tuple[int, typing.Any]:
        return call(self.url, path, body, method=method, headers=self._headers, timeout=self.timeout, may=may)

    def pause(self, mode: str) -> None:
        self._call("pause_generation", {"mode": _PAUSES[mode]})

    def resume(self) -> None:
        """A server whose caches cannot be emptied stays paused: it does not go on with keys and values of other
        weights."""
        if self._stale:
            self.reset_caches()
        self._call("continue_generation", {})

    def _begin(self) -> tuple[bool, str]:
        status, said = self._call("begin_weight_update", {}, may=(400, 404, 405))
        self.sends = status not in (404, 405)
        return status != 400, str(said)

    def _end(self) -> None:
        if self.sends:
            self._call("end_weight_update", {})

    def _send(self, manifest: Manifest) -> None:
        payload = manifest.payload()
        body = {
            "serialized_named_tensors": [payload] * int(self.args["tp_size"]),
            "load_format": LOADER,
            "flush_cache": False,
        }
        self._call("update_weights_from_tensor", body)

    def _set_version(self, version: str) -> None:
        self._call("update_weight_version", {"new_version": version, "abort_all_requests": False})

    def _flush(self) -> bool:
        return self._call("flush_cache", method="POST", may=(400,))[0] == 200


class InProcess(_Client):
    """sglang.Engine in this process. Its own lock keeps requests and updates apart, so that nothing has to be
    paused."""

    def __init__(self, engine: typing.Any) -> None:
        super().__init__()
        _interface.check_engine(engine)
        self.engine = engine
        self.args = _layout.view(engine.server_args)
        _interface.check_args(self.args)
        self.sends = hasattr(engine, "begin_weight_update")

    def _begin(self) -> tuple[bool, str]:
        return _said(self.engine.begin_weight_update()) if self.sends else (True, "")

    def _end(self) -> None:
        if self.sends:
            right, words = _said(self.engine.end_weight_update())
            if not right:
                raise errors.System(f"end_weight_update: {words}")

    def _send(self, manifest: Manifest) -> None:
        right, words = _said(
            self.engine.update_weights_from_tensor([(NAME, manifest.tensor())], load_format=LOADER, flush_cache=False)
        )
        if not right:
            raise errors.System(f"update_weights_from_tensor: {words}")

    def _set_version(self, version: str) -> None:
        manager = self.engine.tokenizer_manager
        if hasattr(manager, "update_weight_version"):  # 0.5.20 and later tell the workers, too
            from sglang.srt.managers.io_struct import (  # type: ignore[import-not-found,unused-ignore]
                UpdateWeightVersionReqInput,
            )

            self.engine.loop.run_until_complete(
                manager.update_weight_version(
                    UpdateWeightVersionReqInput(new_version=version, abort_all_requests=False)
                )
            )
        else:
            manager.server_args.weight_version = version

    def _flush(self) -> bool:
        return bool(self.engine.flush_cache().success)


def _said(answer: typing.Any) -> tuple[bool, str]:
    """Of 0.5.23 a pair; of others an object."""
    if isinstance(answer, tuple):
        return bool(answer[0]), str(answer[1])
    return bool(answer.success), str(answer.message)


def client_of(given: typing.Any, stale: bool = False) -> Http | InProcess:
    """A URL, an Engine, or a client that is one. stale: its engine may have keys and values of other weights than it
    has."""
    if isinstance(given, (Http, InProcess)):
        given._stale |= stale
        return given
    if isinstance(given, str):
        return client_of(Http(given), stale)
    if hasattr(given, "update_weights_from_tensor") and hasattr(given, "server_args"):
        return InProcess(given)
    raise errors.Refused(f"engine is a {type(given).__name__}, and must be a URL or a sglang.Engine")
