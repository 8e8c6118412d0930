#!/usr/bin/env bash
# A config whose dtype is not that of the files: every command that reads the values warns, and says what it takes. ctest: timeout=120
source "$(dirname "$0")/found.bash"
sequence=$TREADLE_SOURCE/examples/sequence
cp -r "$sequence/policy" "$folder/policy"
grep -q '"dtype": "bfloat16"' "$folder/policy/config.json" || grep -q '"torch_dtype": "bfloat16"' "$folder/policy/config.json" ||
  fail "the model of the test is not bf16"
sed -i 's/"bfloat16"/"float16"/' "$folder/policy/config.json"
"$TREADLE" data sequence --out "$folder/data" --seed 1 >/dev/null
head -1 "$folder/data/test.jsonl" >"$folder/prompts.jsonl"
echo '{"ids": [3, 4, 5, 6], "mask": [0, 1, 1, 1]}' >"$folder/rows.jsonl"
echo '{"token_ids": [3, 4, 5, 6]}' >"$folder/texts.jsonl"
cat >"$folder/sft.yaml" <<END
megatron_training: {tokenizer_name_or_path: $sequence, train_iters: 1, global_batch_size: 1, data_path: $folder/rows.jsonl}
actor_config: {model: $folder/policy, save: $folder/sft}
END
cat >"$folder/grpo.yaml" <<END
megatron_training: {tokenizer_name_or_path: $sequence, train_iters: 1, global_batch_size: 1, data_path: $folder/prompts.jsonl}
actor_config: {model: $folder/policy, save: $folder/grpo}
generate_config: {sampling_config: {max_tokens: 4}}
rl_config: {n_samples_per_prompt: 2, max_prompt_length: 12, verifier_function: [sequence]}
END

# warned COMMAND...: it works, and says once that the dtype is another one.
warned() {
  run 0 "$TREADLE" "$@"
  [ "$(grep -cF 'policy/config.json: dtype is fp16, and the files have bf16, which is taken' "$folder/err")" = 1 ] ||
    { cat "$folder/err"; fail "not one warning: $*"; }
}
warned generate --model "$folder/policy" --prompt-ids 3,4 --max-new-tokens 2 --threads 1
warned score --model "$folder/policy" --file "$folder/texts.jsonl" --threads 1
warned grad "$folder/policy" --file "$folder/rows.jsonl" --threads 1
warned switch --model "$folder/policy" --train megatron:tp=1 --infer vllm:tp=1 --cycles 1
warned eval "$folder/policy" --data "$folder/prompts.jsonl" --reward sequence --max-new-tokens 4 --tokenizer "$sequence" --threads 1
warned convert --from hf --to megatron:tp=1 "$folder/policy" "$folder/megatron"
warned sft "$folder/sft.yaml" --threads 1
warned train "$folder/grpo.yaml" --threads 1
