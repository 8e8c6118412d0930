"""A run of TRL's GRPOTrainer for the tests: python trl_job.py WORDS

WORDS: JSON, see train(). Rank 0 writes to `out` what was logged in each step.
how: "treadle" gives vLLM its weights by treadle.trl; "reload" saves them to a folder, from which vLLM loads them anew;
"own" is TRL's own way of colocate mode; "once" is treadle's first update alone; "nan" is treadle's with one NaN, on the
last process, after the second step: `out`.RANK gets what was raised. Processes of one run are told their places by
torchrun's variables."""

import json
import os
import sys

import report

STEPS = 10
SHARED = (
    "A block of vLLM's cache on processors has 128 tokens, and each byte is one: so all prompts begin with a block of "
    "the same, which must not outlive an update. "
)
TIMES = ("step_time", "runtime", "per_second", "flos")  # of the log's keys: not of the weights


def train(how, mode, path, out, form="plain", url="", tp=1, shards=False, dtype="float32", options=None):
    """mode: "server", at url, or "colocate" with tp. form: of engines in these processes, see vllm_engine. shards:
    FSDP2 in place of whole weights on each process."""
    import torch

    torch.set_num_threads(1)
    import datasets
    import trl
    from trl.generation import vllm_generation

    if mode == "colocate" and form == "plain":
        import engine_plain  # noqa: F401
    if how in ("treadle", "once", "nan"):
        import treadle.trl

        treadle.trl.install(**(options or {}))
        treadle.trl.install(**(options or {}))  # twice is fine
        from treadle.trl import _client, _colocated

        report.count("treadle", _client.Client, "init_communicator")
        report.count("treadle", _colocated.Colocated, "send")
    kind = vllm_generation.VLLMGeneration
    if how == "reload":
        kind.sync_weights = reload(os.path.join(os.path.dirname(out), "saved"))
        vllm_generation.VLLMClient.init_communicator = lambda self, device=0: None
    if how == "once":
        kind.sync_weights = once(kind.sync_weights)
    report.count("trl", kind, "sync_weights", "generate")
    report.count("trl", trl.GRPOTrainer, "train")
    config = trl.GRPOConfig(
        output_dir=os.path.dirname(out),
        use_cpu=True,
        bf16=False,
        use_vllm=True,
        vllm_mode=mode,
        vllm_server_base_url=url or None,
        vllm_tensor_parallel_size=tp,
        vllm_gpu_memory_utilization=0.05,
        vllm_max_model_length=256,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        max_steps=STEPS,
        learning_rate=3e-3,
        lr_scheduler_type="constant",
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        gradient_checkpointing=False,
        generation_kwargs={"seed": 7} if mode == "server" else None,
        seed=11,
        model_init_kwargs={"dtype": dtype},
        disable_tqdm=True,
        **({"fsdp": "full_shard", "fsdp_config": {"version": 2, "reshard_after_forward": True}} if shards else {}),
    )
    rows = datasets.Dataset.from_dict(
        {
            "prompt": [SHARED + ends for ends in ("Who are you?", "The capital of China is", "Hello", "One two three")]
            * 8
        }
    )
    trainer = trl.GRPOTrainer(model=path, reward_funcs=reward, args=config, train_dataset=rows)
    if how == "nan":
        spoil(trainer, out)
    trainer.train()
    if trainer.accelerator.is_main_process:
        with open(out, "w") as file:
            json.dump(
                [
                    {key: value for key, value in step.items() if not any(word in key for word in TIMES)}
                    for step in trainer.state.log_history
                ],
                file,
            )


def reward(completions, **_):
    return [float(len(set(text))) + text.count("e") for text in completions]


def reload(saved):
    """VLLMGeneration.sync_weights as a run does it that has no way between trainer and engine but files."""
    import urllib.request

    def sync_weights(self):
        whole = {
            name: one.full_tensor() if hasattr(one, "full_tensor") else one
            for name, one in self.model.state_dict().items()
        }
        if self.accelerator.is_main_process:
            self.model.save_pretrained(saved, state_dict=whole)
        self.accelerator.wait_for_everyone()
        if self.mode == "colocate":
            self.llm.collective_rpc("reload_weights", kwargs={"weights_path": saved})
            self.llm.reset_prefix_cache()
        elif self.accelerator.is_main_process:
            body = json.dumps({"method": "reload_weights", "kwargs": {"weights_path": saved}}).encode()
            request = urllib.request.Request(
                f"{self.server_base_url}/collective_rpc", body, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=120) as answer:
                assert answer.status == 200, answer.status
            self.vllm_client.reset_prefix_cache()

    return sync_weights


def spoil(trainer, out):
    """A NaN in the weights of the last process, once the second step is done; what train() raises then is written and
    the process ends well."""
    import torch
    from transformers import TrainerCallback

    import treadle

    class Spoil(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **_):
            if state.global_step == 2 and trainer.accelerator.process_index == trainer.accelerator.num_processes - 1:
                one = next(iter(trainer.model.parameters()))
                with torch.no_grad():
                    (one.to_local() if hasattr(one, "to_local") else one)[0, 3] = float("nan")

    trainer.add_callback(Spoil())
    inner = trainer.train

    def train():
        try:
            inner()
        except treadle.Error as error:
            with open(f"{out}.{trainer.accelerator.process_index}", "w") as file:
                json.dump([type(error).__name__, str(error)], file)

    trainer.train = train


def once(sync):
    calls = []

    def sync_weights(self):
        calls.append(1)
        if len(calls) == 1:
            sync(self)

    return sync_weights


if __name__ == "__main__":
    train(**json.loads(sys.argv[1]))
