"""As engine_counted, and nothing is packed, so that all dense weights stay as they were loaded. The engine's own
kernels are tested without it."""

import engine_counted
import vllm._custom_ops
import vllm.model_executor.layers.utils

vllm._custom_ops._supports_onednn = False
vllm.model_executor.layers.utils.check_cpu_sgl_kernel = lambda *_: False


class Plain(engine_counted.Packed):
    """vLLM's engine with torch's linear function in place of packed kernels."""
