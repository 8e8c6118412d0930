"""Megatron-style shards in two processes; an engine in two further processes of its own reads the weights where they
lie, by handle. It holds a version while it generates, so that the bytes stay.

    python examples/python/02_second_process.py [MODEL]"""

import os
import subprocess
import sys
import tempfile
import time

import common

import treadle

STEPS = 3


def trainer(rank, path, folder):
    model = treadle.Model(path)
    group = treadle.Group.join(os.path.basename(folder).replace("-", "").replace("_", ""), rank, 2)
    layouts = treadle.Layout(model, "megatron:tp=2", 2), treadle.Layout(model, "vllm:tp=2", 2)
    with treadle.Switch(group, *layouts) as sw:
        sw.load()
        with open(os.path.join(folder, f"new{rank}"), "wb") as file:
            file.write(sw.infer.handle())  # some bytes: send them in any way
        os.rename(file.name, os.path.join(folder, f"handle{rank}"))
        for _ in range(STEPS):
            version = sw.to_infer()
            while not os.path.exists(os.path.join(folder, f"done{version}.{rank}")):
                time.sleep(0.01)  # a framework would say when a rollout is done
            sw.to_train()  # waits for who holds the window
            for array in sw.train.numpy().values():
                array ^= 1  # in place of a step of training


def engine(rank, folder):
    handle = os.path.join(folder, f"handle{rank}")
    while not os.path.exists(handle):
        time.sleep(0.01)
    with open(handle, "rb") as file:
        weights = treadle.attach(file.read())
    with weights:
        for version in range(1, STEPS + 1):
            weights.wait(version)
            weights.hold()
            total = int(weights["model.norm.weight"].numpy().astype("int64").sum())
            sys.stdout.write(
                f"engine {rank}: version {version} of {len(weights)} tensors, {weights.nbytes:,} bytes; "
                f"the norm's bits sum up to {total}\n"
            )
            sys.stdout.flush()
            weights.release()
            open(os.path.join(folder, f"done{version}.{rank}"), "w").close()


def main():
    if len(sys.argv) > 2 and sys.argv[1] in ("trainer", "engine"):
        role, rank, folder, *path = sys.argv[1:]
        return trainer(int(rank), path[0], folder) if role == "trainer" else engine(int(rank), folder)
    path = common.model_path(sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="treadle-example-") as folder:
        started = [
            subprocess.Popen([sys.executable, __file__, role, str(rank), folder, path])
            for role in ("trainer", "engine")
            for rank in range(2)
        ]
        return max(process.wait() for process in started)


sys.exit(main())
