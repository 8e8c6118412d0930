"""The adapter of verl's vLLM."""

from __future__ import annotations

from verl.workers.rollout.vllm_rollout.vllm_rollout import (  # type: ignore[import-not-found,unused-ignore]
    ServerAdapter as Verl,
)

from ._adapter import Adapter


class ServerAdapter(Adapter, Verl):  # type: ignore[misc,unused-ignore]
    KIND = "vllm"

    def _name(self, replica: int) -> str:
        return f"{self._get_server_name_prefix()}server_{replica}_0"
