"""Tiny models for the tests of Megatron-core: a folder with a config.json, weights by name, and Megatron's real
GPTModel cut into chunks.

What each parameter of a chunk holds is worked out here a second time (cut), from Megatron's rules and without
treadle."""

import json
import os
import zlib

BASE = {
    "vocab_size": 384,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "head_dim": 32,
    "dtype": "bfloat16",
    "torch_dtype": "bfloat16",
}
KINDS = {
    "llama": {"architectures": ["LlamaForCausalLM"]},
    "llama_tied": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": True},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"]},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"]},
    "qwen3_moe": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "decoder_sparse_step": 1,
        "norm_topk_prob": True,
        "mlp_only_layers": [],
    },
    "mixtral": {"architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2},
}


def folder(root, kind, **changes):
    """A folder with the config.json of a kind."""
    path = os.path.join(root, "-".join(["megatron", kind, *(f"{key}={value}" for key, value in changes.items())]))
    os.makedirs(path, exist_ok=True)
    written = os.path.join(path, f"config.{os.getpid()}")  # all ranks make it
    with open(written, "w") as file:
        json.dump({"model_type": kind, **BASE, **KINDS[kind], **changes}, file)
    os.replace(written, os.path.join(path, "config.json"))
    return path


def config_of(path):
    with open(os.path.join(path, "config.json")) as file:
        return json.load(file)


def weights(model, seed):
    """Of a treadle.Model: name to tensor, the same on every rank."""
    import torch

    found = {}
    for tensor in model.tensors:
        chance = torch.Generator().manual_seed(zlib.crc32(f"{seed} {tensor.name}".encode()))
        found[tensor.name] = torch.randn(tensor.shape, generator=chance).to(torch.bfloat16)
    return found


def options(hf, **changes):
    """For TransformerConfig, from a config.json."""
    import torch
    import torch.nn.functional as functional

    made = {
        "num_layers": hf["num_hidden_layers"],
        "hidden_size": hf["hidden_size"],
        "ffn_hidden_size": hf["intermediate_size"],
        "num_attention_heads": hf["num_attention_heads"],
        "num_query_groups": hf["num_key_value_heads"],
        "kv_channels": hf["head_dim"],
        "normalization": "RMSNorm",
        "gated_linear_unit": True,
        "activation_func": functional.silu,
        "add_bias_linear": False,
        "add_qkv_bias": hf["model_type"] == "qwen2",
        "qk_layernorm": hf["model_type"].startswith("qwen3"),
        "use_cpu_initialization": True,
        "params_dtype": torch.bfloat16,
        "pipeline_dtype": torch.bfloat16,
        "bf16": True,
        "gradient_accumulation_fusion": False,
        "masked_softmax_fusion": False,
        "bias_activation_fusion": False,
        "apply_rope_fusion": False,
        "persist_layer_norm": False,
        "bias_dropout_fusion": False,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    }
    if experts := hf.get("num_experts") or hf.get("num_local_experts"):
        made |= {
            "num_moe_experts": experts,
            "moe_router_topk": hf["num_experts_per_tok"],
            "moe_ffn_hidden_size": hf.get("moe_intermediate_size", hf["intermediate_size"]),
            "moe_token_dispatcher_type": "allgather",
            "moe_grouped_gemm": False,
        }
    return {**made, **changes}


def chunks(config, padded, tied, max_length=256):
    """GPTModels of this rank, of the local spec."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_local_spec

    virtual = parallel_state.get_virtual_pipeline_model_parallel_world_size()
    made = []
    for stage in range(virtual or 1):
        at = {"vp_stage": stage} if virtual else {}
        edge = {"ignore_virtual": False, **at} if virtual else {}
        if config.num_moe_experts:
            spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, **at)
        else:
            spec = get_gpt_layer_local_spec(normalization="RMSNorm", qk_layernorm=config.qk_layernorm)
        made.append(
            GPTModel(
                config,
                spec,
                vocab_size=padded,
                max_sequence_length=max_length,
                pre_process=parallel_state.is_pipeline_first_stage(**edge),
                post_process=parallel_state.is_pipeline_last_stage(**edge),
                share_embeddings_and_output_weights=tied,
                position_embedding_type="rope",
                **at,
            ).bfloat16()
        )
    return made


# ---- What a parameter holds ----


class Place:
    """Sizes and this rank's coordinates, asked of Megatron."""

    def __init__(self, experts):
        from megatron.core import parallel_state as state

        self.t, self.tp = state.get_tensor_model_parallel_rank(), state.get_tensor_model_parallel_world_size()
        self.e, self.ep, self.et, self.etp = 0, 1, 0, 1
        if experts:
            self.e, self.ep = state.get_expert_model_parallel_rank(), state.get_expert_model_parallel_world_size()
            self.et, self.etp = state.get_expert_tensor_parallel_rank(), state.get_expert_tensor_parallel_world_size()


def cut(hf, whole, place, padded, layer, name):
    """layer: the model's number of the layer that `name` is in, from 0."""
    import torch

    def rows(tensor, part, parts):
        return tensor.chunk(parts, 0)[part]

    def gated(gate, up, part, parts):
        return torch.cat([rows(gate, part, parts), rows(up, part, parts)])

    def padded_rows(tensor):
        return rows(
            torch.cat([tensor, torch.zeros(padded - tensor.shape[0], tensor.shape[1], dtype=tensor.dtype)]),
            place.t,
            place.tp,
        )

    if name == "embedding.word_embeddings.weight":
        return padded_rows(whole["model.embed_tokens.weight"])
    if name == "output_layer.weight":
        return padded_rows(whole.get("lm_head.weight", whole["model.embed_tokens.weight"]))
    if name == "decoder.final_layernorm.weight":
        return whole["model.norm.weight"]
    part, at = name.split(".", 3)[3], f"model.layers.{layer}."
    plain = {
        "input_layernorm.weight": "input_layernorm.weight",
        "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
        "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
        "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
    }
    if part in plain:
        return whole[at + plain[part]]
    if part.startswith("self_attention.linear_qkv."):
        groups = hf["num_key_value_heads"]
        q, k, v = (whole[f"{at}self_attn.{letter}_proj.{part.rsplit('.', 1)[1]}"].chunk(groups, 0) for letter in "qkv")
        return rows(torch.cat([torch.cat(group) for group in zip(q, k, v)]), place.t, place.tp)
    if part == "self_attention.linear_proj.weight":
        return whole[f"{at}self_attn.o_proj.weight"].chunk(place.tp, 1)[place.t]
    if part == "mlp.linear_fc1.weight":
        return gated(whole[f"{at}mlp.gate_proj.weight"], whole[f"{at}mlp.up_proj.weight"], place.t, place.tp)
    if part == "mlp.linear_fc2.weight":
        return whole[f"{at}mlp.down_proj.weight"].chunk(place.tp, 1)[place.t]
    block, gate, up, down = (
        ("block_sparse_moe", "w1", "w3", "w2")
        if hf["model_type"] == "mixtral"
        else ("mlp", "gate_proj", "up_proj", "down_proj")
    )
    if part == "mlp.router.weight":
        return whole[f"{at}{block}.gate.weight"]
    words = part.split(".")  # mlp.experts.local_experts.0.linear_fc1.weight
    expert = place.e * (hf.get("num_experts") or hf["num_local_experts"]) // place.ep + int(words[3])
    of = f"{at}{block}.experts.{expert}."
    if words[4] == "linear_fc1":
        return gated(whole[f"{of}{gate}.weight"], whole[f"{of}{up}.weight"], place.et, place.etp)
    return whole[f"{of}{down}.weight"].chunk(place.etp, 1)[place.et]


def fill(hf, whole, place, padded, made):
    """Writes what belongs there into all parameters of the chunks."""
    import torch

    with torch.no_grad():
        for chunk in made:
            for name, parameter in chunk.named_parameters():
                layer = (
                    chunk.decoder.layers[int(name.split(".")[2])].layer_number - 1
                    if name.startswith("decoder.layers.")
                    else None
                )
                part = cut(hf, whole, place, padded, layer, name)
                assert part.shape == parameter.shape, (name, part.shape, parameter.shape)
                parameter.copy_(part)
