"""Which vLLM has the interface that the plug-in fills."""

from __future__ import annotations

import inspect

from .. import errors

WORKS = "0.25 to 0.33"
_TAKES = ["config", "vllm_config", "device", "model"]


def name() -> str:
    """The vLLM that is here, with its version."""
    import vllm  # type: ignore[import-not-found,unused-ignore]

    return f"vLLM {getattr(vllm, '__version__', 'of an unknown version')}"


def check() -> None:
    """Raises Refused for a vLLM whose weight transfer engine is made otherwise, with its version."""
    words = name()
    try:
        from vllm.distributed.weight_transfer.base import (  # type: ignore[import-not-found,unused-ignore]
            WeightTransferEngine,
        )
    except ImportError as error:
        raise errors.Refused(f"{words} has no weight transfer engines ({error}); {WORKS} have") from error
    takes = [word for word in inspect.signature(WeightTransferEngine.__init__).parameters if word != "self"]
    if takes != _TAKES:
        raise errors.Refused(
            f"{words} makes its weight transfer engines from {', '.join(takes)}; "
            f"the plug-in fills the interface of {WORKS}, from {', '.join(_TAKES)}"
        )
