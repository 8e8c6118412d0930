#!/usr/bin/env python3
"""Writes a small reward model whose scores are known by hand, for demos and tests of reward_config (docs/ppo.md).

    python3 examples/make_reward_model.py examples/sequence/policy build/demo-ppo/reward 1=1.0

It has the structure and the vocabulary of the model in the first folder. The score of a prompt and its answer is that
of their last token: ID=SCORE for each id, else 0. Layers add nothing to the embeddings, which are orthogonal rows of +1
and -1, so a score is exact if sums of the given scores are, in bf16. The standard library is all it needs.
"""
import json
import os
import shutil
import struct
import sys


def bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def read_shapes(path):
    with open(path, "rb") as file:
        (count,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(count))
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


def elements(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def sign(row, column):
    return -1.0 if bin(row & column).count("1") % 2 else 1.0


def main(policy, folder, *pairs):
    shapes = read_shapes(os.path.join(policy, "model.safetensors"))
    vocabulary, hidden = shapes["model.embed_tokens.weight"]
    order = 1
    while order < vocabulary:
        order *= 2
    if hidden % order:
        sys.exit(f"{policy}: {vocabulary} ids need a hidden size that {order} divides, and it is {hidden}")
    scores = [0.0] * vocabulary
    for pair in pairs:
        number, value = pair.split("=")
        scores[int(number)] = float(value)
    one, zero = bf16(1.0), bf16(0.0)
    tensors = {}
    for name, shape in shapes.items():
        if name == "lm_head.weight":
            continue
        tensors[name] = shape, (one if name.endswith("norm.weight") else zero) * elements(shape)
    rows = [bf16(sign(v, i % order)) for v in range(vocabulary) for i in range(hidden)]
    tensors["model.embed_tokens.weight"] = [vocabulary, hidden], b"".join(rows)
    head = [sum(scores[v] * sign(v, i % order) for v in range(vocabulary)) / hidden for i in range(hidden)]
    tensors["score.weight"] = [1, hidden], b"".join(bf16(value) for value in head)

    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(policy):
        if name != "config.json" and not name.endswith(".safetensors"):
            shutil.copy(os.path.join(policy, name), folder)
    with open(os.path.join(policy, "config.json")) as file:
        config = json.load(file)
    config["architectures"] = [config["architectures"][0].replace("ForCausalLM", "ForSequenceClassification")]
    config["num_labels"] = 1
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=2)
    header, at = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            file.write(data)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
