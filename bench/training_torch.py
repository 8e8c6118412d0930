"""What bench/training asks of PyTorch and transformers: a line of JSON in, {"dtype": "bfloat16", "autocast": false,
"micro": 16}, and {"forward": seconds, "gradients": seconds, "adamw": seconds} out. The first time a step is taken
before it is timed.

"autocast": weights and AdamW in float32, products in that dtype. Else all is of that dtype. "experts": how those of a
layer are computed, "grouped_mm" or "eager". LORA_RANK above 0: peft's adapters of all matrices of layers.

  training_torch.py MODEL_FOLDER THREADS ROWS TOKENS [LORA_RANK]
  training_torch.py --make MODEL_FOLDER CONFIG_JSON"""

import contextlib
import json
import sys
import time

import torch
import transformers

transformers.logging.set_verbosity_error()
if sys.argv[1] == '--make':
    config = transformers.AutoConfig.for_model(**json.loads(sys.argv[3]))
    torch.manual_seed(1)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(sys.argv[2])
    sys.exit()

folder = sys.argv[1]
threads, rows, tokens, rank = (*map(int, sys.argv[2:]), 0)[:4]
TARGETS = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj']
torch.set_num_threads(threads)
ids = torch.tensor([[3 + (i * 37 + j * 101) % 6000 for j in range(tokens)] for i in range(rows)])
trainers = {}


def trainer_of(dtype, autocast, experts):
    key = dtype, autocast, experts
    if key not in trainers:
        weights = torch.float32 if autocast else getattr(torch, dtype)
        more = {'experts_implementation': experts} if experts else {}
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=weights, attn_implementation='sdpa', **more
        ).train()
        if rank:
            import peft

            model = peft.get_peft_model(model, peft.LoraConfig(r=rank, lora_alpha=16, target_modules=TARGETS))
        trained = [p for p in model.parameters() if p.requires_grad]
        trainers[key] = model, torch.optim.AdamW(trained, lr=1e-5, weight_decay=0.1)
    return trainers[key]


def losses(model, job):
    with torch.autocast('cpu', getattr(torch, job['dtype'])) if job['autocast'] else contextlib.nullcontext():
        for part in ids.split(job['micro']):
            yield model(part, labels=part, use_cache=False).loss * (len(part) / rows)


def forward(model, optimizer, job):
    with torch.no_grad():
        for loss in losses(model, job):
            loss.item()


def gradients(model, optimizer, job):
    optimizer.zero_grad()
    for loss in losses(model, job):
        loss.backward()


def adamw(model, optimizer, job):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def run(job):
    seconds = {}
    for part in forward, gradients, adamw:
        begin = time.perf_counter()
        part(*trainer_of(job['dtype'], job['autocast'], job.get('experts')), job)
        seconds[part.__name__] = time.perf_counter() - begin
    return seconds


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
warm = set()
for line in sys.stdin:
    if line not in warm:
        run(json.loads(line))
        warm.add(line)
    print(json.dumps(run(json.loads(line))), flush=True)
