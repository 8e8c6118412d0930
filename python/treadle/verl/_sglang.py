"""The adapter of verl's SGLang."""

from __future__ import annotations

from verl.workers.rollout.sglang_rollout.sglang_rollout import (  # type: ignore[import-not-found,unused-ignore]
    ServerAdapter as Verl,
)

from ._adapter import Adapter


class ServerAdapter(Adapter, Verl):  # type: ignore[misc,unused-ignore]
    KIND = "sglang"

    def _name(self, replica: int) -> str:
        return f"sglang_server_{replica}_0"
