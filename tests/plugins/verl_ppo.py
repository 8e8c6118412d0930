"""verl's own program for training, from end to end on processors: python -m verl.trainer.main_ppo, with what a user
gives it: prompts, a reward, a model."""

import json
import os
import re
import shutil
import subprocess
import sys

import verl_job

STEPS = 3
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def run(folder, path):
    """GRPO with two trainers of FSDP2 and their own replicas of vLLM. Returns the figures of each step, as verl prints
    them."""
    import datasets

    room = os.path.join(folder, "ppo")
    shutil.rmtree(room, ignore_errors=True)
    shutil.copytree(path, os.path.join(room, "model"))
    _with_template(os.path.join(room, "model", "tokenizer_config.json"))
    rows = [
        {
            "data_source": "letters",
            "prompt": [{"role": "user", "content": 3 * letter}],
            "reward_model": {"style": "rule", "ground_truth": letter},
        }
        for letter in "abcdefghijklmnop"
    ]
    datasets.Dataset.from_list(rows).to_parquet(os.path.join(room, "rows.parquet"))
    words = [f"{key}={value}" for key, value in _given(room).items()]
    done = subprocess.run(
        [sys.executable, "-m", "verl.trainer.main_ppo", *words],
        cwd=room,  # Hydra writes there
        env={**os.environ, **verl_job.ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(done.stdout, flush=True)
    if done.returncode != 0:
        raise AssertionError(f"main_ppo ended with {done.returncode}")
    lines = [line for line in done.stdout.splitlines() if re.search(r"\bstep:\d+ - ", line)]
    return [dict(pair.rsplit(":", 1) for pair in line.split(" - ")) for line in lines]


def _with_template(path):
    with open(path) as file:
        config = json.load(file)
    with open(path, "w") as file:
        json.dump({**config, "chat_template": TEMPLATE}, file)


def _given(room):
    rows = os.path.join(room, "rows.parquet")
    return {
        "algorithm.adv_estimator": "grpo",
        "data.train_files": rows,
        "data.val_files": rows,
        "data.train_batch_size": 4,
        "data.max_prompt_length": 64,
        "data.max_response_length": 64,
        "data.dataloader_num_workers": 0,
        **verl_job.given(os.path.join(room, "model"), "treadle", 1, "fsdp2"),
        "actor_rollout_ref.actor.optim.lr": 1e-2,
        "actor_rollout_ref.rollout.n": 2,
        "actor_rollout_ref.rollout.agent.num_workers": 1,
        "reward.custom_reward_function.path": os.path.join(verl_job.HERE, "verl_reward.py"),
        "reward.custom_reward_function.name": "compute_score",
        "reward.num_workers": 1,
        "trainer.logger": "[console]",
        "trainer.n_gpus_per_node": 2,
        "trainer.nnodes": 1,
        "trainer.total_training_steps": STEPS,
        "trainer.save_freq": -1,
        "trainer.test_freq": -1,
        "trainer.val_before_train": False,
        "trainer.default_local_dir": os.path.join(room, "checkpoints"),
        "trainer.device": "cpu",
        "+ray_kwargs.ray_init.num_gpus": 8,
        "ray_kwargs.ray_init.num_cpus": 64,
    }
