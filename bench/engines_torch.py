"""What bench/engines asks of PyTorch and transformers: a line of JSON in, {"what": "generate", "dtype": "bfloat16",
"batch": 16} or {"what": "score", "dtype": "bfloat16"}, and seconds out. The first time each is done once before it is
timed.

  engines_torch.py MODEL_FOLDER THREADS PROMPT NEW TEXTS TOKENS"""

import json
import sys
import time

import torch
import transformers

folder = sys.argv[1]
threads, prompt, new, texts, tokens = map(int, sys.argv[2:])
transformers.logging.set_verbosity_error()
torch.set_num_threads(threads)
torch.set_grad_enabled(False)
models = {}
warm = set()


def model_of(dtype):
    if dtype not in models:
        models[dtype] = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    return models[dtype]


def ids_of(rows, columns):
    return torch.tensor([[3 + (i * 37 + j * 101) % 6000 for j in range(columns)] for i in range(rows)])


def generate(dtype, batch):
    ids = ids_of(batch, prompt)
    out = model_of(dtype).generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        min_new_tokens=new,
        max_new_tokens=new,
        pad_token_id=0,
    )
    assert out.shape[1] == prompt + new


def score(dtype):
    ids = ids_of(texts, tokens)
    logprobs = torch.log_softmax(model_of(dtype)(ids).logits[:, :-1].float(), dim=-1)
    logprobs.gather(-1, ids[:, 1:, None])


def run(job):
    if job['what'] == 'generate':
        generate(job['dtype'], job['batch'])
    else:
        score(job['dtype'])


print(
    json.dumps(
        {
            'torch': torch.__version__,
            'transformers': transformers.__version__,
            'capability': torch.backends.cpu.get_cpu_capability(),
        }
    ),
    flush=True,
)
for line in sys.stdin:
    job = json.loads(line)
    model_of(job['dtype'])
    if line not in warm:
        run(job)
        warm.add(line)
    begin = time.perf_counter()
    run(job)
    print(json.dumps({'seconds': time.perf_counter() - begin}), flush=True)
