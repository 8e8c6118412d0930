"""verl's server of SGLang, which says what its engine runs with. Its /server_info cannot: verl 0.9.1 gives SGLang's
routes other things than these expect from SGLang 0.5.10 on, and it answers 500."""

from __future__ import annotations

import typing

from verl.workers.rollout.sglang_rollout.async_sglang_server import (  # type: ignore[import-not-found,unused-ignore]
    SGLangHttpServer,
)

from ..sglang import _layout


class Server(SGLangHttpServer):  # type: ignore[misc,unused-ignore]
    def treadle_args(self) -> dict[str, typing.Any]:
        return _layout.facts(self.tokenizer_manager.server_args)
