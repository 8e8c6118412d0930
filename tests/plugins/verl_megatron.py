"""verl's Megatron workers on processors: what Megatron-core and mbridge ask of a GPU is answered here, and layers are
those of Megatron's local specification, since Transformer Engine has no wheel for processors."""

import torch
from torch.overrides import TorchFunctionMode


def options(tp, pp, vpp=None):
    """verl's words for such trainers, beside those of all."""
    actor = "actor_rollout_ref.actor"
    words = {
        "model_engine": "megatron",
        f"{actor}.strategy": "megatron",
        f"{actor}.megatron.tensor_model_parallel_size": tp,
        f"{actor}.megatron.pipeline_model_parallel_size": pp,
        f"{actor}.megatron.virtual_pipeline_model_parallel_size": vpp or "null",
        f"{actor}.megatron.vanilla_mbridge": True,
        f"{actor}.optim.total_training_steps": 10,
        f"{actor}.megatron.sequence_parallel": False,
        f"{actor}.megatron.use_distributed_optimizer": False,
        f"{actor}.megatron.use_remove_padding": False,
    }
    for key in ("sequence_parallel", "gradient_accumulation_fusion", "masked_softmax_fusion", "bias_activation_fusion"):
        words[f"+{actor}.megatron.override_transformer_config.{key}"] = False
    for key in ("apply_rope_fusion", "persist_layer_norm", "bias_dropout_fusion"):
        words[f"+{actor}.megatron.override_transformer_config.{key}"] = False
    words[f"+{actor}.megatron.override_transformer_config.use_cpu_initialization"] = True
    words[f"{actor}.megatron.override_transformer_config.attention_backend"] = "local"
    return words


_TYPE = torch.Tensor.type


class _Processor(TorchFunctionMode):
    """Tensors that are asked for on a GPU are made on the processor, and say that they are on a GPU where Megatron's
    optimizer asks for their type."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = dict(options or {})
        if str(options.get("device")).startswith("cuda"):
            options["device"] = "cpu"
        found = function(*arguments, **options)
        return found.replace("torch.", "torch.cuda.") if isinstance(found, str) and function is _TYPE else found


def prepare():
    """In a trainer's process, before its engine is made."""
    _Processor().__enter__()  # as long as the process lives
    torch.cuda.current_device = lambda: "cpu"
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    torch.nn.Module.cuda = lambda module, *_: module
    from mbridge.core import Bridge, llm_bridge
    from megatron.core import tensor_parallel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

    tensor_parallel.model_parallel_cuda_manual_seed = lambda *_, **__: None
    llm_bridge.LLMBridge._get_transformer_layer_spec = lambda self, vp_stage=None: get_gpt_layer_local_spec(
        normalization="RMSNorm", qk_layernorm=self.config.qk_layernorm
    )
    _name_norms(Bridge)


def _name_norms(bridge):
    """Of the local specification, which Transformer Engine's layers have within others."""
    inner = bridge._weight_name_mapping_mcore_to_hf

    def names(self, name):
        for ours, theirs in (("input_layernorm", "input_layernorm"), ("pre_mlp_layernorm", "post_attention_layernorm")):
            if name.endswith(f".{ours}.weight"):
                return [f"model.layers.{name.split('.')[2]}.{theirs}.weight"]
        return inner(self, name)

    bridge._weight_name_mapping_mcore_to_hf = names
