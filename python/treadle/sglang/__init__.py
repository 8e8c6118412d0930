"""SGLang takes its weights from a trainer's shards, in place.

    # the engine: nothing else
    python -m sglang.launch_server --model-path MODEL --custom-weight-loader treadle.sglang.load

    switch = treadle.sglang.connect("http://localhost:30000", module)  # on every trainer rank
    version = treadle.sglang.update("http://localhost:30000", switch)  # after each step that the engine should see

Neither sglang nor torch is imported before it is used."""

from __future__ import annotations

import typing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._client import Http
    from ._layout import layout_text
    from ._trainer import connect, update

LOADER = "treadle.sglang.load"  #: what --custom-weight-loader is given

_PLACES = {"_client": ("Http",), "_layout": ("layout_text",), "_trainer": ("connect", "update")}


def __getattr__(name: str) -> object:
    from .._lazy import find

    return find(__name__, _PLACES, name)


def load(model: typing.Any, named_tensors: typing.Any) -> None:
    """SGLang's custom weight loader, which each of its workers calls in update_weights_from_tensor. No exception leaves
    it, since SGLang would end all processes: what goes wrong is raised where the trainers are."""
    try:
        from . import _worker

        _worker.receive(model, named_tensors)
    except BaseException as error:  # noqa: BLE001
        import sys

        print(f"treadle: treadle.sglang.load: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


__all__ = ["LOADER", "Http", "connect", "layout_text", "load", "update"]
