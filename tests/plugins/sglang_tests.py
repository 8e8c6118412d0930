"""The plug-in for SGLang with the real package: python sglang_tests.py FOLDER [SCENARIO...]   FOLDER gets models, logs and report.json, to which it adds; see SCENARIOS.

Each scenario is a process. What an engine answers after an update is compared with an engine that was started from the new files: tokens, and log-probabilities bit for bit."""

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time

import models
import report
import sglang_engine
import sglang_probe

HERE = os.path.dirname(os.path.abspath(__file__))


def check(right, *words):
    if not right:
        raise AssertionError(" ".join(map(str, words)))


def expected(folder, kind, tp, which):
    """Where the answers of an engine that was started from files are kept."""
    return os.path.join(folder, "answers", f"sglang-{kind}-{tp}-{which}.json")


def answers_of(folder, kind, tp, which):
    with open(expected(folder, kind, tp, which)) as file:
        return json.load(file)


def keep_answers(folder, kind, tp, which, answers):
    os.makedirs(os.path.join(folder, "answers"), exist_ok=True)
    with open(expected(folder, kind, tp, which), "w") as file:
        json.dump(answers, file)


def weights(path):
    from safetensors.torch import load_file

    return load_file(os.path.join(path, "model.safetensors"))


# ---- In one process ----


def in_process(folder, kind, tp):
    """A trainer and an engine: the same weights, the other ones, and the way back. An engine from the other files is started, and answers as this one did."""
    tp, path = int(tp), os.path.join(folder, "models", kind)
    os.environ.update(sglang_engine.environment(tp))
    import treadle.sglang
    from treadle.sglang import _trainer

    report.count("treadle", _trainer.Trainer, "send_weights")
    _count_engine()
    trained = weights(f"{path}-1")
    kept = {name: tensor.clone() for name, tensor in trained.items()}
    engine = sglang_engine.in_process(f"{path}-1", tp)
    try:
        one, two = sglang_engine.answers(engine), None
        _ask(engine, tp, "count", folder)
        started = time.monotonic()
        switch = treadle.sglang.connect(engine, trained, model=f"{path}-1")
        print(f"set-up {time.monotonic() - started:.3f} s", flush=True)
        before = _ask(engine, tp, "own", f"{path}-1")
        check(treadle.sglang.update(engine, switch) == 1 and sglang_engine.answers(engine) == one, "the same weights answer otherwise")
        _set(trained, weights(f"{path}-2"))
        started = time.monotonic()
        check(treadle.sglang.update(engine, switch) == 2, "version", switch.version)
        print(f"update {1000 * (time.monotonic() - started):.0f} ms, of these the switch {1000 * switch.stats['seconds']:.1f} ms", flush=True)
        two = sglang_engine.answers(engine)
        check(sglang_engine.version(engine) == "2", "SGLang's version is", sglang_engine.version(engine))
        for old, new in zip(before, _ask(engine, tp, "own", f"{path}-2")):
            check(old["addresses"] == new["addresses"], "parameters have moved")
            check(new["shares"]["own"] == 1.0 and not new["problem"], "own share", new)
            check(not new["differing"] and new["compared"], "parameters differ from the file:", new["differing"])
        _nan_in_process(engine, switch, trained, two)
        _set(trained, kept)
        treadle.sglang.update(engine, switch)
        check(sglang_engine.answers(engine) == one, "the way back answers otherwise")
        switch.close()
    finally:
        engine.shutdown()
    fresh = sglang_engine.in_process(f"{path}-2", tp)
    try:
        check(sglang_engine.answers(fresh) == two != one, "an engine that starts from the new files answers otherwise:", sglang_engine.answers(fresh), two)
    finally:
        fresh.shutdown()
    keep_answers(folder, kind, tp, 1, one)
    keep_answers(folder, kind, tp, 2, two)


def _nan_in_process(engine, switch, trained, stands):
    import treadle.sglang

    name = next(iter(trained))
    value = trained[name].flatten()[3].clone()
    trained[name].flatten()[3] = float("nan")
    try:
        treadle.sglang.update(engine, switch)
        check(False, "NaN went through")
    except treadle.Refused as error:
        check(f"rank 0: '{name}' of shape" in str(error) and "1 element of NaN" in str(error), "NaN:", error)
    trained[name].flatten()[3] = value
    check(sglang_engine.answers(engine) == stands, "NaN: the engine answers otherwise")


def _ask(engine, tp, do, folder):
    with tempfile.TemporaryDirectory() as room:
        check(engine.begin_weight_update()[0], "begin")
        answers = sglang_probe.ask(engine, tp, os.path.join(room, "a"), do, folder=folder, workers=tp)
        check(engine.end_weight_update()[0], "end")
        return answers


def _set(tensors, values):
    for name, tensor in tensors.items():
        tensor.copy_(values[name])


def _count_engine():
    from sglang.srt.entrypoints.engine import Engine

    report.count("sglang", Engine, "generate", "begin_weight_update", "update_weights_from_tensor", "end_weight_update", "flush_cache")


# ---- Over HTTP, from trainers of another number, and what fails ----


class Joined:
    """What vllm_trainer calls a Trainer."""

    def __init__(self, net, url, **options):
        import treadle.sglang

        self._url, self.switch = url, treadle.sglang.connect(url, net, **options)

    def send_weights(self):
        import treadle.sglang

        return treadle.sglang.update(self._url, self.switch)

    def close(self):
        self.switch.close()

    @property
    def _update(self):
        return self.switch._sglang._update

    @_update.setter
    def _update(self, update):
        self.switch._sglang._update = update


def http(folder, kind, tp):
    """Updates of a server by 2 and by 3 trainers; then what fails. The server lives through all of it: it serves the old version, whole, and the next update works."""
    import treadle.vllm
    import vllm_trainer
    from treadle.sglang import _client

    tp, path = int(tp), os.path.join(folder, "models", kind)
    treadle.vllm.Trainer = Joined
    report.count("sglang", _client.Http, "_call")
    one, two = (answers_of(folder, kind, tp, which) for which in (1, 2))
    server = sglang_engine.Server(f"{path}-1", tp, vllm_trainer.free_port(), os.path.join(folder, "logs", f"sglang-http-{kind}-{tp}.log"))
    try:
        check(server.answers() == one, "the server answers otherwise than the engine in a process", server.answers(), one)
        done = vllm_trainer.run(2, server.url, path, [["send", "set 2", "send"]] * 2)
        _check_sent(done, 2)
        check(server.answers() == two and server.version() == "2", "after the update", server.version(), server.answers(), two)
        done = vllm_trainer.run(3, server.url, path, [["send"] * 10] * 3, pause="retract")
        _check_sent(done, 10)
        check(server.answers() == one and server.version() == "10", "three other trainers, the way back")
        print("set-up", f"{done[0][0][1]:.3f} s; updates over HTTP", ", ".join(f"{1000 * step[2]:.0f}" for step in done[0][1:]), "ms", flush=True)
        _nan(server, path, one, two)
        _revision(server, path, two)
        _strangers(server, two)
        _killed(server, path, two, one)
    finally:
        server.close()


def _check_sent(done, version):
    for steps in done:
        check(steps is not None and steps[0][0] == "met" and [s[0] for s in steps[1:]] == ["sent"] * (len(steps) - 1), "trainers:", done)
        check(steps[-1][1] == version, "version", steps[-1])


def _nan(server, path, old, new):
    import vllm_trainer

    done = vllm_trainer.run(2, server.url, path, [["nan", "send", "send", "set 2"], ["set 1", "send", "send", "set 2"]])
    for rank, kind in enumerate(("Refused", "Peer")):
        check([step[1] for step in done[rank][1:]] == [kind] * 2, "NaN:", done)
        check(all("'model.embed_tokens.weight' of shape" in step[2] and "1 element of NaN" in step[2] for step in done[rank][1:]), "NaN:", done)
    check(server.answers() == old, "NaN: the engine answers otherwise")
    _check_sent(vllm_trainer.run(2, server.url, path, [["set 2", "send"]] * 2), 1)
    check(server.answers() == new, "the update after NaN")


def _revision(server, path, stands):
    import vllm_trainer

    with open(f"{path}-1/config.json") as file:
        config = json.load(file)
    with tempfile.TemporaryDirectory() as other:
        for key, value in {"rms_norm_eps": 0.01, "vocab_size": 320}.items():
            with open(os.path.join(other, "config.json"), "w") as file:
                json.dump({**config, key: value}, file)
            for steps in vllm_trainer.run(2, server.url, path, [["send"]] * 2, model=os.path.join(other, "config.json")):
                check(steps[0][0] == "refused" and f"has {key} {value}, and the engine's" in steps[0][2] and steps[0][3] < 20, "another revision:", steps)
    for steps in vllm_trainer.run(2, server.url, path, [["send"]] * 2, layout="sglang:tp=7"):
        check(steps[0][0] == "refused" and "the trainers ask for sglang:tp=7" in steps[0][2], "another tp:", steps)
    check(server.lives() and server.answers() == stands, "another revision: the engine answers otherwise")


def _strangers(server, stands):
    """Calls of the engine's route by others than connect and update: its answers are ordinary, and it lives."""
    from treadle.sglang import _client, _manifest

    client = _client.Http(server.url)
    client.start_weight_update()
    away = {"store": "127.0.0.1:9", "group": "g", "hash": "h", "attempt": "a", "timeout": 0.5}
    for version in (0, 1):
        client._send(_manifest.Manifest(**away, version=version))
    client._send(_manifest.Manifest(**{**away, "store": "nowhere"}, version=0))
    client.finish_weight_update()
    check(server.lives() and server.answers() == stands, "strangers: the engine answers otherwise")


def _killed(server, path, stands, other):
    """A trainer dies before the move and at its beginning: in the first update of its switch and in a later one."""
    import vllm_trainer

    first, later = ["set 1"], ["set 2", "send", "set 1"]
    rounds = [(first, ["die"]), (first, ["die at", "send"]), (later, ["die"]), (later, ["die at", "send"])]
    for number in range(8):
        dies, (before, death) = number % 2, rounds[number // 2 % 4]
        steps = [[*before, "send"], [*before, "send"]]
        steps[dies] = [*before, *death]
        done = vllm_trainer.run(2, server.url, path, steps)
        check(done[dies] is None, "it did not die:", done)
        last = done[1 - dies][-1]
        check(last[0] == "raised" and last[3] < 30, "the other one has no message:", done)
        check(server.lives() and server.answers() == stands, "round", number, "the engine answers otherwise after", steps[dies])
    _check_sent(vllm_trainer.run(2, server.url, path, [["set 1", "send"]] * 2), 1)
    check(server.answers() == other, "the update after the deaths")


# ---- All ----

SCENARIOS = [
    ("in_process", "llama", "1"),
    ("http", "llama", "1"),
    ("in_process", "qwen3", "2"),
    ("in_process", "llama", "2"),
    ("in_process", "qwen3", "1"),
    ("in_process", "qwen3_moe", "1"),
    ("in_process", "mixtral", "1"),
    ("http", "llama", "2"),
]
WANTED = [
    ("sglang", "Engine", "generate", "tokens and log-probabilities before and after"),
    ("sglang", "Engine", "begin_weight_update", "an update begins"),
    ("sglang", "Engine", "update_weights_from_tensor", "a manifest in place of tensors"),
    ("sglang", "Engine", "end_weight_update", "it ends"),
    ("sglang", "Engine", "flush_cache", ""),
    ("sglang", "WeightUpdater", "update_weights_from_tensor", "in workers, tp 1 and 2"),
    ("treadle", "_Worker", "receive", "the plug-in's worker side"),
    ("treadle", "_Link", "update", ""),
    ("treadle", "Trainer", "send_weights", "the plug-in's trainer side"),
]


def run_all(folder, chosen):
    for name in ("models", "logs"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    for kind in sorted({scenario[1] for scenario in SCENARIOS}):
        models.make(os.path.join(folder, "models"), kind)
    calls = os.path.join(folder, "calls-sglang")
    if os.path.exists(calls):
        os.remove(calls)
    failed = []
    for scenario in SCENARIOS:
        if chosen and not {scenario[0], "-".join(scenario)} & set(chosen):
            continue
        started = time.monotonic()
        log = os.path.join(folder, "logs", "sglang-" + "-".join(scenario) + ".out")
        with open(log, "w") as out:
            code = subprocess.call([sys.executable, os.path.abspath(__file__), "--one", folder, *scenario], stdout=out, stderr=out, env={**os.environ, report.LOG: calls})
        print(f"{' '.join(scenario):<40} {'ok' if code == 0 else 'FAILED, see ' + log} {time.monotonic() - started:6.0f} s", flush=True)
        if code != 0:
            failed.append(" ".join(scenario))
    versions = {name: importlib.metadata.version(name) for name in ("sglang", "treadle")}
    made = report.rows(versions, WANTED, report.read(calls), f"failed: {', '.join(failed)}" if failed else "")
    path, ours = os.path.join(folder, "report.json"), {row[:3] for row in WANTED}
    others = []
    if os.path.exists(path):  # of other plug-ins
        with open(path) as file:
            others = [row for row in json.load(file) if (row["package"], row["class"], row["method"]) not in ours and row["package"] != "sglang"]
    with open(path, "w") as file:
        json.dump(others + made, file, indent=1)
    print(report.table(made))
    return 1 if failed or report.judge(made) else 0


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        globals()[sys.argv[3]](sys.argv[2], *sys.argv[4:])
    else:
        sys.exit(run_all(os.path.abspath(sys.argv[1]), sys.argv[2:]))
