"""vLLM takes its weights from a trainer's shards, in place (docs/plugins.md).

    # the engine: nothing else, since the wheel has the entry point
    vllm serve MODEL --weight-transfer-config '{"backend": "treadle"}'

    trainer = treadle.vllm.Trainer(module, "http://localhost:8000")  # on every trainer rank
    version = trainer.send_weights()  # after each step that the engine should see

Neither vllm nor torch is imported before it is used."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._client import Http, InProcess
    from ._engine import Engine, InitInfo, UpdateInfo
    from ._factory import TrainerEngine, TrainerInfo
    from ._layout import layout_text
    from ._trainer import Trainer

BACKEND = "treadle"

_PLACES = {
    "_client": ("Http", "InProcess"),
    "_engine": ("Engine", "InitInfo", "UpdateInfo"),
    "_factory": ("TrainerEngine", "TrainerInfo"),
    "_layout": ("layout_text",),
    "_trainer": ("Trainer",),
}


def __getattr__(name: str) -> object:
    from .._lazy import find

    return find(__name__, _PLACES, name)


def register() -> None:
    """Makes the backend "treadle" known to vLLM: the entry point of vllm.general_plugins, called in each of its
    processes; twice is fine. A vLLM whose interface differs is told on standard error, with its version; it then
    refuses the backend."""
    try:
        from ._interface import check

        check()
        from vllm.distributed.weight_transfer import factory  # type: ignore[import-not-found,unused-ignore]

        _once(factory.WeightTransferEngineFactory, "_engine", "Engine")
        trainers = getattr(factory, "WeightTransferTrainerFactory", None)  # of 0.26 and later
        if trainers is not None:
            _once(trainers, "_factory", "TrainerEngine")
    except Exception as error:  # noqa: BLE001
        print(
            f"treadle: vLLM's backend 'treadle' is not registered: {type(error).__name__}: {error}",
            file=sys.stderr,
            flush=True,
        )


def _once(factory: object, module: str, name: str) -> None:
    try:
        factory.register_engine(BACKEND, f"{__name__}.{module}", name)  # type: ignore[attr-defined]
    except ValueError as error:
        if "already registered" not in str(error):
            raise


__all__ = [
    "BACKEND",
    "Engine",
    "Http",
    "InProcess",
    "InitInfo",
    "Trainer",
    "TrainerEngine",
    "TrainerInfo",
    "UpdateInfo",
    "layout_text",
    "register",
]
