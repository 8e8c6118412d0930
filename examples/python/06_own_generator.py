"""A generator of one's own behind the actor: transformers generates, on the weights that treadle's trainer trains,
where they lie. Answers learn to have 48 tokens. What the generator says of its tokens is compared with the trainer's
log-probabilities: the importance is near 1, as far as bf16 in another order of additions lets it be.

    python examples/python/06_own_generator.py MODEL PROMPTS.jsonl [STEPS]

MODEL: a Hugging Face folder, such as MiniMind2-Small. PROMPTS: lines with a question, such as GSM8K's."""

import sys

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import treadle

PROMPTS, SAMPLES, TOKENS, SEED = 8, 8, 96, 1


class Transformers:
    """A generator as the actor knows it: bind, unbind, generate."""

    def __init__(self, path, tokenizer):
        self.config = AutoConfig.from_pretrained(path)
        self.end = tokenizer.eos
        self.model = None

    def bind(self, tensors):
        weights = tensors.torch()
        if self.model is None:  # addresses never change: the module is made once
            with torch.device("meta"):
                self.model = AutoModelForCausalLM.from_config(self.config, dtype=torch.bfloat16)
            self.model.load_state_dict(weights, strict=False, assign=True)
            self.model.tie_weights()
            self.model.model.rotary_emb = type(self.model.model.rotary_emb)(self.config)
            self.model.eval().requires_grad_(False)

    def unbind(self):
        pass

    def generate(self, prompts, sampling):
        rows = [torch.from_numpy(row.copy()).long() for row in prompts["prompt_ids"]]
        longest = max(len(row) for row in rows)
        ids = torch.stack([torch.nn.functional.pad(row, (longest - len(row), 0), value=self.end) for row in rows])
        mask = torch.stack([torch.arange(longest) >= longest - len(row) for row in rows]).long()
        torch.manual_seed(int(prompts["seed"].numpy()[0]) % 2**31)
        made = self.model.generate(
            ids,
            attention_mask=mask,
            do_sample=True,
            temperature=sampling.temperature,
            top_k=0,
            top_p=1.0,
            num_return_sequences=sampling.n,
            max_new_tokens=sampling.max_tokens,
            eos_token_id=self.end,
            pad_token_id=self.end,
            output_logits=True,
            return_dict_in_generate=True,
        )
        tokens = made.sequences[:, longest:]
        logits = torch.stack(made.logits, 1).float() / sampling.temperature
        log_probs = torch.log_softmax(logits, -1).gather(-1, tokens[..., None])[..., 0]
        counts = [int((row == self.end).nonzero()[0]) + 1 if (row == self.end).any() else len(row) for row in tokens]
        return treadle.Batch.of(
            {
                "ids": [row[:count].int().numpy() for row, count in zip(tokens, counts)],
                "rollout_log_probs": [row[:count].numpy() for row, count in zip(log_probs, counts)],
                "finish": ["stop" if row[count - 1] == self.end else "length" for row, count in zip(tokens, counts)],
            }
        )


def main():
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(f"usage: {sys.argv[0]} MODEL PROMPTS.jsonl [STEPS]")
    path, data, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 20
    model, tokenizer = treadle.Model(path), treadle.Tokenizer(path)
    prompts = treadle.read_prompts(data, tokenizer, treadle.Chat(path), prompt_key="question")
    prompts = prompts.index([row for row, ids in enumerate(prompts["prompt_ids"]) if len(ids) <= 128])
    reward = treadle.Reward("length:target=48")
    train, infer = treadle.Layout(model, "megatron:tp=1", 1), treadle.Layout(model, "hf", 1)
    forward = treadle.Forward(micro_batch_size=8)
    with treadle.Actor(train, infer, generator=Transformers(path, tokenizer), keep="host") as actor:
        actor.load()
        for step in range(steps):
            asked = treadle.draw_prompts(prompts, step, PROMPTS, seed=SEED)
            samples = asked.repeat(SAMPLES)
            samples.union(actor.generate(asked, treadle.Sampling(n=SAMPLES, max_tokens=TOKENS, logprobs_of="scaled")))
            tokenizer.decode_rows(samples, "ids", "completion")
            reward.score(samples)
            treadle.advantages(samples)
            found = actor.log_probs(samples, forward)
            found.rename("log_probs", "old_log_probs")
            samples.union(found)
            old, rollout = (np.concatenate(list(samples[name])) for name in ("old_log_probs", "rollout_log_probs"))
            loss = treadle.Loss("ppo", importance_cap=2.0)
            actor.update(samples, loss, forward=forward, lr=1e-5, clip_grad=1.0)
            importance = np.exp(old - rollout)
            print(
                f"step {step + 1}: reward {samples['score'].numpy().mean():.4f}, importance {importance.mean():.4f}, "
                f"{importance.min():.3f} to {importance.max():.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
