"""A loop of one's own, by hand: GRPO as examples/grpo-demo.yaml has it. With 8 processes and 260 steps, as there, it
ends with the weights of `make demo`, bit for bit. `treadle data sequence --out DATA --noise 0.3 --seed 1` makes the
data.

    python examples/python/05_own_loop.py examples/sequence/policy examples/sequence DATA/train.jsonl [STEPS [RANKS]]"""

import multiprocessing
import os
import sys

import treadle

PROMPTS, SAMPLES, SEED = 32, 8, 1234


def draw(actor, group, prompts, tokenizer, reward, step):
    """The samples of a step, on all ranks: prompts and their answers, with scores and advantages."""
    asked = treadle.draw_prompts(prompts, step, PROMPTS, seed=SEED)
    mine = actor.slice_prompts(asked)  # those of this rank's replica
    answers = actor.generate(mine.batch, treadle.Sampling(n=SAMPLES, max_tokens=22, logprobs_of="scaled"))
    samples = asked.repeat(SAMPLES)
    samples.union(treadle.gather(group, answers if mine.leads else None))
    tokenizer.decode_rows(samples, "ids", "completion")
    reward.score(samples)
    treadle.advantages(samples)
    return samples


def train(rank, ranks, name, policy, texts, data, steps):
    group = treadle.Group.join(name, rank, ranks)
    model = treadle.Model(policy)
    layout = "megatron:tp=2,pp=2" if ranks % 4 == 0 else "megatron:tp=1"
    layouts = [treadle.Layout(model, text, ranks) for text in (layout, "vllm:tp=1")]
    tokenizer, chat, reward = treadle.Tokenizer(texts), treadle.Chat(texts), treadle.Reward("sequence")
    prompts = treadle.read_prompts(data, tokenizer, chat)
    forward = treadle.Forward(micro_batch_size=16)
    loss = treadle.Loss("ppo", clip_low=0.2, clip_high=0.2, clip_c=3)
    with treadle.Actor(*layouts, group, trainer=treadle.TrainerOptions(optimizer=True), kv_bytes=16 << 20) as actor:
        actor.load()
        for step in range(steps):
            samples = draw(actor, group, prompts, tokenizer, reward, step)
            lr = treadle.learning_rate(step, lr=4e-4, steps=steps, style="linear")
            mine = actor.slice(samples, forward)  # the rows of this rank's data parallel coordinate
            figures = actor.update(mine.batch, loss, forward=forward, lr=lr, weight_decay=0.01, clip_grad=1)
            if rank == 0:
                score = samples["score"].numpy().mean()
                print(f"step {step + 1}: score {score:.4f}, norm {figures.grad_norm:.4g}", flush=True)
        digest = actor.weights_digest()
        if rank == 0:
            print(f"weights {digest:016x}")


def main():
    if not 4 <= len(sys.argv) <= 6:
        sys.exit(f"usage: {sys.argv[0]} POLICY TOKENIZER PROMPTS [STEPS [RANKS]]")
    steps, ranks = (int(number) for number in [*sys.argv[4:], *("260", "8")[len(sys.argv) - 4 :]])
    given = (ranks, f"own{os.getpid()}", *sys.argv[1:4], steps)
    processes = [multiprocessing.Process(target=train, args=(rank, *given)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))


if __name__ == "__main__":
    main()
