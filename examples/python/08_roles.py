"""PPO by hand on Ray, with the built-in roles: a policy that trains and generates on two workers, a critic on two more.

    pip install 'treadle[ray]'
    export RAY_AUTH_MODE=disabled
    treadle data sequence --out DATA --noise 0.3
    python examples/python/08_roles.py examples/sequence/policy examples/sequence DATA/train.jsonl [STEPS]"""

import sys
import tempfile

import ray

import treadle
from treadle.ray import ActorRollout, ClassWithInitArgs, Critic, ResourcePoolManager, WorkerGroup

PROMPTS, SAMPLES, SEED = 32, 2, 1234


def step(actor, critic, asked, tokenizer, reward):
    """One step: what comes back are figures of both updates."""
    drawn = actor.generate_sequences(asked)  # a future: samples stay with the actor's workers
    values = critic.compute_values(drawn)  # which the critic's fetch them from
    samples = drawn.get()  # advantages are whitened over all of them, here
    samples.union(values.get())
    tokenizer.decode_rows(samples, "ids", "completion")
    reward.score(samples)
    treadle.advantages(samples, "gae")
    futures = []
    for update, lr in ((critic.update_critic, 1e-3), (actor.update_actor, 4e-4)):
        samples.meta["lr"] = lr
        futures.append(update(samples))  # both at the same time
    return samples["score"].numpy().mean(), *(future.get().meta["figures"] for future in futures)


def run(policy, texts, data, steps):
    pools = ResourcePoolManager(
        {"policy": [2], "critic": [2]}, {"ActorRollout": "policy", "Critic": "critic"}, use_gpu=False, cpus=0.3
    )
    pools.create_resource_pool()
    sampling = treadle.Sampling(n=SAMPLES, max_tokens=22, logprobs_of="scaled")
    options = {"trainer": treadle.TrainerOptions(threads=1), "forward": treadle.Forward(micro_batch_size=16)}
    actor_class = ClassWithInitArgs(ActorRollout, policy, "megatron:tp=2", "vllm:tp=1", sampling=sampling, **options)
    actor = WorkerGroup(pools.get_resource_pool("ActorRollout"), actor_class)
    critic = WorkerGroup(
        pools.get_resource_pool("Critic"), ClassWithInitArgs(Critic, policy, "megatron:tp=1", **options)
    )
    actor.init_model(), critic.init_model()
    tokenizer, reward = treadle.Tokenizer(texts), treadle.Reward("sequence")
    prompts = treadle.read_prompts(data, tokenizer, treadle.Chat(texts))
    for number in range(steps):
        asked = treadle.draw_prompts(prompts, number, PROMPTS, seed=SEED)
        score, of_critic, of_actor = step(actor, critic, asked, tokenizer, reward)
        losses = f"value loss {of_critic['vf_loss']:.4g}, norm {of_actor['grad_norm']:.4g}"
        print(f"step {number + 1}: score {score:.4f}, {losses}", flush=True)
    print(f"weights {actor.weights_digest()[0]:016x}")


def main():
    if not 4 <= len(sys.argv) <= 5:
        sys.exit(f"usage: {sys.argv[0]} POLICY TOKENIZER PROMPTS [STEPS]")
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        small = {"num_cpus": 2, "object_store_memory": 100 << 20, "include_dashboard": False}
        ray.init(address="local", log_to_driver=False, _temp_dir=folder, **small)
        run(*sys.argv[1:4], int(sys.argv[4]) if len(sys.argv) > 4 else 20)
        ray.shutdown()


if __name__ == "__main__":
    main()
