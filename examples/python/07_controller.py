"""A controller on Ray: an actor that answers, a judge on a pool of its own, a dispatch mode of one's own, and futures,
which go from worker to worker without passing here.

    pip install 'treadle[ray]'
    RAY_AUTH_MODE=disabled python examples/python/07_controller.py [STEPS]"""

import sys
import tempfile

import numpy
import ray

import treadle
from treadle.ray import ClassWithInitArgs, Dispatch, ResourcePoolManager, Worker, WorkerGroup, nd_mesh, register


def by_name(group, tasks):
    """Dispatch of one's own: each worker gets the task that names its rank, or None."""
    return [[tasks.get(rank) for rank in range(group.world_size)]], {}


def all_said(group, results):
    return ", ".join(result for result in results if result)


class Actor(Worker):
    """Four workers, two to an engine: both get the same prompts, and the first one gives the answers."""

    def __init__(self, samples):
        self.samples, self.bias = samples, 0.0
        self.register_mesh("rollout", dp_rank=self.rank // 2, collects=self.rank % 2 == 0)

    @register(nd_mesh("rollout"), blocking=False)
    def answer(self, prompts):
        answers = prompts.repeat(self.samples)
        draws = numpy.random.default_rng(self.rank).normal(self.bias, 1.0, len(answers))
        answers["answer"] = draws
        return answers

    @register(Dispatch.DP_COMPUTE_PROTO)
    def update(self, samples):
        scores, answers = samples["score"].numpy(), samples["answer"].numpy()
        step = 0.1 * ((scores - scores.mean()) * answers).mean()
        return treadle.Batch.of({"step": [float(step)]})

    @register(Dispatch.ONE_TO_ALL)
    def move(self, step):
        self.bias += step
        return self.bias

    @register({"dispatch_fn": by_name, "collect_fn": all_said})
    def errand(self, task):
        return f"rank {self.rank} did '{task}'" if task else None


class Judge(Worker):
    """Two workers: an answer is the better, the nearer it is to 2."""

    @register(Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def score(self, answers):
        answers["score"] = -numpy.abs(answers["answer"].numpy() - 2.0)
        return answers


def main():
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        run(int(sys.argv[1]) if len(sys.argv) > 1 else 20, folder)


def run(steps, folder):
    ray.init(  # a small Ray of its own: slots are a tenth of a processor here, so a laptop has room
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100 << 20,
        log_to_driver=False,
        _temp_dir=folder,
    )
    pools = ResourcePoolManager(
        {"actor": [4], "judge": [2]}, {"Actor": "actor", "Judge": "judge"}, use_gpu=False, cpus=0.1
    )
    pools.create_resource_pool()
    actor = WorkerGroup(pools.get_resource_pool("Actor"), ClassWithInitArgs(Actor, samples=8))
    judge = WorkerGroup(pools.get_resource_pool("Judge"), ClassWithInitArgs(Judge))
    print(actor.errand({1: "warm up", 3: "look around"}), flush=True)
    prompts = treadle.Batch.of({"prompt": [f"prompt {row}" for row in range(16)]})
    for step in range(steps):
        answers = actor.answer(prompts)  # a future
        samples = judge.score(answers)  # judges fetch answers from the actor's workers
        moved = actor.update(samples)["step"].numpy().mean()  # and these the samples from judges
        bias = actor.move(moved)[0]
        score = samples.get()["score"].numpy().mean()  # only here rows come to this process
        print(f"step {step + 1}: score {score:.3f}, bias {bias:.3f}", flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
