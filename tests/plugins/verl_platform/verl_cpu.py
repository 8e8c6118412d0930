"""Processors as a platform of verl, by verl's own registry: VERL_USE_EXTERNAL_MODULES=verl_cpu, VERL_PLATFORM=cpu,
VERL_ENGINE_DEVICE=cuda. Its devices are Ray's GPUs, of which a test gives Ray as many as it likes: verl counts workers
by them, and nothing runs there."""

import functools
import types
from contextlib import contextmanager

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

_BYTES = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")


class _Module(types.ModuleType):
    """torch.cpu, with what verl asks of a device's module."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if hasattr(torch.cpu, name):
            return getattr(torch.cpu, name)
        if name in _BYTES:
            return lambda *_, **__: 0
        if name == "mem_get_info":
            return lambda *_, **__: (8 << 30, 16 << 30)
        if name == "get_device_name":
            return lambda *_: "cpu"
        if name == "get_device_properties":
            return lambda *_: types.SimpleNamespace(total_memory=16 << 30, name="cpu")
        return lambda *_, **__: None


_module = _Module("torch_cpu")


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    device_name = vendor_name = "cpu"
    device_module = _module

    def is_available(self):
        return True

    def is_platform_available(self, use_smi_check=False):
        return True

    def current_device(self):
        return "cpu"

    def device_count(self):
        return 1

    def set_device(self, index):
        pass

    def synchronize(self, index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    def manual_seed_all(self, seed):
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, message):
        yield

    def profiler_start(self):
        pass

    def profiler_stop(self):
        pass

    def ray_resource_name(self):
        return "GPU"

    def ray_resource_options(self, count):
        return {"num_gpus": count}

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False

    def rollout_env_vars(self):
        return {}

    def get_collective_module(self):
        return None

    def cudart(self):
        return None


def _old_pause(module):
    """verl 0.9.1 is made for vLLM 0.24, whose pause took another argument than that of the vLLM for processors."""
    inner = module.AsyncLLM.pause_generation

    async def pause_generation(self, *, wait_for_inflight_requests=False, clear_cache=True):
        await inner(self, mode="wait" if wait_for_inflight_requests else "abort", clear_cache=clear_cache)

    module.AsyncLLM.pause_generation = pause_generation


def _one_backend():
    """verl names a backend for processors and one for the device, which are the same here."""
    import torch.distributed as dist

    inner = dist.init_process_group

    def init_process_group(backend=None, **options):
        return inner("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, **options)

    dist.init_process_group = init_process_group


def _count(package, kind, method, module):
    report.count(package, getattr(module, kind), method)


_one_backend()
import report  # noqa: E402

from treadle.verl._later import when_imported  # noqa: E402

when_imported("vllm.v1.engine.async_llm", _old_pause)
for module, package, kind, method in (
    ("sglang.srt.managers.tokenizer_manager", "sglang", "TokenizerManager", "update_weights_from_tensor"),
    ("treadle.verl._adapter", "treadle", "Adapter", "update_weights"),
    ("treadle.verl._backend", "treadle", "Backend", "send_weights"),
    ("treadle.verl._trainer", "treadle", "Trainer", "send_weights"),
):
    when_imported(module, functools.partial(_count, package, kind, method))
