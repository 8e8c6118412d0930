"""Megatron-core with the real package: python megatron_tests.py FOLDER [SCENARIO...]

FOLDER gets models, logs and report.json; see SCENARIOS.

Each scenario is four processes over gloo (megatron_rank.py)."""

import importlib.metadata
import os
import subprocess
import sys
import time

import report
import scenarios
import server

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = 4
LIMIT = 1200  # seconds of a scenario, which takes one minute on an idle machine
SCENARIOS = ("texts", "differing", "dense", "experts")
WANTED = [
    (
        "megatron-core",
        "megatron.core.parallel_state",
        "initialize_model_parallel",
        "4 ranks over gloo: tp, pp, vpp, cp, ep, etp, orders",
    ),
    ("megatron-core", "GPTModel", "__init__", "local spec, on the processor: llama, qwen2, qwen3, qwen3_moe, mixtral"),
    ("mbridge", "Bridge", "export_weights", "what the switch of llama, qwen2 and qwen3 is compared with, bit for bit"),
    ("treadle", "treadle.megatron", "layout", "text found, and compared with names, shapes, types and layer numbers"),
]


def start(folder, scenario, calls):
    """The log of the first rank that failed, or was still running at the limit, and ended; "" where none did."""
    scenario, port = scenario[0], server.free_port()
    models = os.path.join(folder, "models")
    ranks = []
    for rank in range(RANKS):
        env = {
            **os.environ,
            report.LOG: calls,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(RANKS),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
        }
        with open(log_of(folder, scenario, rank), "w") as out:
            ranks.append(
                subprocess.Popen(
                    [sys.executable, os.path.join(HERE, "megatron_rank.py"), scenario, models],
                    stdout=out,
                    stderr=out,
                    env=env,
                )
            )
    until = time.monotonic() + LIMIT
    failed = ""
    for rank, process in enumerate(ranks):
        try:
            code = process.wait(max(until - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        failed = failed or (log_of(folder, scenario, rank) if code != 0 else "")
    return failed


def log_of(folder, scenario, rank):
    return os.path.join(folder, "logs", f"megatron-{importlib.metadata.version('megatron-core')}-{scenario}-{rank}.out")


if __name__ == "__main__":
    version = importlib.metadata.version("megatron-core")
    wanted = [(*row[:3], f"{row[3]} (Megatron-core {version})") for row in WANTED]
    every = [(one,) for one in SCENARIOS]
    sys.exit(
        scenarios.run_all(
            sys.argv[1],
            f"megatron-{version}",
            scenarios.select(every, sys.argv[2:]) if sys.argv[2:] else every,
            wanted,
            start,
        )
    )
