"""One of four ranks over gloo: python megatron_rank.py SCENARIO FOLDER [WORDS...]. Run by megatron_tests.py."""

import contextlib
import json
import os
import sys
import warnings

warnings.filterwarnings("ignore")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import megatron_models as models  # noqa: E402
import report  # noqa: E402

import treadle  # noqa: E402
import treadle.megatron  # noqa: E402


def check(right, *words):
    if not right:
        raise AssertionError(" ".join(map(str, (f"rank {dist.get_rank()}:", *words))))


def refused(text, call):
    try:
        call()
    except treadle.Refused as error:
        check(text in str(error), "refused otherwise:", error, "; expected", text)
    else:
        check(False, "not refused:", text)


@contextlib.contextmanager
def parallel(**sizes):
    """tp=2, pp=2 ...: Megatron's ranks."""
    from megatron.core import parallel_state

    names = {
        "tp": "tensor_model_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "vpp": "virtual_pipeline_model_parallel_size",
        "cp": "context_parallel_size",
        "ep": "expert_model_parallel_size",
        "etp": "expert_tensor_parallel_size",
        "order": "order",
    }
    parallel_state.initialize_model_parallel(**{names[key]: value for key, value in sizes.items()})
    try:
        yield parallel_state
    finally:
        parallel_state.destroy_model_parallel()


def config_of(hf, sizes, **changes):
    from megatron.core.transformer.transformer_config import TransformerConfig

    # Local attention refuses cp, which cuts no weight.
    of = {
        "tp": "tensor_model_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "ep": "expert_model_parallel_size",
        "etp": "expert_tensor_parallel_size",
    }
    made = {of[key]: value for key, value in sizes.items() if key in of}
    if sizes.get("vpp"):
        made["virtual_pipeline_model_parallel_size"] = sizes["vpp"]
    return TransformerConfig(**models.options(hf, **made, **changes))


# ---- The text ----

# kind, changes of its config.json, ranks, options of TransformerConfig, padded rows, the text without spec and dtype
TEXTS = [
    ("llama", {}, {"tp": 2, "pp": 2, "vpp": 2}, {}, 384, "megatron:tp=2,pp=2,vpp=2"),
    ("llama", {}, {"tp": 4}, {}, 512, "megatron:tp=4,padded_vocab_size=512"),
    ("llama", {}, {"tp": 2, "cp": 2}, {}, 384, "megatron:tp=2,cp=2"),
    ("llama", {}, {"tp": 2, "cp": 1, "pp": 2, "order": "tp-cp-ep-pp-dp"}, {}, 384, "megatron:tp=2,pp=2"),
    ("llama", {}, {"pp": 2, "order": "tp-cp-ep-pp-dp"}, {}, 384, "megatron:pp=2,order=tp-cp-ep-pp-dp"),
    ("llama", {}, {"tp": 2, "cp": 2, "order": "cp-tp-ep-dp-pp"}, {}, 384, "megatron:tp=2,cp=2,order=cp-tp-ep-dp-pp"),
    ("llama", {}, {"pp": 2}, {"num_layers_in_first_pipeline_stage": 1}, 384, "megatron:pp=2,first=1"),
    ("llama", {}, {"pp": 2}, {"num_layers_in_last_pipeline_stage": 1}, 384, "megatron:pp=2,last=1"),
    (
        "llama",
        {"num_hidden_layers": 6},
        {"pp": 4},
        {"account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True},
        384,
        "megatron:pp=4,embedding_split=on,loss_split=on",
    ),
    (
        "llama",
        {},
        {"pp": 2, "vpp": 2},
        {"pipeline_model_parallel_layout": "Et|tt|t|L"},
        384,
        'megatron:pp=2,layout="Et|tt|t|L"',
    ),
    ("llama", {}, {"pp": 4}, {"pipeline_model_parallel_layout": "E|tt|tt|L"}, 384, 'megatron:pp=4,layout="E|tt|tt|L"'),
    ("llama_tied", {}, {"tp": 2, "pp": 2}, {}, 384, "megatron:tp=2,pp=2"),
    ("qwen3_moe", {}, {"tp": 2, "pp": 2, "ep": 2, "etp": 1}, {}, 384, "megatron:tp=2,pp=2,ep=2,etp=1"),
    ("qwen3_moe", {}, {"ep": 4}, {}, 384, "megatron:ep=4"),
    ("mixtral", {}, {"tp": 2, "ep": 2, "etp": 2}, {}, 384, "megatron:tp=2,ep=2"),
]


def texts(folder):
    """Each way to cut: the text that is found is the layout that the live chunks have."""
    for kind, changes, sizes, options, padded, expected in TEXTS:
        path = models.folder(folder, kind, **changes)
        hf, model = models.config_of(path), treadle.Model(path)
        with parallel(**sizes):
            config = config_of(hf, sizes, **options)
            made = models.chunks(config, padded, hf["tie_word_embeddings"])
            words = (
                expected
                + ("," if ":" in expected and not expected.endswith(":") else "")
                + "spec=local,dtype=bf16"
                + ("" if "padded" in expected else f",padded_vocab_size={padded}")
            )
            found = treadle.megatron.layout(made, model)
            check(
                found == treadle.Layout(model, words, dist.get_world_size()).text, "found", found, "; expected", words
            )
            check(
                treadle.Layout(model, treadle.megatron.layout(made), dist.get_world_size()).text == found,
                "without a model:",
                treadle.megatron.layout(made),
            )
            if dist.get_rank() == 0:
                print(found, flush=True)


# ---- What differs ----


def differing(folder):
    path = models.folder(folder, "llama")
    hf, model, sizes = models.config_of(path), treadle.Model(path), {"tp": 2, "pp": 2, "vpp": 2}
    with parallel(**sizes) as state:
        made = models.chunks(config_of(hf, sizes), 384, False)
        text = treadle.megatron.layout(made, model)
        keys = [key for key in made[1].state_dict() if key.endswith("_extra_state")]
        check(keys, "the real chunk has no _extra_state: nothing is tried")
        check(
            not any("_extra_state" in str(key) for key in treadle.megatron.tensors(made)),
            "_extra_state is given as a tensor",
        )
        layer = made[1].decoder.layers[0]
        layer.mlp.adapter = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
        refused("'decoder.layers.0.mlp.adapter.weight' of chunk 1: rank", lambda: treadle.megatron.layout(made, model))
        del layer.mlp.adapter
        kept = layer.mlp.linear_fc2.weight
        layer.mlp.linear_fc2.weight = torch.nn.Parameter(kept.detach()[:, :-1].clone())
        refused(
            "'decoder.layers.0.mlp.linear_fc2.weight' of chunk 1 has the shape [128, 127]",
            lambda: treadle.megatron.layout(made, model),
        )
        layer.mlp.linear_fc2.weight = torch.nn.Parameter(kept.detach().float())
        refused(
            "'decoder.layers.0.mlp.linear_fc2.weight' of chunk 1 is float32",
            lambda: treadle.megatron.layout(made, model),
        )
        layer.mlp.linear_fc2.weight = kept
        layer.layer_number += 1
        refused("of chunk 1 is layer", lambda: treadle.megatron.layout(made, model))
        layer.layer_number -= 1
        refused("gives 1 chunks, and Megatron has 2 virtual stages", lambda: treadle.megatron.layout(made[:1]))
        refused("chunk 0 is a Linear, and must be a GPTModel", lambda: treadle.megatron.layout(torch.nn.Linear(2, 2)))
        refused(
            "and the chunk does not",
            lambda: treadle.megatron.layout(made, treadle.Model(models.folder(folder, "qwen2"))),
        )
        refused(
            "has the shape",
            lambda: treadle.megatron.layout(made, treadle.Model(models.folder(folder, "llama", intermediate_size=320))),
        )
        del state.get_expert_model_parallel_group
        refused(
            "parallel_state has no get_expert_model_parallel_group; 0.16 to 0.19 work",
            lambda: treadle.megatron.layout(made),
        )
        state.get_expert_model_parallel_group = None
        wrapped = [_wrapped(chunk) for chunk in made]
        check(treadle.megatron.layout(wrapped, model) == text, "in wrappers:", treadle.megatron.layout(wrapped, model))
    refused("has no ranks yet", lambda: treadle.megatron.layout(made))
    print("all refused", flush=True)


def _wrapped(chunk):
    """As Megatron wraps a chunk for mixed precision."""
    from megatron.core.transformer.module import Float16Module

    return Float16Module(chunk.config, chunk)


# ---- The switch ----


def dense(folder):
    """Exported by mbridge."""
    for kind in ("llama", "qwen2", "qwen3"):
        _switch(folder, kind, {"tp": 2, "pp": 2, "vpp": 2})


def experts(folder):
    """Exported by the test's own reference."""
    _switch(folder, "qwen3_moe", {"tp": 2, "pp": 2, "vpp": 2, "ep": 2, "etp": 1})
    _switch(folder, "mixtral", {"tp": 2, "pp": 2, "ep": 1, "etp": 2})
    _switch(folder, "mixtral", {"tp": 1, "pp": 1, "ep": 4})


def _switch(folder, kind, sizes):
    """Live parameters to Hugging Face's layout and to an engine's, and back."""
    path = models.folder(folder, kind)
    hf, model, group = models.config_of(path), treadle.Model(path), treadle.Group.torch()
    with parallel(**sizes):
        bridge = _bridge(path) if "experts" not in " ".join(hf) else None
        config = bridge.config if bridge else config_of(hf, sizes)
        made = models.chunks(config, hf["vocab_size"], hf["tie_word_embeddings"])
        place = models.Place(config.num_moe_experts)
        train = treadle.Layout(model, treadle.megatron.layout(made, model), group.size)
        engine = treadle.Layout(
            model, "vllm:tp=2", group.size, rank_map=treadle.megatron.rank_map(sizes["tp"], 2), train=train
        )
        for infer, first in ((treadle.Layout(model, "hf", group.size), 1), (engine, 3)):
            with treadle.Switch(group, train, infer, train_tensors=treadle.megatron.tensors(made)) as sw:
                for seed in (first, first + 1):
                    whole = models.weights(model, seed)
                    models.fill(hf, whole, place, hf["vocab_size"], made)
                    exported = (
                        {name: tensor.clone() for name, tensor in bridge.export_weights(made)} if bridge else whole
                    )
                    check(
                        exported.keys() == whole.keys()
                        and all(torch.equal(exported[name], whole[name]) for name in whole),
                        "mbridge exports other weights than the chunks were filled with",
                    )
                    sw.to_infer()
                    _compare(sw.infer.torch(), exported, infer, group.rank)
                    sw.to_train()
                    kept = {
                        name: parameter.detach().clone() for name, parameter in treadle.megatron.tensors(made).items()
                    }
                    models.fill(hf, whole, place, hf["vocab_size"], made)
                    check(
                        all(
                            torch.equal(kept[name], parameter)
                            for name, parameter in treadle.megatron.tensors(made).items()
                        ),
                        "the way back has other parameters",
                    )
        if group.rank == 0:
            print(
                train.text, "exported by", "mbridge" if bridge else "the test's own reference", len(whole), flush=True
            )


def _compare(window, exported, layout, rank):
    """Every tensor of the window, by where the layout says that its elements come from."""
    check(len(window) > 10, "the window has", len(window), "tensors")
    for storage in layout.storages(rank):
        if storage.derived:
            continue
        expected = torch.zeros(window[storage.name].numel(), dtype=torch.bfloat16)
        for run in layout.runs(rank, storage.name):
            if run.tensor is not None:
                expected[run.local_start : run.local_start + run.elems] = exported[run.tensor].flatten()[
                    run.start :: run.stride
                ][: run.elems]
        check(torch.equal(window[storage.name].flatten(), expected), "differs:", storage.name, "of", layout.text)


def _bridge(path):
    """mbridge's exporter, which wants a GPU's number and Transformer Engine's names: told that there is none, and the
    three norms' names of the local spec."""
    import mbridge
    from mbridge.core import Bridge
    from transformers import AutoConfig

    torch.cuda.current_device = lambda: "cpu"
    config = AutoConfig.from_pretrained(path)
    config.rope_theta = 10000.0
    bridge = mbridge.AutoBridge.from_config(config, dtype=torch.bfloat16)
    kind, inner = type(bridge), type(bridge)._weight_name_mapping_mcore_to_hf

    def names(self, name):
        for ours, theirs in (("input_layernorm", "input_layernorm"), ("pre_mlp_layernorm", "post_attention_layernorm")):
            if name.endswith(f".{ours}.weight"):
                return [f"model.layers.{name.split('.')[2]}.{theirs}.weight"]
        return inner(self, name)

    kind._weight_name_mapping_mcore_to_hf = names
    report.count("mbridge", Bridge, "export_weights")
    bridge.set_extra_args(
        use_cpu_initialization=True,
        sequence_parallel=False,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        bias_activation_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,
        bias_dropout_fusion=False,
    )
    return bridge


def record(folder):
    """Facts of the first and the last rank, for the gate: FOLDER/megatron_recorded.json, to be kept as
    python/tests/megatron_recorded.json."""
    from treadle.megatron import _live

    ranks, configs = [], {}
    for kind, sizes in (("qwen3", {"tp": 2, "pp": 2, "vpp": 2}), ("qwen3_moe", {"tp": 2, "pp": 2, "ep": 2, "etp": 1})):
        path = models.folder(folder, kind)
        hf, model = models.config_of(path), treadle.Model(path)
        with parallel(**sizes):
            made = models.chunks(config_of(hf, sizes), 384, False)
            configs[kind] = hf
            ranks.append(
                {"model": kind, "text": treadle.megatron.layout(made, model), "facts": _live.read(made)._asdict()}
            )
    last = dist.get_world_size() - 1
    part = os.path.join(folder, "megatron_recorded.part")
    if dist.get_rank() == last:
        with open(part, "w") as file:
            json.dump(ranks, file)
    dist.barrier()
    if dist.get_rank() == 0:
        with open(part) as file:
            ranks += json.load(file)
        os.remove(part)
        with open(os.path.join(folder, "megatron_recorded.json"), "w") as file:
            lines = ",\n".join(json.dumps(made) for made in ranks)
            file.write(f'{{"configs": {json.dumps(configs)},\n"ranks": [\n{lines}]}}\n')


if __name__ == "__main__":
    torch.set_num_threads(1)
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel

    torch.Tensor.cuda = lambda tensor: tensor  # Megatron moves tied embeddings to a GPU, to make their copies equal
    report.count("megatron-core", GPTModel, "__init__")
    report.count("megatron-core", parallel_state, "initialize_model_parallel")
    report.count("treadle", treadle.megatron, "layout")
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](*sys.argv[2:])
    dist.barrier()
    dist.destroy_process_group()
