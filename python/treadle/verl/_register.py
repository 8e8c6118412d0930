"""What is added to which of verl's registries, once verl has imported it."""

from __future__ import annotations

import os
import sys
import types
import typing

from . import BACKEND, _later

_ADAPTERS = {"vllm": "treadle.verl._vllm.ServerAdapter", "sglang": "treadle.verl._sglang.ServerAdapter"}
_ROLLOUTS = {
    ("vllm", "async"): "verl.workers.rollout.vllm_rollout.ServerAdapter",
    ("sglang", "async"): "verl.workers.rollout.sglang_rollout.sglang_rollout.ServerAdapter",
}
_ENGINES = {
    "verl.workers.engine.fsdp.transformer_impl": ("fsdp", "fsdp2"),
    "verl.workers.engine.megatron.transformer_impl": ("megatron",),
}


def all_of() -> None:
    _later.when_imported("verl.checkpoint_engine.base", _told(_add_backend))
    _later.when_imported("verl.workers.rollout.base", _told(_add_adapters))
    _later.when_imported("verl.workers.rollout.replica", _told(_add_replicas))
    for module in _ENGINES:
        _later.when_imported(module, _told(_add_engines))


def _told(call: typing.Callable[[typing.Any], object]) -> typing.Callable[[types.ModuleType], None]:
    """No exception leaves it: verl's module would count as one that cannot be imported."""

    def told(module: types.ModuleType) -> None:
        try:
            call(module)
        except Exception as error:  # noqa: BLE001
            print(
                f"treadle: verl's backend 'treadle' is not registered in {module.__name__}: "
                f"{type(error).__name__}: {error}",
                file=sys.stderr,
                flush=True,
            )

    return told


def _add_backend(module: typing.Any) -> None:
    from . import _interface

    _interface.check_backend(module)
    from ._backend import Backend

    module.CheckpointEngineRegistry.register(BACKEND)(Backend)


def _add_adapters(module: typing.Any) -> None:
    """Those of other makers are left alone."""
    from . import _interface

    _interface.check_adapters(module)
    for key, path in _ROLLOUTS.items():
        if module._ROLLOUT_REGISTRY.get(key) == path:
            module._ROLLOUT_REGISTRY[key] = _ADAPTERS[key[0]]


def _add_replicas(module: typing.Any) -> None:
    from . import _interface, _replicas

    _interface.check_replicas(module)
    for name in _ADAPTERS:
        loader = module.RolloutReplicaRegistry._registry.get(name)
        if loader is not None and not isinstance(loader, _replicas.Loader):
            module.RolloutReplicaRegistry.register(name, _replicas.Loader(name, loader))


def _add_engines(module: typing.Any) -> None:
    """Engines that hand over shards go by this process's vendor, which verl asks for first."""
    from . import _shards

    registry = module.EngineRegistry
    device, vendor = _device()
    for backend in _ENGINES[module.__name__]:
        known = registry._engines["language_model"][backend]
        engine = known.get((device, vendor), known.get(device))
        if engine is None or issubclass(engine, _shards.Handing):
            continue
        handing = _shards.handing(engine)
        if (device, vendor) in known:  # of that vendor's own, which verl refuses to register a second time
            known[device, vendor] = handing
        else:
            registry.register(model_type="language_model", backend=backend, device=device, vendor=vendor)(handing)


def _device() -> tuple[str, str]:
    """As verl's EngineRegistry.get_engine_cls finds them."""
    from verl.utils.device import get_device_name, get_vendor  # type: ignore[import-not-found,unused-ignore]

    return os.getenv("VERL_ENGINE_DEVICE") or get_device_name(), os.getenv("VERL_ENGINE_VENDOR") or get_vendor()
