#!/usr/bin/env bash
# Memory is foretold for the worst step: an epoch may end inside a micro batch, and a long row is then in it twice; there may be fewer rows than a
# micro batch takes; an interleaved pipeline keeps more of an odd number of micro batches than of an even one; the longest prompt with the
# longest response must fit into the KV cache.
# ctest: label=mpi timeout=300
. "$(dirname "$0")/found.bash"
policy=$TREADLE_SOURCE/examples/sequence
cat >"$folder/run.yaml" <<END
megatron_training: {tokenizer_name_or_path: $policy, data_path: x, train_iters: 12, global_batch_size: 16}
actor_config: {model: $policy/policy/config.json, save: $folder/run, micro_batch_size: 16, lr: 1.0e-3}
END
# rows SHORT LONG LENGTH: this many rows of 2 tokens, and of LENGTH
rows() {
  python3 - "$@" >"$folder/rows.jsonl" <<'END'
import json, sys
short, long, length = map(int, sys.argv[1:])
for _ in range(short): print(json.dumps({"ids": [3, 3], "mask": [0, 1]}))
for _ in range(long): print(json.dumps({"ids": [3] * length, "mask": [0] + [1] * (length - 1)}))
END
}
sft() {
  rm -rf "$folder/run"
  run 0 "$TREADLE" sft "$folder/run.yaml" "megatron_training.data_path=$folder/rows.jsonl" --threads 1 "$@"
}

rows 19 1 300
sft                                                # 20 rows: epochs end within a step
rows 2 1 300
sft                                                # 3 rows: each is in a micro batch 5 times
rows 1 0 0
sft                                                # a row alone
rows 23 2 200
sft actor_config.micro_batch_size=4 megatron_training.train_iters=16

# Packed by tokens, steps have 5, 6, 7 .. micro batches.
rows 25 8 20
rm -rf "$folder/run"
sed 's/micro_batch_size: 16/max_tokens_per_micro: 21, pipeline_model_parallel_size: 2, num_layers_per_virtual_pipeline_stage: 1/' \
  "$folder/run.yaml" >"$folder/packed.yaml"
run 0 mpirun -n 2 "$TREADLE" sft "$folder/packed.yaml" "megatron_training.data_path=$folder/rows.jsonl" --threads 1

# The long prompt comes late: it is asked for at the start, and a plan, which has no prompts, asks for the longest there may be.
{
  for _ in $(seq 40); do echo '{"prompt": "1,2", "answer": "3"}'; done
  echo '{"prompt": "1,2,3,4,5,6,7,8,9,1,2,3,4", "answer": "3"}'
} >"$folder/prompts.jsonl"
cat >"$folder/rl.yaml" <<END
megatron_training: {tokenizer_name_or_path: $policy, data_path: $folder/prompts.jsonl, train_iters: 1, global_batch_size: 2}
actor_config: {model: $policy/policy, save: $folder/rl, lr: 0, micro_batch_size: 2}
generate_config: {kv_memory: 40KiB, max_num_batched_tokens: 8192, sampling_config: {max_tokens: 22}}
rl_config: {n_samples_per_prompt: 2, max_prompt_length: 40, verifier_function: [sequence]}
END
refused 'a prompt of 26 tokens and a response of 22' "$TREADLE" train "$folder/rl.yaml" --threads 1
said 'are 3 blocks of the KV cache, and rank 0 has room for 2'
run 1 "$TREADLE" train "$folder/rl.yaml" --threads 1 --plan # a plan that does not fit
said 'a prompt of 40 tokens and a response of 22'
run 0 "$TREADLE" train "$folder/rl.yaml" --threads 1 generate_config.kv_memory=96KiB
