"""How the tests start SGLang, in this process or as a server, and what it answers: tokens and their
log-probabilities."""

import os
import sys

import server

HERE = os.path.dirname(os.path.abspath(__file__))
LOADERS = ["treadle.sglang.load", "sglang_probe.load"]
PROMPTS = [[1, 2, 3, 4, 5], [9, 8, 7]]
sys.path.append(os.path.join(HERE, "sglang_stub"))
SAMPLING = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}


def environment(tp):
    """Of SGLang on processors."""
    path = os.pathsep.join([HERE, os.path.join(HERE, "sglang_stub"), os.environ.get("PYTHONPATH", "")])
    made = {
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_NCCL_SO_PATH": "/nonexistent",
        "PYTHONPATH": path,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
    }
    if tp > 1:
        made["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(str(core % os.cpu_count()) for core in range(tp))
    return made


def in_process(path, tp, loaders=LOADERS, **more):
    """sglang.Engine, with more of its arguments; environment(tp) is set before sglang is imported."""
    import sglang

    return sglang.Engine(
        model_path=path,
        device="cpu",
        attention_backend="torch_native",
        tp_size=tp,
        mem_fraction_static=0.1,
        max_total_tokens=2048,
        context_length=128,
        disable_overlap_schedule=True,
        custom_weight_loader=list(loaders),
        log_level="error",
        **more,
    )


def answers(engine):
    """[[token, log-probability], ...] for each prompt."""
    given = engine.generate(input_ids=PROMPTS, sampling_params=SAMPLING, return_logprob=True)
    return [[[token, logprob] for logprob, token, _ in one["meta_info"]["output_token_logprobs"]] for one in given]


def version(engine):
    return engine.generate(input_ids=[PROMPTS[0]], sampling_params=SAMPLING)[0]["meta_info"]["weight_version"]


class Server(server.Server):
    """A server of SGLang."""

    def __init__(self, path, tp, log, loaders=LOADERS):
        words = [
            sys.executable,
            "-m",
            "sglang.launch_server",
            "--model-path",
            path,
            "--served-model-name",
            "m",
            "--host",
            "127.0.0.1",
            "--port",
            str(server.free_port()),
            "--device",
            "cpu",
            "--attention-backend",
            "torch_native",
            "--tp-size",
            str(tp),
            "--mem-fraction-static",
            "0.1",
            "--max-total-tokens",
            "2048",
            "--context-length",
            "128",
            "--disable-overlap-schedule",
            "--custom-weight-loader",
            *loaders,
        ]
        super().__init__(words, {**os.environ, **environment(tp)}, "health_generate", log)

    def answers(self):
        given = self.post("generate", {"input_ids": PROMPTS, "sampling_params": SAMPLING, "return_logprob": True})
        return [[[token, logprob] for logprob, token, _ in one["meta_info"]["output_token_logprobs"]] for one in given]

    def version(self):
        return self.get("model_info")["weight_version"]
