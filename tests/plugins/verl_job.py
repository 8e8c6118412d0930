"""A job of verl in Ray on the processor, for the tests: its own workers for actors, its own replicas of vLLM or SGLang,
its own manager; only numbers are looked at."""

import asyncio
import contextlib
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join((HERE, os.path.join(HERE, "verl_platform"))),
    "VERL_USE_EXTERNAL_MODULES": "verl_cpu",
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",
    "OMP_NUM_THREADS": "1",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "HF_HUB_OFFLINE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_TARGET_DEVICE": "cpu",
    "RAY_DEDUP_LOGS": "0",
}
if __name__ != "__main__" and "VERL_PLATFORM" not in os.environ:
    os.environ.update(ENVIRONMENT)
    sys.path[:0] = ENVIRONMENT["PYTHONPATH"].split(os.pathsep)

import ray  # noqa: E402
import report  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import verl_megatron  # noqa: E402
from verl.checkpoint_engine import CheckpointEngineManager, CheckpointEngineRegistry  # noqa: E402
from verl.single_controller.base.decorator import Dispatch, register  # noqa: E402
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup  # noqa: E402
from verl.utils.config import omega_conf_to_dataclass  # noqa: E402
from verl.workers.engine_workers import ActorRolloutRefWorker  # noqa: E402
from verl.workers.rollout.replica import get_rollout_replica_class  # noqa: E402

GATHERS = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "gather",
    "gather_object",
    "broadcast",
    "broadcast_object_list",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "scatter",
    "reduce_scatter_tensor",
    "send",
    "recv",
    "isend",
    "irecv",
    "batch_isend_irecv",
)

report.count("verl", ActorRolloutRefWorker, "update_weights")  # before Ray looks at the methods of the class


class Trainer(ActorRolloutRefWorker):
    """verl's own worker. gathers: calls that move tensors among trainers, counted from watch() on."""

    def __init__(self, *arguments, **options):
        dist.init_process_group(
            "gloo",
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
            init_method=os.environ.get("DIST_INIT_METHOD"),
        )
        self._gathers = None
        self._megatron = options["config"].actor.strategy == "megatron"
        if self._megatron:
            verl_megatron.prepare()
            _count_megatron()
        super().__init__(*arguments, **options)

    def _named(self):
        """Names and parameters, as they are trained."""
        module = self.actor.engine.module
        return (pair for chunk in module for pair in chunk.named_parameters()) if self._megatron else (
            module.named_parameters()
        )

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def watch(self):
        """Counts from here on, and the peak of memory starts anew."""
        from torch.distributed.tensor import DTensor

        if self._gathers is None:
            self._gathers = []
            for owner, names in ((dist, GATHERS), (DTensor, ("full_tensor", "redistribute"))):
                for name in names:
                    setattr(owner, name, self._counted(name, getattr(owner, name)))
        self._gathers.clear()
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        self._before, self._shared = memory("VmRSS"), memory("RssShmem")

    def _counted(self, name, inner):
        def call(*arguments, **options):
            self._gathers.append(name)
            return inner(*arguments, **options)

        return call

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def watched(self):
        """Calls that gather, bytes by which the peak of this process's own memory grew, and the switch's figures. Ranks
        of one machine map each other's pools: those of others are no memory of this one's."""
        stats = self._sender().trainer.switch.stats
        others = max(0, memory("RssShmem") - self._shared - stats["pool_bytes"])
        return {
            "gathers": list(self._gathers),
            "growth": memory("VmHWM") - self._before - others,
            "rank": self.rank,
            "stats": stats,
            "dtype": str(next(self._named())[1].dtype),
            "shards": type(next(self._named())[1]).__name__,
        }

    def _sender(self):
        return self.checkpoint_engine._sender if self.checkpoint_engine._servers is not None else self.rollout._treadle

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def iterate(self):
        """What verl's own generator does with the first tensor: the count must see it."""
        shards, _ = self.actor.engine.get_per_tensor_param()
        name, tensor = next(iter(shards))
        return type(shards).__name__, name, list(tensor.shape), list(self._gathers)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def set_weights(self, path):
        """Those of a folder of Hugging Face's."""
        if self._megatron:
            with torch.no_grad():
                self.actor.engine.bridge.load_weights(self.actor.engine.module, path)
            return
        from safetensors.torch import load_file

        full = load_file(os.path.join(path, "model.safetensors"))
        with torch.no_grad():
            for name, parameter in self._named():
                local = parameter.to_local()
                parts = full[name].chunk(parameter.device_mesh.size(), 0)
                rank = parameter.device_mesh.get_local_rank()
                if rank < len(parts):
                    local.copy_(parts[rank])

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def spoil(self, rank):
        if self.rank == rank:
            with torch.no_grad():
                _, norm = next(pair for pair in self._named() if pair[0].endswith("norm.weight"))
                getattr(norm, "to_local", lambda: norm)()[0] = float("nan")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def die(self, rank, when):
        """rank ends by SIGKILL: now, at the beginning of its next move, or while bytes move, after `when` seconds."""
        if self.rank != rank:
            return
        if when is None:
            os.kill(os.getpid(), 9)
        import threading

        from treadle._engines.trainer import EngineTrainer

        inner = EngineTrainer._move

        def move(trainer):
            if when == 0:
                os.kill(os.getpid(), 9)
            threading.Timer(when, lambda: os.kill(os.getpid(), 9)).start()
            return inner(trainer)

        EngineTrainer._move = move


def _count_megatron():
    from verl.workers.engine.megatron.transformer_impl import MegatronEngine

    report.count("verl", MegatronEngine, "initialize")


def memory(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))


FSDP2 = {
    "actor_rollout_ref.actor.strategy": "fsdp2",
    "actor_rollout_ref.actor.use_torch_compile": False,
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile": False,
}


def given(path, backend, tp, trainers):
    """What is given to verl's configuration, by key, for a model in `path`."""
    return {
        "actor_rollout_ref.model.path": path,
        "actor_rollout_ref.model.use_remove_padding": False,
        "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
        "actor_rollout_ref.model.enable_gradient_checkpointing": False,
        **(verl_megatron.options(2, 2) if trainers == "megatron" else FSDP2),
        "actor_rollout_ref.actor.use_dynamic_bsz": False,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 1,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 1,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 4,
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.tensor_model_parallel_size": tp,
        "actor_rollout_ref.rollout.enforce_eager": True,
        "actor_rollout_ref.rollout.free_cache_engine": False,
        "+actor_rollout_ref.rollout.enable_sleep_mode": False,
        "actor_rollout_ref.rollout.load_format": "auto",
        "actor_rollout_ref.rollout.max_model_len": 128,
        "actor_rollout_ref.rollout.max_num_seqs": 4,
        "actor_rollout_ref.rollout.max_num_batched_tokens": 256,
        "actor_rollout_ref.rollout.prompt_length": 64,
        "actor_rollout_ref.rollout.response_length": 64,
        "actor_rollout_ref.rollout.checkpoint_engine.backend": backend,
    }


def config_of(path, backend="treadle", tp=1, trainers="fsdp2", **overrides):
    """verl's own configuration of a PPO trainer. trainers: "fsdp2", or "megatron", with tp 2 and pp 2."""
    import verl.trainer
    from hydra import compose, initialize_config_dir

    words = [f"{key}={value}" for key, value in {**given(path, backend, tp, trainers), **overrides}.items()]
    with initialize_config_dir(os.path.join(os.path.dirname(verl.trainer.__file__), "config"), version_base=None):
        return compose("ppo_trainer", words).actor_rollout_ref


@contextlib.contextmanager
def cluster(folder, devices, server, tp):
    """Ray, on this machine alone, with its own files, for servers of a kind."""
    environment = dict(ENVIRONMENT)
    if server == "sglang":
        import sglang_engine

        environment |= sglang_engine.environment(tp)
        os.environ.update(environment)
    if report.LOG in os.environ:
        environment[report.LOG] = os.environ[report.LOG]
    ray.init(
        address="local",
        _temp_dir=os.path.join(folder, "ray"),
        num_cpus=256,
        num_gpus=devices,
        include_dashboard=False,
        object_store_memory=200 << 20,
        log_to_driver=True,
        runtime_env={"env_vars": environment},
    )
    try:
        yield
    finally:
        ray.shutdown()


def trainers(config, count, role="actor", name="trainers"):
    """verl's worker group, with its models made."""
    pool = RayResourcePool(process_on_nodes=[count], use_gpu=True, name_prefix=name, max_colocate_count=2)
    group = RayWorkerGroup(
        resource_pool=pool,
        ray_cls_with_init=RayClassWithInitArgs(cls=ray.remote(Trainer), config=config, role=role),
        device_name="cpu",
    )
    group.init_model()
    return group


async def replicas(config, count, group=None, first=0):
    """verl's replicas, each with its servers: apart from the trainers, or colocated with those of a group. first: the
    number of the first."""
    kind = get_rollout_replica_class(config.rollout.name)
    model = omega_conf_to_dataclass(config.model)
    made = [
        kind(replica_rank=number, config=config.rollout, model_config=model, gpus_per_node=8)
        for number in range(first, first + count)
    ]
    await asyncio.gather(*[one.init_hybrid(group) if group is not None else one.init_standalone() for one in made])
    return made


def end(made):
    """Replicas that are not needed any more."""
    for one in made:
        for actor in (*one.servers, *one.workers):
            ray.kill(actor)


def end_group(group):
    for worker in group.workers:
        ray.kill(worker)


def die(group, rank, when):
    """See Trainer.die; a trainer that dies in the call cannot answer it."""
    with contextlib.suppress(ray.exceptions.RayActorError):
        group.die(rank, when)


def manager(config, group, made, backend=None):
    """verl's own. backend: written over that of the configuration, as verl's default trainer does."""
    given = omega_conf_to_dataclass(config.rollout.checkpoint_engine)
    given.backend = backend or given.backend
    report.count("verl", CheckpointEngineManager, "update_weights")
    return CheckpointEngineManager(config=given, actor_wg=group, replicas=made)


async def answers(made):
    """What each replica's server generates: [[token, log-probability], ...] for each prompt."""
    import vllm_engine

    found = []
    for one in made:
        said = []
        for number, prompt in enumerate(vllm_engine.PROMPTS):
            sampling = {"temperature": 0, "max_tokens": vllm_engine.TOKENS, "ignore_eos": True, "logprobs": True}
            output = await one.servers[0].generate.remote(prompt, sampling, f"{time.monotonic()}-{number}")
            said.append([list(pair) for pair in zip(output.token_ids, output.log_probs)])
        found.append(said)
    return found


__all__ = ["CheckpointEngineManager", "CheckpointEngineRegistry"]
