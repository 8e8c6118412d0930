"""Tiny Hugging Face folders for the tests of plug-ins: python models.py FOLDER KIND...
makes FOLDER/KIND-1 and FOLDER/KIND-2, two sets of weights of one model.

Weights are large enough that the models' answers differ clearly. The tokenizer has a token for each byte."""

import os
import sys

BASE = {
    "vocab_size": 384,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
}
KINDS = {
    "llama": {"head_dim": 32},
    "llama_large": {
        "head_dim": 64,
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "num_hidden_layers": 4,
    },
    "llama_tied": {"head_dim": 32, "tie_word_embeddings": True},
    "llama_wide": {"head_dim": 32, "intermediate_size": 320},
    "qwen2": {},
    "qwen2_tied": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 32},
    "qwen3_moe": {
        "head_dim": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "decoder_sparse_step": 1,
        "norm_topk_prob": True,
        "mlp_only_layers": [],
    },
    "deepseek_v3": {
        "num_key_value_heads": 4,
        "num_hidden_layers": 3,
        "moe_intermediate_size": 128,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "num_nextn_predict_layers": 1,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "q_lora_rank": 64,
        "kv_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16,
        "v_head_dim": 32,
        "rope_scaling": {
            "type": "yarn",
            "rope_type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    },
    "mixtral": {"head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2},
}


def tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(letters)} | {"<s>": 256, "</s>": 257}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")


def make(folder, kind):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.set_num_threads(1)
    for seed in (1, 2):
        path = os.path.join(folder, f"{kind}-{seed}")
        if os.path.exists(os.path.join(path, "model.safetensors")):
            continue
        torch.manual_seed(seed)
        config = AutoConfig.for_model(
            kind.partition("_tied")[0].partition("_wide")[0].partition("_large")[0], **{**BASE, **KINDS[kind]}
        )
        config.dtype = "bfloat16"
        net = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        with torch.no_grad():
            for name, parameter in net.named_parameters():
                if parameter.ndim >= 2:
                    parameter.normal_(0, 0.15)
                elif "bias" in name:
                    parameter.normal_(0, 0.1)
                else:
                    parameter.uniform_(0.5, 1.5)
        net.save_pretrained(path)
        tokenizer().save_pretrained(path)


if __name__ == "__main__":
    for chosen in sys.argv[2:]:
        make(sys.argv[1], chosen)
