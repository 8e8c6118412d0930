"""TRL's real GRPOTrainer with vLLM, scenarios of vllm_tests.py. A run by treadle.trl has in each step the loss, the
reward and all else of the log, bit for bit, that a run has which saves the weights and has vLLM load the files; in
colocate mode TRL's own way is compared, too. The trainer's weights are fp32, the engine's bf16."""

import json
import os
import subprocess
import sys

import server
import trl_job
import vllm_engine
from scenarios import check

HERE = os.path.dirname(os.path.abspath(__file__))


def trl_colocate(folder, kind, form, shape):
    """shape: processes, tp and "fsdp2" or "whole": "2-1-fsdp2"."""
    processes, tp, shards = shape.split("-")
    words = {
        "mode": "colocate",
        "path": os.path.join(folder, "models", f"{kind}-1"),
        "form": form,
        "tp": int(tp),
        "shards": shards == "fsdp2",
    }
    found = log(folder, int(processes), how="treadle", options={"undo": True}, **words)
    check_steps(
        found, log(folder, int(processes), how="reload", **words), log(folder, int(processes), how="once", **words)
    )
    if form == "plain" and shards == "whole":
        check(found == log(folder, int(processes), how="own", **words), "TRL's own way has other steps")
    else:
        check_nan(folder, int(processes), **words)


def trl_server(folder, kind, form, shape):
    processes, tp, shards = shape.split("-")
    path = os.path.join(folder, "models", f"{kind}-1")
    words = {"mode": "server", "path": path, "shards": shards == "fsdp2"}
    engine = vllm_engine.Server(
        path,
        form,
        int(tp),
        os.path.join(folder, "logs", f"trl-server-{kind}-{form}-{shape}.log"),
        seqs=1,
        words=["--logprobs-mode", "processed_logprobs", "--max-model-len", "256"],
    )
    try:
        runs = [log(folder, int(processes), how=how, url=engine.url, **words) for how in ("treadle", "reload", "once")]
        check_steps(*runs)
        check_nan(folder, int(processes), url=engine.url, **words)
        check(
            log(folder, int(processes), how="treadle", url=engine.url, **words) == runs[0],
            "another run that meets the same server has other steps",
        )
    finally:
        engine.close()


def check_steps(found, expected, without):
    check(len(found) == trl_job.STEPS + 1 and any(step.get("loss", 0) != 0 for step in found), "steps:", found)
    differing = [
        (number, key, step.get(key), value)
        for number, (step, other) in enumerate(zip(found, expected))
        for key, value in other.items()
        if step.get(key) != value
    ]
    check(found == expected, "steps differ from those of a run that has vLLM load files:", differing[:5])
    check(
        found != without,
        "without updates after the first the steps are the same: the weights never came, or do not matter",
    )
    print("losses", [step.get("loss") for step in found], flush=True)


def check_nan(folder, processes, **words):
    """A NaN on the last process: it is refused there, all others hear of it, and nothing hangs."""
    log(folder, processes, how="nan", **words)
    for rank in range(processes):
        with open(os.path.join(folder, "written", "trl", f"log.json.{rank}")) as file:
            kind, said = json.load(file)
        check(
            kind == ("Refused" if rank == processes - 1 else "Peer")
            and f"rank {processes - 1}: 'model.embed_tokens.weight' of shape" in said
            and "1 element of NaN" in said,
            rank,
            kind,
            said,
        )


def log(folder, processes, **words):
    """What GRPOTrainer logged, by step, in these processes."""
    out = os.path.join(folder, "written", "trl", "log.json")
    os.makedirs(os.path.dirname(out), exist_ok=True)
    for name in os.listdir(os.path.dirname(out)):
        if name.startswith("log.json"):
            os.remove(os.path.join(os.path.dirname(out), name))
    env = {
        **os.environ,
        **vllm_engine.environment(1),
        "WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(server.free_port()),
    }
    command = [sys.executable, os.path.join(HERE, "trl_job.py"), json.dumps({"out": out, **words})]
    if processes == 1:
        started = [subprocess.Popen(command, env=env)]
    else:
        started = [
            subprocess.Popen(
                command, env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(processes)}
            )
            for rank in range(processes)
        ]
    codes = [one.wait(400) for one in started]
    check(codes == [0] * processes, "processes of the training ended with", codes)
    with open(out) as file:
        return json.load(file)
