"""Megatron-core with the real package: python megatron_tests.py FOLDER [SCENARIO...]   FOLDER gets models, logs and report.json; see SCENARIOS.

Each scenario is four processes over gloo (megatron_rank.py). The report keeps the rows of other packages and versions that FOLDER has already."""

import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import time

import report

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = 4
LIMIT = 1200  # seconds of a scenario, which takes one minute on an idle machine
SCENARIOS = ("texts", "differing", "dense", "experts")
WANTED = [
    ("megatron-core", "megatron.core.parallel_state", "initialize_model_parallel", "4 ranks over gloo: tp, pp, vpp, cp, ep, etp, orders"),
    ("megatron-core", "GPTModel", "__init__", "local spec, on the processor: llama, qwen2, qwen3, qwen3_moe, mixtral"),
    ("mbridge", "Bridge", "export_weights", "what the switch of llama, qwen2 and qwen3 is compared with, bit for bit"),
    ("treadle", "treadle.megatron", "layout", "text found, and compared with names, shapes, types and layer numbers"),
]


def start(folder, scenario, calls):
    """The exit codes of the ranks; None: still running at the limit, and ended."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    models = os.path.join(folder, "models")
    ranks = []
    for rank in range(RANKS):
        env = {**os.environ, report.LOG: calls, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        with open(log_of(folder, scenario, rank), "w") as out:
            ranks.append(subprocess.Popen([sys.executable, os.path.join(HERE, "megatron_rank.py"), scenario, models], stdout=out, stderr=out, env=env))
    until = time.monotonic() + LIMIT
    codes = []
    for process in ranks:
        try:
            codes.append(process.wait(max(until - time.monotonic(), 0.1)))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            codes.append(None)
    return codes


def log_of(folder, scenario, rank):
    return os.path.join(folder, "logs", f"megatron-{importlib.metadata.version('megatron-core')}-{scenario}-{rank}.out")


def kept_rows(path, versions):
    """Rows of an earlier report that are not of these packages and this Megatron-core; treadle's own rows are told apart by their notes."""
    if not os.path.exists(path):
        return []
    with open(path) as file:
        rows = json.load(file)
    ours = {(package, kind, method) for package, kind, method, _ in WANTED}
    suffix = note_of("", versions)
    return [row for row in rows if (row["package"], row["class"], row["method"]) not in ours or not row["note"].endswith(suffix)]


def note_of(note, versions):
    return f"{note} (Megatron-core {versions['megatron-core']})"


def run_all(folder, chosen):
    for name in ("models", "logs"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    calls = os.path.join(folder, "calls-megatron")
    if os.path.exists(calls):
        os.remove(calls)
    versions = {name: importlib.metadata.version(name) for name in ("megatron-core", "mbridge", "treadle")}
    failed = []
    for scenario in SCENARIOS:
        if chosen and scenario not in chosen:
            continue
        started = time.monotonic()
        codes = start(folder, scenario, calls)
        bad = [rank for rank, code in enumerate(codes) if code != 0]
        print(f"megatron {versions['megatron-core']} {scenario:<12} {'FAILED, see ' + log_of(folder, scenario, bad[0]) if bad else 'ok'} {time.monotonic() - started:6.0f} s", flush=True)
        if bad:
            failed.append(scenario)
    wanted = [(*row[:3], note_of(row[3], versions)) for row in WANTED]
    made = report.rows(versions, wanted, report.read(calls), note_of(f"failed: {', '.join(failed)}", versions) if failed else "")
    path = os.path.join(folder, "report.json")
    kept = kept_rows(path, versions)
    with open(path, "w") as file:
        json.dump(kept + made, file, indent=1)
    print(report.table(made))
    return 1 if failed or report.judge(made) else 0


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1], sys.argv[2:]))
