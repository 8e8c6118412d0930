"""How the tests start vLLM, in this process or as a server, and what it answers: tokens and their log-probabilities."""

import importlib.metadata
import os
import sys

import server

HERE = os.path.dirname(os.path.abspath(__file__))
EXTENSIONS = {"plain": "engine_plain.Plain", "packed": "engine_counted.Packed"}
PROMPTS = [[1, 2, 3, 4, 5], [9, 8, 7]]
TOKENS = 8


def environment(tp, **more):
    """Of vLLM on processors, small."""
    made = {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
        "PYTHONPATH": HERE + os.pathsep + os.environ.get("PYTHONPATH", ""),
        "HF_HUB_OFFLINE": "1",
        **more,
    }
    if tp == 1:
        made["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return made


def keeps_version():
    """vLLM 0.27 and later keep the version that finishes an update."""
    return tuple(map(int, importlib.metadata.version("vllm-cpu").split(".")[:2])) >= (0, 27)


def in_process(path, form, tp, backend="treadle", pp=1):
    """vllm.LLM; environment(tp * pp) is set before vllm is imported."""
    from vllm import LLM
    from vllm.config import WeightTransferConfig

    options = {"distributed_executor_backend": "uni"} if tp * pp == 1 else {}
    return LLM(
        model=path,
        enforce_eager=True,
        max_model_len=128,
        max_num_seqs=2,
        tensor_parallel_size=tp,
        pipeline_parallel_size=pp,
        worker_extension_cls=EXTENSIONS[form],
        weight_transfer_config=WeightTransferConfig(backend=backend),
        **options,
    )


def end(llm):
    """Another engine may be made in this process afterwards; the caller drops its references."""
    import gc

    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    llm.llm_engine.engine_core.shutdown()
    del llm
    gc.collect()
    cleanup_dist_env_and_memory()


def answers(llm):
    """[[token, log-probability], ...] for each prompt."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, logprobs=1)
    given = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], sampling, use_tqdm=False)
    return [
        [[token, step[token].logprob] for token, step in zip(one.outputs[0].token_ids, one.outputs[0].logprobs)]
        for one in given
    ]


class Server(server.Server):
    """A server of vLLM, in its development mode."""

    def __init__(self, path, form, tp, log, seqs=2, words=(), python=sys.executable, **more):
        words = [
            python,
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            path,
            "--served-model-name",
            "m",
            "--host",
            "127.0.0.1",
            "--port",
            str(server.free_port()),
            "--enforce-eager",
            "--max-model-len",
            "128",
            "--max-num-seqs",
            str(seqs),
            "--tensor-parallel-size",
            str(tp),
            "--worker-extension-cls",
            EXTENSIONS[form],
            "--weight-transfer-config",
            '{"backend": "treadle"}',
            *words,
        ]
        env = {**os.environ, **environment(2), "VLLM_SERVER_DEV_MODE": "1", **more}
        env.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
        super().__init__(words, env, "health", log)

    def answers(self):
        made = []
        for prompt in PROMPTS:
            body = {
                "model": "m",
                "prompt": prompt,
                "temperature": 0,
                "max_tokens": TOKENS,
                "ignore_eos": True,
                "logprobs": 1,
                "return_token_ids": True,
            }
            choice = self.post("v1/completions", body)["choices"][0]
            made.append([list(pair) for pair in zip(choice["token_ids"], choice["logprobs"]["token_logprobs"])])
        return made

    def version(self):
        return self.get("weight_info")["weight_version"]
