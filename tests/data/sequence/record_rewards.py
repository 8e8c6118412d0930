"""Records what verl's test of arithmetic sequences gives to answers, token by token.

  python3 record_rewards.py VERL

VERL: a checkout of verl (v0.2) with tests/e2e. Needs numpy and transformers (4.47.1). Runs verl's own reward function,
task and tokenizer, with numpy in place of torch. Writes rewards.tsv beside this file: prompt, answer, response and the
rewards of its tokens. A response is written by letters.
"""

import ast
import importlib.util
import json
import pathlib
import random
import sys
import types

import numpy

root = pathlib.Path(sys.argv[1]) / "tests/e2e"
here = pathlib.Path(__file__).parent
PROMPT, RESPONSE = 16, 32


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, root / path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


for package in ("tests", "tests.e2e", "tests.e2e.envs", "tests.e2e.envs.digit_completion"):
    sys.modules[package] = types.ModuleType(package)
load("tests.e2e.envs.digit_completion.task", "envs/digit_completion/task.py")
characters = load("tokenizer", "envs/digit_completion/tokenizer.py").CharTokenizer
settings = json.loads((root / "arithmetic_sequence/model/tokenizer_config.json").read_text())
tokenizer = characters([chr(c) for c in settings["char_ords"]], settings["model_max_length"], settings["chat_template"])


class Array(numpy.ndarray):
    device = "cpu"


def row(values):
    return numpy.array([values]).view(Array)


class Samples:
    def __init__(self, columns):
        self.batch = type("Columns", (dict,), {"batch_size": [1]})(columns)

    def __getitem__(self, place):
        return types.SimpleNamespace(batch={name: column[place] for name, column in self.batch.items()})


torch = types.SimpleNamespace(
    float32=numpy.float32,
    zeros_like=lambda like, dtype: numpy.zeros(like.shape, dtype).view(Array),
    as_tensor=lambda values, dtype, device: numpy.asarray(values, dtype),
)
trainer = ast.parse((root / "arithmetic_sequence/rl/main_trainer.py").read_text())
[maker] = [node for node in trainer.body if getattr(node, "name", None) == "make_reward_function"]
for node in ast.walk(maker):
    if isinstance(node, ast.arg):
        node.annotation = None
names = {"torch": torch}
exec(compile(ast.Module([maker], []), "main_trainer.py", "exec"), names)
function = names["make_reward_function"](tokenizer, 0)


def rewards_of(prompt, response):
    prompt, response = (tokenizer.convert_tokens_to_ids(list(text)) for text in (prompt + "S", response))
    before, after = PROMPT - len(prompt), RESPONSE - len(response)
    pad = tokenizer.pad_token_id
    rewards = function(
        Samples(
            {
                "prompts": row([pad] * before + prompt),
                "responses": row(response + [pad] * after),
                "attention_mask": row([0] * before + [1] * (len(prompt) + len(response)) + [0] * after),
            }
        )
    )
    return [float(reward) for reward in rewards[0][: len(response)]]


def answer_to(rng, right):
    """Some of what is right, perhaps followed by what is not, and mostly ended."""
    text = right[: rng.randrange(len(right) + 1)] if rng.random() < 0.6 else right
    text += "".join(rng.choice("SPU0123456789,:") for _ in range(rng.choice((0, 0, 0, 1, 2, 20))))
    return text[: RESPONSE - 1] + ("E" if rng.random() < 0.9 or not text else "")


rng = random.Random(1)
rows = [line.rstrip("\n").split("\t") for line in open(here / "verl.tsv")]
with open(here / "rewards.tsv", "w") as out:
    for _ in range(200):
        _, prompt, answer = rng.choice(rows)
        response = answer_to(rng, answer)
        print(prompt, answer, response, " ".join(f"{r:.7g}" for r in rewards_of(prompt, response)), sep="\t", file=out)
