"""The plug-in for SGLang with the real package: python sglang_tests.py FOLDER [SCENARIO...]

FOLDER gets models, logs and report.json, to which it adds; see SCENARIOS.

Each scenario is a process. What an engine answers after an update is compared with an engine that was started from the
new files: tokens, and log-probabilities bit for bit."""

import importlib.metadata
import os
import tempfile
import time

import failing
import report
import scenarios
import sglang_engine
import sglang_probe
import trainers
from scenarios import check

ANSWERS = scenarios.Answers("sglang")


def weights(path):
    from safetensors.torch import load_file

    return load_file(os.path.join(path, "model.safetensors"))


# ---- In one process ----


def in_process(folder, kind, tp):
    """A trainer and an engine: the same weights, the other ones, and the way back. An engine from the other files is
    started, and answers as this one did."""
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
        check(
            treadle.sglang.update(engine, switch) == 1 and sglang_engine.answers(engine) == one,
            "the same weights answer otherwise",
        )
        _set(trained, weights(f"{path}-2"))
        started = time.monotonic()
        check(treadle.sglang.update(engine, switch) == 2, "version", switch.version)
        print(
            f"update {1000 * (time.monotonic() - started):.0f} ms, "
            f"of these the switch {1000 * switch.stats['seconds']:.1f} ms",
            flush=True,
        )
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
        check(
            sglang_engine.answers(fresh) == two != one,
            "an engine that starts from the new files answers otherwise:",
            sglang_engine.answers(fresh),
            two,
        )
    finally:
        fresh.shutdown()
    ANSWERS.keep(one, folder, kind, tp, 1)
    ANSWERS.keep(two, folder, kind, tp, 2)


def parameters(folder, kind, tp, ep):
    """Parameters alone, of an engine that loads on processors, and whose forward pass does not run there."""
    tp, path = int(tp), os.path.join(folder, "models", kind)
    os.environ.update(sglang_engine.environment(tp))
    import treadle.sglang
    from treadle.sglang import _trainer

    report.count("treadle", _trainer.Trainer, "send_weights")
    _count_engine()
    trained = weights(f"{path}-1")
    engine = sglang_engine.in_process(f"{path}-1", tp, ep_size=int(ep), skip_server_warmup=True)
    try:
        _ask(engine, tp, "count", folder)
        switch = treadle.sglang.connect(engine, trained, model=f"{path}-1")
        before = _ask(engine, tp, "own", f"{path}-1")
        for version, which in ((1, 2), (2, 1), (3, 2)):
            _set(trained, weights(f"{path}-{which}"))
            check(treadle.sglang.update(engine, switch) == version, "version", switch.version)
            for old, new in zip(before, _ask(engine, tp, "own", f"{path}-{which}")):
                check(old["addresses"] == new["addresses"], "parameters have moved")
                check(new["shares"]["own"] == 1.0 and not new["problem"], "own share", new)
                check(not new["differing"] and new["compared"], "parameters differ from the file:", new["differing"])
        switch.close()
    finally:
        engine.shutdown()


def refused(folder, kind, tp):
    """Layers whose forward pass does not run on processors: what is stored as loaded cannot be proved there, so that no
    update begins."""
    tp, path = int(tp), os.path.join(folder, "models", kind)
    os.environ.update(sglang_engine.environment(tp))
    import treadle
    import treadle.sglang

    _count_engine()
    engine = sglang_engine.in_process(f"{path}-1", tp, skip_server_warmup=True)
    try:
        _ask(engine, tp, "count", folder)
        treadle.sglang.connect(engine, weights(f"{path}-1"), model=f"{path}-1")
        check(False, "it was not refused")
    except treadle.Error as error:
        print(error, flush=True)
        check("'model.layers.0.self_attn.kv_b_proj.weight': ColumnParallelLinear" in str(error), error)
    finally:
        engine.shutdown()


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
        sessions = hasattr(engine, "begin_weight_update")  # from 0.5.21 on
        check(not sessions or engine.begin_weight_update()[0], "begin")
        answers = sglang_probe.ask(engine, tp, os.path.join(room, "a"), do, folder=folder, workers=tp)
        check(not sessions or engine.end_weight_update()[0], "end")
        return answers


def _set(tensors, values):
    for name, tensor in tensors.items():
        tensor.copy_(values[name])


def _count_engine():
    from sglang.srt.entrypoints.engine import Engine

    sessions = ("begin_weight_update", "end_weight_update") if hasattr(Engine, "begin_weight_update") else ()
    report.count("sglang", Engine, "generate", "update_weights_from_tensor", "flush_cache", *sessions)


# ---- Over HTTP, from trainers of another number, and what fails ----


class Joined:
    """What trainers.py calls a Trainer."""

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
    """Updates of a server by 2 and by 3 trainers; then what fails. The server lives through all of it: it serves the
    old version, whole, and the next update works."""
    from treadle.sglang import _client

    tp, path = int(tp), os.path.join(folder, "models", kind)
    report.count("treadle", _client.Http, "_call")
    one, two = (ANSWERS.read(folder, kind, tp, which) for which in (1, 2))
    server = sglang_engine.Server(f"{path}-1", tp, os.path.join(folder, "logs", f"sglang-http-{kind}-{tp}.log"))
    two_trainers, three_trainers = (trainers.of(size, server.url, path, make=Joined) for size in (2, 3))
    try:
        check(
            server.answers() == one, "the server answers otherwise than the engine in a process", server.answers(), one
        )
        done = two_trainers([["send", "set 2", "send"]] * 2)
        failing.check_sent(done, 2)
        check(
            server.answers() == two and server.version() == "2",
            "after the update",
            server.version(),
            server.answers(),
            two,
        )
        done = three_trainers([["send"] * 10] * 3, pause="retract")
        failing.check_sent(done, 10)
        check(server.answers() == one and server.version() == "10", "three other trainers, the way back")
        print("over HTTP:", trainers.times(done), flush=True)
        failing.nan(server, two_trainers, one, two, 2)
        failing.revision(server, two_trainers, path, two, "sglang:tp=7", {"rms_norm_eps": 0.01, "vocab_size": 320})
        _strangers(server, two)
        failing.killed(server, two_trainers, two, one, 20 if tp == 1 else 8)
    finally:
        server.close()


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


# ---- All ----

SCENARIOS = [
    ("in_process", "llama", "1"),
    ("http", "llama", "1"),
    ("in_process", "qwen3", "2"),
    ("in_process", "llama", "2"),
    ("in_process", "qwen3", "1"),
    ("in_process", "qwen3_moe", "1"),
    ("in_process", "mixtral", "1"),
    ("in_process", "llama_tied", "1"),
    ("http", "llama", "2"),
    ("parameters", "qwen3_moe", "2", "2"),
    ("refused", "deepseek_v3", "1"),
]
WANTED = [
    ("sglang", "Engine", "generate", "tokens and log-probabilities before and after", "in_process"),
    ("sglang", "Engine", "update_weights_from_tensor", "a manifest in place of tensors"),
    ("sglang", "Engine", "flush_cache", "", "in_process"),
    ("treadle", "Http", "_call", "routes of a server", "http"),
    ("treadle", "_Worker", "receive", "the plug-in's worker side"),
    ("treadle", "Link", "update", "", "in_process"),
    ("treadle", "Trainer", "send_weights", "the plug-in's trainer side", "in_process"),
]
# Of 0.5.12, and of 0.5.21 and later.
OLDER = [("sglang", "ModelRunner", "update_weights_from_tensor", "in workers")]
NEWER = [
    ("sglang", "Engine", "begin_weight_update", "an update begins", "in_process"),
    ("sglang", "Engine", "end_weight_update", "it ends", "in_process"),
    ("sglang", "WeightUpdater", "update_weights_from_tensor", "in workers, tp 1 and 2"),
]


def wanted():
    older = importlib.metadata.version("sglang") == "0.5.12"
    return WANTED + (OLDER if older else NEWER)


if __name__ == "__main__":
    scenarios.main(__file__, globals(), SCENARIOS, wanted())
