"""What runs on ranks or writes files, four parts of tools/compare-builds: weights, rollouts, switch and conversion."""

import itertools
import json
import os

from builds import Failed, REPOSITORY, both, failure, files, lines_of, report, without

# ---- Weights and rollouts ----

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 16,
    "max_position_embeddings": 2048,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "eos_token_id": 1,
    "pad_token_id": 2,
}
TP, PP = "actor_config.tensor_model_parallel_size", "actor_config.pipeline_model_parallel_size"
SFT = """megatron_training: {tokenizer_name_or_path: TOKENIZER, data_path: rows.jsonl, train_iters: STEPS, \
global_batch_size: 8, save_interval: STEPS}
actor_config: {model: tiny/config.json, save: run, micro_batch_size: 2, lr: 1.0e-3}
"""
RL = """megatron_training: {tokenizer_name_or_path: TOKENIZER, data_path: data/train.jsonl, train_iters: STEPS, \
global_batch_size: 4, save_interval: STEPS}
actor_config: {model: tiny/config.json, save: run, micro_batch_size: 4, lr: 1.0e-3}
generate_config: {sampling_config: {max_tokens: 8}}
rl_config: {n_samples_per_prompt: 4, max_prompt_length: 10, verifier_function: [sequence]}
"""
RUNS = [
    ("sft", SFT, 4, [TP + "=2", PP + "=2"]),
    ("sft", SFT, 2, ["megatron_training.use_distributed_optimizer=true"]),
    ("sft", SFT, 2, ["actor_config.strategy=fsdp2"]),
    ("train", RL, 4, [TP + "=2", PP + "=2"]),
    ("train", RL, 2, [TP + "=2", "generate_config.infer_tensor_parallel_size=2"]),
    ("train", RL, 2, ["actor_config.strategy=fsdp2"]),
]
METRICS_LEFT_OUT = "^timing|^perf/(throughput|time_per_step)|^control/idle_s"


def write(folder, name, text):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def make_data(old, new):
    """The demo's rows, made by each build; nothing goes on where they differ."""
    made = both(
        old,
        new,
        lambda build: build.made(
            "treadle", "data", "sequence", "--out", build.emptied("data"), "--noise", "0.3", "--seed", "1"
        ),
    )
    if any(isinstance(one, Failed) for one in made):
        yield "rows of treadle data sequence", *made
    else:
        yield from files("rows of treadle data sequence", old, new, "data")


def few_rows(build):
    """Every rank reads all of them."""
    path = os.path.join(build.here, "data", "sft.jsonl")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            write(build.here, "rows.jsonl", "".join(itertools.islice(file, 2000)))


def metrics(build):
    """Of a run, without times."""
    path = os.path.join(build.here, "run", "metrics.jsonl")
    if not os.path.exists(path):
        return Failed("no metrics.jsonl")
    with open(path, encoding="utf-8") as file:
        return "\n".join(lines_of(without(json.loads(line), METRICS_LEFT_OUT)) for line in file)


def trained(what, old, new, words, ranks, folder):
    """Cases of a run: its metrics, and all files of a folder that it writes."""

    def run(build):
        for name in "run", "dump":
            build.emptied(name)
        return build.made("treadle", *words, "--threads", "1", ranks=ranks)

    ends = both(old, new, run)
    if any(isinstance(end, Failed) for end in ends):
        yield what, *ends
        return
    yield what + ": metrics.jsonl", *both(old, new, metrics)
    yield from files(what, old, new, folder)


def weights(old, new, options, scratch):
    tokenizer = os.path.join(REPOSITORY, "examples", "sequence")
    yield from make_data(old, new)
    for build in old, new:
        few_rows(build)
    for command, text, ranks, words in RUNS[1:2] if options.quick else RUNS:
        for build in old, new:
            write(build.here, "config", text.replace("TOKENIZER", tokenizer).replace("STEPS", str(options.steps)))
            write(os.path.join(build.here, "tiny"), "config.json", json.dumps(TINY))
        what = "%s, %d steps, %d ranks, %s" % (command, options.steps, ranks, " ".join(words))
        yield from trained(what, old, new, [command, "config", *words], ranks, "run/global_step_%d" % options.steps)


def rollouts(old, new, options, scratch):
    example = os.path.join(REPOSITORY, "examples")
    yield from make_data(old, new)
    words = [
        "train",
        os.path.join(example, "grpo-demo.yaml"),
        "megatron_training.train_iters=%d" % (1 if options.quick else 3),
        "megatron_training.tokenizer_name_or_path=" + os.path.join(example, "sequence"),
        "actor_config.model=" + os.path.join(example, "sequence", "policy"),
        "megatron_training.data_path=data/train.jsonl",
        "megatron_training.val_path=data/test.jsonl",
        "actor_config.save=run",
        "rl_config.dump_rollouts=dump",
        "rl_config.val_n=1",
    ]
    few = ["megatron_training.global_batch_size=4", "rl_config.val_before_train=false"]
    yield from trained(
        "demo, rollouts", old, new, words + (few if options.quick else []), 4 if options.quick else 8, "dump"
    )


# ---- Switch ----

SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 96,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "vocab_size": 200,
    "torch_dtype": "bfloat16",
}
EXPERTS = {**SMALL, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MODELS = {
    "dense": {**SMALL, "model_type": "llama"},
    "tied": {**SMALL, "model_type": "qwen3", "tie_word_embeddings": True},
    "experts": EXPERTS,
    "fp8": {**EXPERTS, "quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 4]}},
    "mla": {
        "model_type": "deepseek_v3",
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "q_lora_rank": 24,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "vocab_size": 200,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 32,
        "torch_dtype": "bfloat16",
    },
    "linear": {
        **EXPERTS,
        "model_type": "qwen3_next",
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 8,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4,
        "shared_expert_intermediate_size": 32,
    },
}
SWITCHES = [  # model, ranks, train, infer, more words
    ("dense", 2, "megatron:tp=2", "vllm:tp=1", ""),
    ("dense", 2, "megatron:pp=2", "vllm:tp=2", "--cap 96KiB"),
    ("dense", 4, "megatron:tp=2,pp=2", "vllm:tp=4", "--forward"),
    ("dense", 4, "megatron:tp=4", "sglang:tp=2", "--keep host"),
    ("dense", 4, "megatron:pp=2,vpp=2", "sglang:tp=4,attn_dp=2", "--offload params,grads,optimizer"),
    ("dense", 4, "megatron:tp=2", "vllm:tp=2", "--offload params,grads=keep,optimizer --keep host --forward"),
    ("dense", 4, "fsdp2", "vllm:tp=2", ""),
    ("dense", 2, "fsdp:orig_params=on", "vllm:tp=2", ""),
    ("dense", 3, "fsdp2", "vllm:tp=1", "--offload grads"),
    ("dense", 2, "zero1", "vllm:tp=2,dtype=bf16", "--keep host"),
    ("dense", 4, "zero3", "sglang:tp=4", ""),
    ("dense", 4, "distopt:tp=2", "megatron:tp=2", "--keep host"),
    ("dense", 4, "megatron:tp=2,dtype=fp32", "vllm:tp=2,dtype=bf16", "--keep host --offload params"),
    ("dense", 4, "megatron:tp=2,on=0-1", "vllm:tp=2,on=2-3", ""),
    ("dense", 4, "megatron:tp=4", "vllm:tp=2", "--rank-map strided"),
    ("dense", 2, "hf", "vllm:tp=2", "--alias off"),
    ("dense", 2, "megatron:tp=2", "vllm:tp=2", "--own train"),
    ("dense", 4, "megatron:tp=4", "vllm:tp=2", "--own both"),
    ("dense", 4, "megatron:tp=2,pp=2", "vllm:tp=2", "--update 2"),
    ("dense", 4, "megatron:tp=2,pp=2", "vllm:tp=2", "--update 2 --double on"),
    ("dense", 4, "megatron:tp=2,pp=2", "vllm:tp=4", "--nodes 2"),
    (
        "dense",
        4,
        "megatron:tp=2,on=0-1",
        "vllm:tp=2,on=2-3",
        "--nodes 2 --cycles 0 --update 2 --delta on --changed 0.1",
    ),
    ("tied", 4, "megatron:tp=2,pp=2", "vllm:tp=2", ""),
    ("tied", 2, "fsdp:wrap=none", "sglang:tp=2", ""),
    ("experts", 4, "megatron:tp=2,ep=2,etp=1", "vllm:tp=2,dp=2,ep=on", "--cap 96KiB"),
    ("experts", 4, "megatron:pp=2,ep=2", "sglang:tp=4,ep=4", "--offload params,optimizer"),
    ("experts", 4, "megatron:ep=4,experts=sequential", "vllm:tp=2,dp=2,ep=on,redundant=4", "--nodes 2"),
    ("fp8", 2, "megatron:tp=2,etp=1,ep=2,dtype=bf16", "vllm:tp=2", "--keep host"),
    ("fp8", 2, "hf", "vllm:tp=2,ep=on", ""),
    ("mla", 4, "megatron:tp=2,ep=4,etp=1", "vllm:tp=2,dp=2,ep=on", ""),
    ("mla", 2, "megatron:tp=2,etp=1,ep=2", "sglang:tp=2,ep=2", "--keep host"),
    ("linear", 2, "megatron:tp=2,etp=1,ep=2", "vllm:tp=2", "--keep host"),
]
# Times, how far the net was ahead, and what was read meanwhile.
SWITCH_LEFT_OUT = "seconds|^rate_over_|^(net_window|served)_bytes$"


def switch(old, new, options, scratch):
    for name, config in MODELS.items():
        write(os.path.join(scratch, name), "config.json", json.dumps(config))
    for model, ranks, train, infer, more in SWITCHES[:2] if options.quick else SWITCHES:
        words = [
            "switch",
            "--model",
            os.path.join(scratch, model, "config.json"),
            "--train",
            train,
            "--infer",
            infer,
            "--page-size",
            "4KiB",
            "--check",
            "--json",
            *more.split(),
        ]
        words += [] if "--cycles" in more else ["--cycles", "1"]
        what = "%s, %d ranks, '%s' to '%s' %s" % (model, ranks, train, infer, more)
        said = both(old, new, lambda build: build.run("treadle", *words, ranks=ranks))
        yield what, *(failure(done) or report(done, SWITCH_LEFT_OUT) for done in said)


# ---- Conversion ----

CHAIN = [
    ("hf", "megatron:tp=2,pp=2", "hf", "mcore"),
    ("megatron:tp=2,pp=2", "torch_dist", "mcore", "dist"),
    ("torch_dist", "hf", "dist", "back"),
]
CONVERTED = [
    ("llama", CHAIN),
    (
        "qwen3_moe",
        [
            ("hf", "megatron:tp=2,ep=2,etp=1", "hf", "mcore"),
            ("megatron:tp=2,ep=2,etp=1", "torch_dist", "mcore", "dist"),
            ("torch_dist", "hf", "dist", "back"),
        ],
    ),
    (
        "deepseek_v3",
        [
            ("hf", "torch_dist", "hf", "dist"),
            ("torch_dist", "megatron:pp=2,first=1,ep=2", "dist", "mcore"),
            ("megatron:pp=2,first=1,ep=2", "hf", "mcore", "back"),
        ],
    ),
    (
        "qwen2",
        [
            ("hf", "megatron:tp=2,dtype=fp32", "hf", "mcore"),
            ("megatron:tp=2,dtype=fp32", "hf:dtype=bf16", "mcore", "back"),
        ],
    ),
]


def conversion(old, new, options, scratch):
    for family, steps in CONVERTED[:1] if options.quick else CONVERTED:

        def make(build, family=family):
            for folder in "hf", "mcore", "dist", "back":
                build.emptied(folder)
            return build.made(
                "treadle", "make-model", "hf", "--family", family, "--layers", "4", "--hidden", "128", "--vocab", "300"
            )

        yield family + ": make-model", *both(old, new, make)
        yield from files(family + " as hf", old, new, "hf")
        for source, target, here, there in steps:
            words = ["convert", "--from", source, "--to", target, here, there] + (
                ["--model", "hf/config.json"] if source == "torch_dist" else []
            )
            ends = both(old, new, lambda build: build.made("treadle", *words))
            what = "%s, %s to %s" % (family, source, target)
            if any(isinstance(end, Failed) for end in ends):
                yield what, *ends
                break
            yield from files(what, old, new, there)
