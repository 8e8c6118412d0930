"""numpy alone: one process, no torch. Plans a switch for 16 ranks, then makes one for this process and looks at the
weights as arrays.

    python examples/python/04_numpy.py [MODEL]"""

import sys

import common

import treadle


def main():
    model = treadle.Model(common.model_path(sys.argv[1:]))
    print(f"{model.family}: {len(model.tensors)} tensors, {model.bytes:,} bytes")
    plan = treadle.plan(model, "megatron:tp=2,pp=2", "vllm:tp=2", 16)
    print(
        f"16 ranks, megatron:tp=2,pp=2 to vllm:tp=2: {plan['moved_bytes']:,} bytes move, "
        f"{plan['ratio']:.3f} of what must"
    )

    group = treadle.Group.alone()
    with treadle.Switch(group, treadle.Layout(model, "megatron", 1), treadle.Layout(model, "vllm", 1)) as sw:
        sw.load()
        version = sw.to_infer()
        weights = sw.infer.numpy()  # bf16 as its bits, uint16
        name = "model.layers.0.self_attn.qkv_proj.weight"
        print(f"version {version}: {name} {weights[name].shape} {weights[name].dtype}")
        sw.to_train()


main()
