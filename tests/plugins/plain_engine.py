"""vLLM's engine for processors with plain weights: given as its worker_extension_cls, this module is imported in each worker before the model is loaded.

Nothing is packed then, so that all dense weights stay as they were loaded. The engine's real kernels are tested without it."""

import vllm._custom_ops
import vllm.model_executor.layers.utils

vllm._custom_ops._supports_onednn = False
vllm.model_executor.layers.utils.check_cpu_sgl_kernel = lambda *_: False


class Plain:
    pass
