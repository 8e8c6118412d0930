#!/usr/bin/env bash
# A model whose vocabulary has more ids than its tokenizer: those without a token are never drawn in training and tests, have no part in
# log-probabilities, and a line says so; the text of what generate draws is without them.
# ctest: label=mpi timeout=120
. "$TREADLE_SOURCE/tests/found/found.bash"
command -v python3 >/dev/null || { echo "no python3 here: skipped"; exit 0; }
launch=("$MPIEXEC")
case $("$MPIEXEC" --version 2>/dev/null) in *'Open MPI'* | *OpenRTE*) launch+=(--oversubscribe) ;; esac
S=generate_config.sampling_config
"$TREADLE" data sequence --out "$folder/data" --seed 1 >/dev/null
mkdir "$folder/pad"
cp "$TREADLE_SOURCE/examples/sequence/policy/"*.safetensors "$TREADLE_SOURCE/examples/sequence/policy/config.json" "$folder/pad/"
python3 - "$folder" "$TREADLE_SOURCE/examples/sequence/tokenizer_config.json" <<'END'
import json, sys
folder = sys.argv[1]
config = json.load(open(sys.argv[2]))
config['char_ords'] = config['char_ords'][:10]  # without the comma: ids 14 and 15 of 16 are left over
json.dump(config, open(f'{folder}/pad/tokenizer_config.json', 'w'))
for name in 'train', 'test':
    with open(f'{folder}/{name}.jsonl', 'w') as file:
        for i in range(24):
            file.write(json.dumps({'prompt': str(1234 + 37 * i), 'answer': str(i)}) + '\n')
END
cat >"$folder/grpo.yaml" <<END
megatron_training:
  data_path: $folder/train.jsonl
  val_path: $folder/test.jsonl
  train_iters: 3
  global_batch_size: 8
  test_interval: 2
actor_config:
  model: $folder/pad
  save: $folder/run
  micro_batch_size: 4
  lr: 1.0e-3
generate_config:
  sampling_config: {max_tokens: 12, temperature: 3}
rl_config:
  n_samples_per_prompt: 8
  max_prompt_length: 10
  verifier_function: ["length:target=6"]
  use_kl_loss: true
  dump_rollouts: $folder/dump
END
for keys in '' "$S.top_p=0.9" "$S.ignore_eos=true" 'actor_config.tensor_model_parallel_size=2'; do
  rm -rf "$folder/run" "$folder/dump"
  start=()
  [[ $keys != *parallel* ]] || start=("${launch[@]}" -n 2)
  # shellcheck disable=SC2086
  run 0 "${start[@]}" "$TREADLE" train "$folder/grpo.yaml" --threads 1 $keys
  printed "2 ids of the model's vocabulary of 16, 14 to 15, have no token in the tokenizer of $folder/pad: they are never drawn"
  printed '0 of '
  python3 - "$folder/dump" <<'END' || fail "an id without a token, with '$keys'"
import glob, json, math, sys
rows = [json.loads(line) for path in glob.glob(sys.argv[1] + '/*.jsonl') for line in open(path)]
assert all(i < 14 for row in rows for i in row['ids'])
assert all(i < 14 for row in rows for ids in row['kept'] or [] for i in ids)
END
done
# Probabilities are of the others alone: of a response the sum over all 14 next ids is 1. And the gradients of a dump know it.
rm -rf "$folder/run" "$folder/dump"
run 0 "$TREADLE" train "$folder/grpo.yaml" --threads 1 megatron_training.train_iters=1
run 0 "$TREADLE" grad "$folder/pad" --loss grpo --config "$folder/run/config.yaml" --file "$folder/dump/1.jsonl" --json
python3 "$TREADLE_SOURCE/tests/tools/same_norm.py" "$folder/out" "$folder/run/metrics.jsonl" || fail "a dump has other gradients"
# A test draws none either; and a model whose every id has a token is not spoken of.
run 0 "$TREADLE" eval "$folder/pad" --data "$folder/test.jsonl" --reward length:target=6 --n 16 --temperature 5 --threads 1
said '2 ids of the model'"'"'s vocabulary of 16, 14 to 15, have no token'
run 0 "$TREADLE" eval "$TREADLE_SOURCE/examples/sequence/policy" --tokenizer "$TREADLE_SOURCE/examples/sequence" --data "$folder/data/test.jsonl" --reward sequence --threads 1
grep -q 'have no token' "$folder/err" && fail "ids without a token where there are none"
# generate draws them, as the model has them; they are no text.
echo '{"prompt": "12", "n": 40, "max_tokens": 12, "temperature": 5, "seed": 1, "ignore_eos": true}' >"$folder/requests"
run 0 "$TREADLE" generate --model "$folder/pad" --file "$folder/requests" --threads 1
grep -Eq '"token_ids": \[[^]]*\b1[45]\b' "$folder/out" || fail "no id without a token was generated"
