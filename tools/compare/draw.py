"""Random models and layouts for tools/compare-builds, as text: what a seed draws is the same on every machine. Some are
refused: refusals are compared, too. Families and keys are those of tests/core/plan/draw.h, drawn without code of either
build."""

import json
import math
import os
import random

ATTENTION, MLA, LINEAR, LOCAL, SPARSE, FIRST, SHARED, MTP, NEXT, HEAD, PLAIN, NO_FP8 = (1 << bit for bit in range(12))
FAMILIES = {
    "llama": ATTENTION,
    "smollm3": ATTENTION,
    "qwen2": ATTENTION,
    "qwen3": ATTENTION,
    "gemma3_text": ATTENTION | NO_FP8,
    "mixtral": ATTENTION | LOCAL,
    "qwen2_moe": ATTENTION | SPARSE | SHARED,
    "qwen3_moe": ATTENTION | SPARSE,
    "deepseek_v2": MLA | FIRST,
    "deepseek_v3": MLA | FIRST | MTP,
    "kimi_k2": MLA | FIRST | MTP,
    "glm4_moe": ATTENTION | FIRST | MTP,
    "gpt_oss": ATTENTION | LOCAL | NO_FP8,
    "qwen3_next": ATTENTION | LINEAR | SPARSE | SHARED | NEXT | PLAIN,
    "qwen3_5_text": ATTENTION | LINEAR | NEXT,
    "qwen3_5_moe_text": ATTENTION | LINEAR | SPARSE | SHARED | NEXT | PLAIN,
    "qwen3_vl_moe_text": ATTENTION | SPARSE | PLAIN | NO_FP8,
    "deepseek_ocr": ATTENTION | FIRST | HEAD | NO_FP8,
}
LAYOUTS = ("hf", "megatron", "vllm", "sglang", "fsdp", "fsdp2", "zero1", "zero2", "zero3", "distopt")


def divisor(r, n):
    return r.choice([d for d in range(1, n + 1) if n % d == 0])


def chance(r, percent):
    return r.randrange(100) < percent


# ---- Models ----


def add_attention(r, config):
    heads = r.choice((1, 3, 4, 4, 6, 8, 8, 12, 12, 24))
    config.update(num_attention_heads=heads, num_key_value_heads=divisor(r, heads), head_dim=r.randint(1, 5))
    if chance(r, 25):
        config["attention_bias"] = chance(r, 70)


def add_mla(r, config):
    heads, rope = r.choice((1, 3, 4, 6, 8, 8, 12)), r.randint(1, 3)
    config.update(
        num_attention_heads=heads,
        num_key_value_heads=heads,
        q_lora_rank=r.choice((3, 4, 6, 8, 12, None)),
        kv_lora_rank=r.choice((4, 5, 6, 8, 12, 12)) - (rope if chance(r, 60) else 0),
        qk_rope_head_dim=rope,
        qk_nope_head_dim=r.randint(1, 4),
        v_head_dim=r.randint(1, 4),
    )


def add_linear(r, config, layers):
    keys = r.choice((1, 2, 3, 4, 6, 8))
    config.update(
        linear_num_key_heads=keys,
        linear_num_value_heads=keys * r.randint(1, 3),
        linear_key_head_dim=r.randint(1, 3),
        linear_value_head_dim=r.randint(1, 3),
        linear_conv_kernel_dim=r.randint(1, 4),
        full_attention_interval=r.randint(2, layers),
    )
    config.pop("attention_bias", None)


def add_experts(r, config, has, layers):
    experts = r.choice((3, 4, 4, 6, 8, 8, 8, 12, 12, 7))
    if has & LOCAL:
        config["num_local_experts"] = experts
    if has & (SPARSE | FIRST):
        config["moe_intermediate_size"] = r.choice((2, 3, 4, 6, 8, 12))
    if has & SPARSE:
        config["num_experts"] = experts
        if not has & PLAIN and chance(r, 30):
            config["decoder_sparse_step"] = r.randint(1, 2)
        if not has & PLAIN and chance(r, 30):
            config["mlp_only_layers"] = [layer for layer in range(layers) if chance(r, 30)]
    if has & FIRST:
        config.update(
            n_routed_experts=experts,
            n_shared_experts=r.choice((1, 1, 2)),
            first_k_dense_replace=r.randint(0, layers - 1),
        )
        if not has & HEAD:
            config["n_group"] = divisor(r, experts)
    if has & SHARED:
        config["shared_expert_intermediate_size"] = r.choice((4, 6, 8, 12, 24))


def model(r):
    """A config.json."""
    family = r.choice(sorted(FAMILIES))
    has = FAMILIES[family]
    layers = r.randint(2 if has & LINEAR else 1, 5)
    config = {
        "model_type": family,
        "vocab_size": r.randint(5, 100),
        "hidden_size": r.choice((4, 8, 12, 12, 24, 24, r.randint(3, 20))),
        "num_hidden_layers": layers,
        "intermediate_size": r.choice((12, 24, 8, 6, 36)),
        "tie_word_embeddings": chance(r, 40),
        "torch_dtype": r.choice(("float32", "bfloat16", "float16")),
    }
    if has & ATTENTION:
        add_attention(r, config)
    if has & MLA:
        add_mla(r, config)
    if has & LINEAR:
        add_linear(r, config, layers)
    add_experts(r, config, has, layers)
    if has & MTP:
        config["num_nextn_predict_layers"] = r.choice((0, 0, 0, 1, 1, 2))
    if has & NEXT and chance(r, 50):
        config["mtp_num_hidden_layers"] = 1
    if has & HEAD:
        config["hidden_size"] = config["num_attention_heads"] * r.randint(1, 4)
    if has & HEAD or family == "gpt_oss":
        config.pop("attention_bias", None)
    if family == "gemma3_text":
        config["tie_word_embeddings"] = True
    if not has & NO_FP8 and chance(r, 30):
        high = r.choice((1, 2, 2, 3, 4, 4, 6, 8, 12, 128))
        config["quantization_config"] = {
            "quant_method": "fp8",
            "weight_block_size": [high, high if chance(r, 60) else r.choice((1, 2, 3, 4, 8))],
        }
    return config


def experts_of(config):
    return next((config[key] for key in ("num_experts", "num_local_experts", "n_routed_experts") if key in config), 0)


# ---- Layouts ----


def draw_pp(r, ranks, layers):
    sizes = [d for d in range(1, min(ranks, layers + 1) + 1) if ranks % d == 0]
    return r.choice(sizes) if chance(r, 60) else 1


def fitting(r, n, count):
    """A divisor of n; mostly one that divides the count, too."""
    return divisor(r, math.gcd(n, count) if count and chance(r, 75) else n)


def draw_tp(r, config, n):
    return fitting(r, n, config.get("linear_num_key_heads") or config["num_key_value_heads"])


def share(r, layers, stages):
    """Counts of layers, some 0."""
    cuts = sorted(r.randint(0, layers) for _ in range(stages - 1))
    return [b - a for a, b in zip([0] + cuts, cuts + [layers])]


def stages_of(r, config, pp):
    way, layers = r.randrange(6), config["num_hidden_layers"]
    if pp == 1:
        return {}
    if way == 0 or layers % pp and chance(r, 80):
        counts = share(r, layers, pp * r.randint(1, 2))
        stages = "|".join("t*%d" % count if count else "" for count in counts)
        return {"layout": "E" + stages + "m" * config.get("num_nextn_predict_layers", 0) + "L"}
    if way == 1:
        return {"embedding_split": "on", **({"loss_split": "on"} if chance(r, 50) else {})}
    if way == 2:
        return {r.choice(("first", "last")): r.randint(1, layers)}
    return {"vpp": 2} if way == 3 and layers % (2 * pp) == 0 else {}


def megatron(r, config, ranks):
    pp = draw_pp(r, ranks, config["num_hidden_layers"])
    tp = draw_tp(r, config, ranks // pp)
    cp = divisor(r, ranks // pp // tp) if chance(r, 20) else 1
    keys = {"tp": tp, "pp": pp, "cp": cp}
    if experts_of(config):
        etp = r.choice((1, 1, divisor(r, ranks // pp))) if chance(r, 60) else tp
        keys.update(etp=etp, ep=fitting(r, max(1, ranks // pp // etp), experts_of(config)))
        if chance(r, 50):
            keys["experts"] = r.choice(("grouped", "sequential", "stacked"))
    keys.update(stages_of(r, config, pp))
    if chance(r, 25):
        keys["order"] = r.choice(("tp-cp-ep-pp-dp", "cp-tp-ep-dp-pp", "tp-ep-dp-pp-cp", "ep-dp-cp-tp-pp"))
    if chance(r, 40):
        keys["vocab_divisible_by"] = r.randint(1, 40)
    if chance(r, 10):
        keys["spec"] = "local"
    if config.get("q_lora_rank") and chance(r, 30):
        keys["mla_down_proj_fusion"] = "on"
    return keys


def redundant(r, config, ep, folder):
    """Copies of experts up to a number that ep divides, and a map of all."""
    experts, layers = experts_of(config), config["num_hidden_layers"]
    slots = -(-experts // ep) * ep + ep * r.randrange(3)
    keys = {"redundant": slots - experts} if slots > experts else {}
    if chance(r, 50):
        lists = [[s if s < experts else r.randrange(experts) for s in range(slots)] for _ in range(layers)]
        for one in lists:
            r.shuffle(one)
        path = os.path.join(folder, "map-%d.json" % r.randrange(1 << 30))
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"physical_to_logical_map": lists}, file)
        keys["map"] = "@" + path
    return keys


def partition(r, config, pp):
    return (
        {"partition": ",".join(map(str, share(r, config["num_hidden_layers"], pp)))}
        if 1 < pp <= 4 and chance(r, 25)
        else {}
    )


def vllm(r, config, ranks, folder):
    pp = draw_pp(r, ranks, config["num_hidden_layers"])
    tp = draw_tp(r, config, ranks // pp)
    pcp = divisor(r, ranks // pp // tp) if chance(r, 15) else 1
    dp = divisor(r, ranks // pp // tp // pcp) if chance(r, 40) else 1
    keys = {"tp": tp, "pp": pp, "pcp": pcp, "dp": dp}
    if experts_of(config) and chance(r, 60):
        keys["ep"] = "on"
        if chance(r, 40):
            keys.update(redundant(r, config, tp * pcp * dp, folder))
        if chance(r, 30):
            keys["placement"] = "round_robin"
    if chance(r, 20):
        keys["names"] = "old"
    return {**keys, **partition(r, config, pp)}


def sglang(r, config, ranks, folder):
    pp = draw_pp(r, ranks, config["num_hidden_layers"]) if chance(r, 40) else 1
    tp = draw_tp(r, config, ranks // pp)
    attn_dp = divisor(r, tp) if chance(r, 40) else 1
    attn_cp = divisor(r, tp // attn_dp) if chance(r, 25) else 1
    keys, ep = {"tp": tp, "pp": pp, "attn_dp": attn_dp, "attn_cp": attn_cp}, 1
    for key, value, percent in ("dp_lm_head", "on", 20), ("names", "old", 15):
        if chance(r, percent):
            keys[key] = value
    if experts_of(config):
        if chance(r, 15):
            keys["a2a"], ep = "deepep", tp
        elif chance(r, 50):
            keys["ep"] = ep = fitting(r, tp, experts_of(config))
        if ep * attn_cp == tp and chance(r, 60):
            keys["moe_dp"] = attn_cp
        for key, value, percent in (
            ("shared_fusion", "on", 50 if config.get("n_shared_experts") == 1 else 2),
            ("moe_dense_tp", 1, 20),
            ("moe", r.choice(("triton", "triton_kernels")), 20),
        ):
            if chance(r, percent):
                keys[key] = value
        if chance(r, 30):
            keys.update(redundant(r, config, ep, folder))
    return {**keys, **partition(r, config, pp)}


def flat(r, config, ranks, kind):
    plain = not experts_of(config) and "kv_lora_rank" not in config and "linear_num_key_heads" not in config
    keys = {"tp": draw_tp(r, config, ranks)} if plain and chance(r, 25) else {}
    if kind.startswith("fsdp") and chance(r, 25):
        keys["replicate"] = divisor(r, ranks // keys.get("tp", 1))
    if kind == "fsdp":
        keys.update({key: value for key, value in (("orig_params", "on"), ("wrap", "none")) if chance(r, 35)})
    return keys


def layout(r, config, ranks, folder):
    """The text of a layout; a map of experts lies in a file of the folder."""
    kind = r.choice(LAYOUTS + ("megatron", "megatron", "vllm", "sglang"))
    some = sorted(r.sample(range(ranks), r.randint(1, ranks))) if ranks > 1 and chance(r, 20) else None
    held = len(some) if some else ranks
    if kind == "hf":
        keys = {"root": r.randrange(ranks)} if not some and chance(r, 40) else {}
    elif kind in ("megatron", "distopt"):
        keys = megatron(r, config, held)
    elif kind == "vllm":
        keys = vllm(r, config, held, folder)
    elif kind == "sglang":
        keys = sglang(r, config, held, folder)
    else:
        keys = flat(r, config, held, kind)
    if kind == "distopt":
        keys.pop("spec", None)
        keys.update({"bucket_size": r.randint(1, 4000)} if chance(r, 50) else {})
        keys.update({"pad": "on"} if chance(r, 30) else {})
    if chance(r, 20):
        keys["dtype"] = r.choice(
            ("fp32", "bf16", "fp16")
            + (("fp8",) if kind in ("hf", "vllm", "sglang") and "quantization_config" in config else ())
        )
    if some:
        keys["on"] = ",".join(map(str, some))
    words = [
        '%s="%s"' % item if "," in str(item[1]) else "%s=%s" % item
        for item in keys.items()
        if item[1] != 1 or item[0] in ("etp", "moe_dense_tp")
    ]
    return kind + (":" + ",".join(words) if words else "")


# ---- Cases ----


def cases(seed, count, folder):
    """Of plans: {"model", "from", "to", "ranks", ...}, where model is a file in the folder."""
    for number in range(count):
        r = random.Random("%d %d" % (seed, number))
        config, ranks = model(r), r.choice((1, 2, 2, 3, 4, 4, 4, 5, 6, 8, 8, 8, 9, 12, 16))
        path = os.path.join(folder, "model-%d.json" % number)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        yield {
            "number": number,
            "model": path,
            "from": layout(r, config, ranks, folder),
            "to": layout(r, config, ranks, folder),
            "ranks": ranks,
            "page": r.choice((4096, 4096, 8192, 65536, 2 << 20)),
            "least": chance(r, 60),
            "alias": chance(r, 50),
            "rank": r.randrange(ranks),
            "rank_map": r.choice(("contiguous", "contiguous", "contiguous", "strided", "best")),
            "nodes": divisor(r, ranks) if chance(r, 30) else 1,
        }
