#!/usr/bin/env bash
# Memory is foretold for the worst step: an epoch may end inside a micro batch, and a long row is then in it twice; there may be fewer rows than a
# micro batch takes; an interleaved pipeline keeps more of an odd number of micro batches than of an even one.
# ctest: label=mpi timeout=300
. "$(dirname "$0")/found.bash"
policy=$TREADLE_SOURCE/examples/sequence
cat >"$folder/run.yaml" <<END
megatron_training: {tokenizer_name_or_path: $policy, data_path: x, train_iters: 12, global_batch_size: 16}
actor_config: {model: $policy/policy/config.json, save: $folder/run, micro_batch_size: 16, lr: 1.0e-3}
END
# rows SHORT LONG LENGTH: so many rows of 2 tokens, and of LENGTH
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
