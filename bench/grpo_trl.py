"""What bench/grpo asks of TRL: a line of JSON in, {"dtype": "bfloat16", "autocast": false, "micro": 64}, and {"step":
seconds, "gen": seconds, "tokens": of prompts and completions} out. A way's first step is taken before one is timed.

"autocast": weights and AdamW in float32, products in that dtype. Else all is of that dtype.

  grpo_trl.py MODEL_FOLDER THREADS PROMPTS PROMPT_TOKENS SAMPLES NEW_TOKENS WORK"""

import json
import os
import sys
import time

os.environ['HF_HUB_OFFLINE'] = '1'

import datasets
import torch
import transformers
import trl

folder, work = sys.argv[1], sys.argv[7]
threads, prompts, prompt_tokens, samples, new_tokens = map(int, sys.argv[2:7])
torch.set_num_threads(threads)
for library in transformers, datasets:
    library.utils.logging.set_verbosity_error()
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)


def texts():
    """Prompts of exactly this many tokens: one token again and again, where the tokenizer joins none of them."""
    found = []
    for token in range(300, len(tokenizer)):
        text = tokenizer.decode([token]) * prompt_tokens
        if tokenizer(text)['input_ids'] == [token] * prompt_tokens:
            found.append(text)
        if len(found) == prompts:
            return found
    sys.exit('the tokenizer has no prompts of exactly this many tokens')


class Times(transformers.TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        self.begin = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self.step = time.perf_counter() - self.begin


def reward(completions, **kwargs):
    return [float('e' in text) for text in completions]


def trainer_of(job, steps):
    weights = torch.float32 if job['autocast'] else getattr(torch, job['dtype'])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=weights, attn_implementation='sdpa')
    model.generation_config.update(min_new_tokens=new_tokens, max_new_tokens=new_tokens)
    rows = prompts * samples
    arguments = trl.GRPOConfig(
        output_dir=work,
        use_cpu=True,
        bf16=job['autocast'],
        fp16=False,
        max_steps=steps,
        per_device_train_batch_size=job['micro'],
        gradient_accumulation_steps=rows // job['micro'],
        num_generations=samples,
        max_completion_length=new_tokens,
        beta=0.04,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        generation_kwargs={'min_new_tokens': new_tokens},
        loss_type='grpo',
        learning_rate=1e-6,
        lr_scheduler_type='constant',
        report_to=[],
        save_strategy='no',
        logging_strategy='steps',
        logging_steps=1,
        dataloader_pin_memory=False,
        disable_tqdm=True,
    )
    return trl.GRPOTrainer(
        model=model, args=arguments, processing_class=tokenizer, reward_funcs=reward, train_dataset=data
    )


def run(job):
    times = Times()
    trainer = trainer_of(job, 2)
    trainer.add_callback(times)
    generate, spent = trainer.model.generate, []

    def timed(*args, **kwargs):
        begin = time.perf_counter()
        out = generate(*args, **kwargs)
        spent.append((time.perf_counter() - begin, out.numel()))
        return out

    trainer.model.generate = timed
    trainer.train()
    log = [entry for entry in trainer.state.log_history if 'num_tokens' in entry]
    tokens = log[-1]['num_tokens'] - log[-2]['num_tokens']
    return {'step': times.step, 'gen': spent[-1][0] if spent else None, 'tokens': tokens}


data = datasets.Dataset.from_dict({'prompt': texts()})
print(
    json.dumps(
        {
            'torch': torch.__version__,
            'transformers': transformers.__version__,
            'trl': trl.__version__,
            'prompts': [tokenizer(text)['input_ids'] for text in data['prompt']],
            'capability': torch.backends.cpu.get_cpu_capability(),
        }
    ),
    flush=True,
)
out = os.fdopen(os.dup(1), 'w')
os.dup2(2, 1)  # what trainers print
for line in sys.stdin:
    print(json.dumps(run(json.loads(line))), file=out, flush=True)
