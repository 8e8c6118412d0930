#!/usr/bin/env bash
# A tokenizer that lies in the model's folder and cannot be read is not the same as none: train and sft refuse it, generate and score say it. Without any, rewards that judge
# texts are refused, since each completion would be an empty one; token ids, and rewards of lengths, need none.
source "$TREADLE_SOURCE/tests/found/found.bash"
policy=$TREADLE_SOURCE/examples/sequence/policy
cd "$folder"
echo '{"prompt_token_ids": [4, 5, 6], "answer": "3"}' >prompts.jsonl
echo '{"ids": [4, 5, 6], "mask": [0, 1, 1]}' >rows.jsonl
echo '{"token_ids": [4, 5, 6]}' >texts.jsonl
model() {
  rm -rf model run-1
  cp -r "$policy" model
}
common=(megatron_training.tokenizer_name_or_path= megatron_training.train_iters=1 megatron_training.global_batch_size=1 actor_config.model=model actor_config.save=run-1 --threads 1)
train() {
  "$TREADLE" train "$TREADLE_SOURCE/examples/grpo-demo.yaml" megatron_training.data_path=prompts.jsonl megatron_training.val_path= megatron_training.test_interval=0 \
    actor_config.micro_batch_size=4 actor_config.tensor_model_parallel_size=1 actor_config.pipeline_model_parallel_size=1 rl_config.n_samples_per_prompt=4 "${common[@]}" "$@"
}
sft() { "$TREADLE" sft "$TREADLE_SOURCE/examples/sft-policy.yaml" megatron_training.data_path=rows.jsonl actor_config.micro_batch_size=1 "${common[@]}" "$@"; }
damaged() { # NAME TEXT WORDS
  model
  rm model/tokenizer_config.json
  printf "$2" >"model/$1"
  for command in train sft; do
    refused 'there is a tokenizer, and it cannot be read' $command
    said "$3"
    [ ! -e run-1 ] || fail "$command: there is a run"
  done
  run 0 "$TREADLE" generate --model model --prompt-ids 4,5 --max-new-tokens 1
  said 'no tokenizer: '
  said "$3"
  run 0 "$TREADLE" score --model model --file texts.jsonl
  said "$3"
}
damaged tokenizer_config.json '{' 'tokenizer_config.json: line'
damaged tokenizer_config.json '{"char_ords": 5}' char_ords
damaged tokenizer.json '{}' 'tokenizer.json: model'
damaged tokenizer.json '' tokenizer.json
damaged vocab.json '{"a": 0}' 'vocab.json, but no merges.txt'
damaged merges.txt '#version: 0.2\n' 'merges.txt, but no vocab.json'

# None at all.
model
rm model/tokenizer_config.json
run 0 sft
rm -r run-1
for reward in sequence gsm8k math regex:a 'command'; do
  refused "$reward judges texts, and there is no tokenizer" train "rl_config.verifier_function=[$reward]" rl_config.verifier_command=cat
  [ ! -e run-1 ] || fail "there is a run"
done
# Where a text needs one, the option or the key that names it is said.
cp prompts.jsonl ids-prompts.jsonl
echo '{"prompt": "1,2", "answer": "3"}' >prompts.jsonl
echo '{"text": "1,2"}' >rows.jsonl
refused "'prompt' needs a tokenizer, and there is none; megatron_training.tokenizer_name_or_path names one" train 'rl_config.verifier_function=[length:target=5]'
refused "line 1: a text needs a tokenizer; the model's folder has none, and megatron_training.tokenizer_name_or_path names none" sft
for command in "generate --model model --prompt 1,2" "grad model --file rows.jsonl" "tokenize --model model --text 1,2"; do
  refused "nor char_ords in tokenizer_config.json; --tokenizer FILE names another" "$TREADLE" $command
done
refused "nor char_ords in tokenizer_config.json; tokenizer, --tokenizer, names another" "$TREADLE" eval model --data prompts.jsonl --reward sequence
mv ids-prompts.jsonl prompts.jsonl
[ ! -e run-1 ] || fail "there is a run"
run 0 train 'rl_config.verifier_function=[length:target=5]'
grep -q '"score": 0\.[0-9]' run-1/samples.jsonl || fail "lengths have no scores"
run 0 "$TREADLE" generate --model model --prompt-ids 4,5 --max-new-tokens 1
if grep -q 'no tokenizer' err; then fail "a tokenizer that nobody has is missed"; fi
