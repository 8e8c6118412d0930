#!/usr/bin/env bash
# treadle train and eval: the same losses, samples and weights in several layouts, on one rank and on four; a run that stops and goes on; the plan
# and the peak; dumped samples; refusals by key and line.
# TREADLE_STEPS=N: in runs of N steps, too.
# ctest: label=mpi timeout=600
set -euo pipefail
source "$TREADLE_SOURCE/tests/cli/ranks.sh"
source "$TREADLE_SOURCE/tests/cli/listed.sh"

"$TREADLE" data sequence --out "$folder/data" --seed 1 --noise 0.3 >/dev/null
cat >"$folder/grpo.yaml" <<END
defaults: [_self_]
trainer: {data_folder: $folder/data}
megatron_training:
  tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence
  data_path: \${trainer.data_folder}/train.jsonl
  val_path: \${trainer.data_folder}/test.jsonl
  train_iters: 3
  global_batch_size: 4
  save_interval: 1
  max_ckpt_to_keep: 0
actor_config:
  model: $TREADLE_SOURCE/examples/sequence/policy
  save: $folder/run
  micro_batch_size: 4
  lr: 1.0e-3
generate_config:
  sampling_config: {max_tokens: 12}
rl_config:
  n_samples_per_prompt: 4
  max_prompt_length: 10
  mini_batch_size: 2
  use_kl_loss: true
  init_kl_coef: 0.05
  verifier_function: [sequence]
  dump_rollouts: $folder/dump
END

# run NAME RANKS KEYS: its figures are NAME, its samples NAME.dump
run() {
  local name=$1 ranks=$2
  shift 2
  rm -rf "$folder/run" "$folder/dump"
  "${launch[@]}" -n "$ranks" "$TREADLE" train "$folder/grpo.yaml" "$@" --threads 1 --json >"$folder/$name" 2>"$folder/$name.err" ||
    { cat "$folder/$name.err"; fail "$name: failed"; }
  mv "$folder/dump" "$folder/$name.dump"
  [ "$(value "$name" logprob_differing)" = 0 ] || fail "$name: log-probabilities differ"
  [ "$(value "$name" logprob_tokens)" -gt 100 ] || fail "$name: nothing was compared"
  [ "$(value "$name" peak_bytes)" = "$(value "$name" peak_predicted_bytes)" ] || fail "$name: the peak is not what was foreseen"
}
run one 1
for number in 1 2 3; do [ "$(wc -l <"$folder/one.dump/$number.jsonl")" = 16 ] || fail "step $number has not 16 samples"; done
first=$(head -1 "$folder/run/metrics.jsonl")
second=$(sed -n 2p "$folder/run/metrics.jsonl")
[[ $first == *'"step":0'*'val-core/sequence/reward/mean@1'*'"timing_s/testing":'* ]] || fail "no test before the first step: $first"
[[ $second == *'"actor/kl_loss":'*'"memory/reference_peak":'* ]] || fail "no figures: $second"
listed "$folder/run/metrics.jsonl" actor/kl_loss timing_s/ref timing_s/save_checkpoint val-core/SOURCE/reward/maj@N/mean
[ -f "$folder/run/global_step_3/actor/huggingface/model.safetensors" ] || fail "no model"

tp2pp2=(actor_config.tensor_model_parallel_size=2 actor_config.pipeline_model_parallel_size=2)
tp4=(actor_config.tensor_model_parallel_size=4 generate_config.infer_tensor_parallel_size=2 generate_config.offload_train_param=false)
# same ONE OTHER: one run as the other, to the bit
same() {
  for key in weights_digest losses_digest; do
    [ "$(value "$1" $key)" = "$(value "$2" $key)" ] || fail "$2 has another $key than $1"
  done
  diff -r "$folder/$1.dump" "$folder/$2.dump" >/dev/null || fail "$2 has other samples than $1"
}
run tp2pp2 4 "${tp2pp2[@]}"
run tp4 4 "${tp4[@]}"
same one tp2pp2
same one tp4
if [ "${TREADLE_STEPS:-0}" -gt 0 ]; then # longer runs
  long=("megatron_training.train_iters=$TREADLE_STEPS" megatron_training.save_interval=0)
  run long_one 1 "${long[@]}"
  run long_tp2pp2 4 "${long[@]}" "${tp2pp2[@]}"
  run long_tp4 4 "${long[@]}" "${tp4[@]}"
  same long_one long_tp2pp2
  same long_one long_tp4
  echo "$TREADLE_STEPS steps: weights $(value long_one weights_digest), losses $(value long_one losses_digest), in three layouts"
fi
run other 1 megatron_training.seed=7
[ "$(value one losses_digest)" != "$(value other losses_digest)" ] || fail "the seed changes nothing"

# In fast mode both sides may have other bits, which are planted here: it is seen, and is not an error.
rm -rf "$folder/run"
"${launch[@]}" -n 2 "$TREADLE_BUILD/planted_other_bits" train "$folder/grpo.yaml" actor_config.exact=false actor_config.tensor_model_parallel_size=2 --threads 1 --json \
  >"$folder/fast" 2>"$folder/err" || { cat "$folder/err"; fail "fast mode: failed"; }
[ "$(value fast logprob_differing)" -gt 0 ] || fail "fast mode has the same bits"

# In the first mini batch of a run the policy is its reference, and nothing is clipped.
run whole 1 rl_config.mini_batch_size=4 megatron_training.train_iters=1
grep -q '"actor/ppo_kl":0.0,\|"actor/ppo_kl":-0.0,' "$folder/run/metrics.jsonl" || fail "ppo_kl is not 0"
grep -q '"actor/kl_loss":0.0,' "$folder/run/metrics.jsonl" || fail "the KL of step 1 is not 0"
grep -q '"actor/pg_clipfrac":0.0,' "$folder/run/metrics.jsonl" || fail "something is clipped"

# A run goes on.
run stopped 1 megatron_training.train_iters=3
rm -r "$folder/run/global_step_3" "$folder/run/global_step_2"
"$TREADLE" train "$folder/grpo.yaml" --threads 1 --resume --json >"$folder/resumed" 2>"$folder/err" || { cat "$folder/err"; fail "no resuming"; }
[ "$(value resumed steps)" = 2 ] || fail "resuming took $(value resumed steps) steps"
[ "$(value resumed losses_digest)" = "$(value one losses_digest)" ] || fail "resumed, the losses are others"
[ "$(value resumed weights_digest)" = "$(value one weights_digest)" ] || fail "resumed, the weights are others"

# Ctrl-C: the step at hand is finished and saved.
rm -rf "$folder/run"
touch "$folder/lines"
status=0
"$TREADLE" train "$folder/grpo.yaml" --threads 1 megatron_training.train_iters=5000 megatron_training.save_interval=0 >"$folder/lines" 2>"$folder/err" &
process=$!
until grep -q '^step 2' "$folder/lines"; do kill -0 $process; done
kill -INT $process
wait $process || status=$?
[ $status = 130 ] || fail "a run that was stopped ends with $status"
last=$(sed -n 's/^step \([0-9]*\) of.*/\1/p' "$folder/lines" | tail -1)
[ "$(cat "$folder/run/latest_checkpointed_iteration.txt")" = "$last" ] || fail "stopped behind step $last, and that is not what was saved"

# The plan, and a device that is too small.
"$TREADLE" train --plan "$folder/grpo.yaml" --ranks 4 actor_config.tensor_model_parallel_size=4 --json >"$folder/plan"
grep -q '"fits": true' "$folder/plan" || fail "it does not fit"
status=0
"$TREADLE" train --plan "$folder/grpo.yaml" --ranks 1 generate_config.device_memory=8MiB --json >"$folder/plan" 2>"$folder/err" || status=$?
[ $status = 1 ] || fail "a plan that does not fit: status $status"
grep -q '"fits": false' "$folder/plan" || fail "it fits"
grep -q 'device_memory.*would do with' "$folder/err" || { cat "$folder/err"; fail "no advice"; }
# advice WORDS NOT KEYS...: what is the most, what has no room, and what would help: only keys that are not so already
advice() {
  local words=$1 not=$2
  shift 2
  "$TREADLE" train --plan "$folder/grpo.yaml" "$@" >"$folder/plan" 2>"$folder/err" && fail "it fits: $*"
  grep -q -- "$words" "$folder/err" || { cat "$folder/err"; fail "no '$words' for: $*"; }
  if grep -q -- "$not" "$folder/err"; then cat "$folder/err"; fail "'$not' for: $*"; fi
}
advice 'rank 0 needs [0-9]*: mode infer has [0-9]*: infer parameters [0-9]*, KV cache 16777216, .*; mode train has .*; [0-9]* KV blocks have room, and generate_config.kv_memory (default) wants 512; less would do with generate_config.kv_memory=65536 ([0-9]* less)' \
  'offload_train\|recompute' generate_config.device_memory=8MiB
advice 'not one KV block, 32768 bytes, has room beside the rest' 'offload_train' generate_config.device_memory=4MiB
small=(generate_config.kv_memory=64KiB generate_config.max_num_seqs=1 generate_config.max_num_batched_tokens=16)
advice 'mode train has .*work memory of training [0-9]*; a micro batch of 16 samples has no room .*recompute_granularity=full ([0-9]* less), actor_config.micro_batch_size=1 ([0-9]* less), more ranks' \
  'mode infer' "${small[@]}" generate_config.device_memory=20MiB rl_config.mini_batch_size=4 actor_config.micro_batch_size=16
advice 'it is too much without a micro batch' 'recompute_granularity' "${small[@]}" generate_config.device_memory=8MiB megatron_training.recompute_granularity=full
# A flag that is off is named, by what it brings.
big=(generate_config.offload_train_param=false generate_config.offload_train_optimizer=false)
advice 'mode infer has .*offload_train_param=true (1[0-9]* less), generate_config.offload_train_optimizer=true (' 'offload_train_grad' generate_config.device_memory=24MiB "${big[@]}"
grep -q 'rank 0: peak .*, most in mode infer; [0-9]* KV blocks' "$folder/plan" || { cat "$folder/plan"; fail "the plan does not say which mode has the most"; }

# ends STATUS WORDS KEYS...: 2 is an input that is refused, 1 a failure while running
ends() {
  local wanted=$1 words=$2 status=0
  shift 2
  rm -rf "$folder/run"
  "$TREADLE" train "$folder/grpo.yaml" "$@" >"$folder/out" 2>"$folder/err" || status=$?
  [ $status = "$wanted" ] || { cat "$folder/err"; fail "status $status for: $*"; }
  grep -q -- "$words" "$folder/err" || { cat "$folder/err"; fail "no '$words' for: $*"; }
}
refused() { ends 2 "$@"; }
fails() { ends 1 "$@"; }
refused "^treadle train: --ranks 4 is of --plan: say mpirun -n 4 treadle train $folder/grpo.yaml to train on that many, or add --plan" --ranks 4
refused 'mini_batch_size (override), 3, does not divide' rl_config.mini_batch_size=3
fails 'a sample of a mini batch has a mean ratio of 1, more than rl_config.early_stop_imp_ratio (override), 0.5; RLinf drops' megatron_training.val_path=null \
  rl_config.early_stop_imp_ratio=0.5
refused 'max_model_len (override) is 20, less than prompts of 10 tokens, .*, and responses of 12, .*max_tokens' generate_config.max_model_len=20
refused 'overlong_buffer (override) is 300, more than .*max_tokens (override), which is 190' rl_config.overlong_buffer=300 rl_config.overlong_buffer_enable=true \
  generate_config.sampling_config.max_tokens=null megatron_training.seq_length=200
refused 'n_samples_per_prompt (override) is 1.*2 at least' rl_config.n_samples_per_prompt=1 rl_config.mini_batch_size=4
refused 'temperature (override) is 0' generate_config.sampling_config.temperature=0
refused "did you mean 'clip_ratio'" rl_config.clip_ration=1
refused "ref_config.model (override): $folder/nothing: there is no such" ref_config.model="$folder/nothing"
refused "data_path (override): $folder/data.* is a folder" megatron_training.data_path="$folder/data"
refused "val_path (override): $folder/data.* is a folder" megatron_training.val_path="$folder/data"
refused 'train.jsonl: line 1: the prompt has' rl_config.max_prompt_length=3
refused 'all prompts are left out: [1-9][0-9]* of more than 3 tokens' rl_config.max_prompt_length=3 rl_config.too_long=leave_out
rm -rf "$folder/run"
{ head -20 "$folder/data/train.jsonl"; echo '{"prompt": "1,2,3,4,5:9,6", "answer": "7"}'; } >"$folder/long.jsonl"
"$TREADLE" train "$folder/grpo.yaml" --threads 1 "megatron_training.data_path=$folder/long.jsonl" rl_config.too_long=leave_out megatron_training.train_iters=1 >"$folder/out" 2>"$folder/err" || { cat "$folder/err"; fail "prompts that are left out"; }
grep -q 'data_path (override): 1 of 21 prompts has more than 10 tokens, and is left out (rl_config.too_long (override))' "$folder/out" || { cat "$folder/out"; fail "no word of prompts that are left out"; }
# Data with null for an answer, as MATH's: refused, or left out and counted.
{ head -20 "$folder/data/train.jsonl"; echo '{"prompt": "1,2:9,6", "answer": null}'; } >"$folder/null.jsonl"
refused "null.jsonl: line 21: has no 'answer' (rl_config.answer_key); rl_config.no_answer=leave_out leaves" "megatron_training.data_path=$folder/null.jsonl"
"$TREADLE" train "$folder/grpo.yaml" --threads 1 "megatron_training.data_path=$folder/null.jsonl" rl_config.no_answer=leave_out megatron_training.train_iters=1 >"$folder/out" 2>"$folder/err" || { cat "$folder/err"; fail "prompts without answers that are left out"; }
grep -q 'data_path (override): 1 of 21 prompts has no answer, and is left out (rl_config.no_answer (override))' "$folder/out" || { cat "$folder/out"; fail "no word of prompts without answers"; }
refused "train.jsonl: line 1: has no 'question' (rl_config.prompt_key)" rl_config.prompt_key=question
refused 'verifier_function.*nothing' 'rl_config.verifier_function=[nothing]'
refused 'needs rl_config.verifier_command' 'rl_config.verifier_function=[command]'
# bad_command WHY COMMAND
bad_command() { fails "command '.*': $1" 'rl_config.verifier_function=[command]' "rl_config.verifier_command=$2" megatron_training.val_path=null; }
bad_command 'ended with status 3, with 16 samples to answer' 'exit 3'
bad_command 'ended by signal 9, with 16 samples to answer' 'kill -9 $$'
bad_command "wrote 'nonsense': it is not a JSON object" 'cat >/dev/null & sleep 1; echo nonsense; wait'
bad_command "wrote '{.*\"1-0-0\".*}': this sample has its score already" 'while read l; do echo "{\"id\": \"1-0-0\", \"score\": 1}"; done'
bad_command "wrote '{.*\"9-9-9\".*}': it was given no sample with this id" 'while read l; do echo "{\"id\": \"9-9-9\", \"score\": 1}"; done'
bad_command "wrote '{.*NaN}': its score is not a finite number" "sed -u 's/.*\"id\": \"\([^\"]*\)\".*/{\"id\": \"\1\", \"score\": NaN}/'"
cp -r "$TREADLE_SOURCE/examples/sequence/policy" "$folder/nan"
printf '\300\177' | dd of="$folder/nan/model.safetensors" bs=1 seek=8000 conv=notrunc 2>/dev/null
refused "weights: element .* of '.*' is infinite or no number" "actor_config.model=$folder/nan"
refused "weights of the reference: element .* of '.*' is infinite or no number" "ref_config.model=$folder/nan"
fails 'filter_groups_max_batches (default), 1, batches of 4 prompts, 0 groups of the 4' 'rl_config.verifier_function=[length:target=100000]' \
  rl_config.filter_groups_enable=true megatron_training.val_path=null
refused 'device_memory (override) .* leaves .* bytes, and rank 0 needs' generate_config.device_memory=4MiB
fails "command 'sed .*: wrote '{.*\"2-0-0\".*: its score is not a finite number" megatron_training.val_path=null 'rl_config.verifier_function=[command]' \
  "rl_config.verifier_command=sed -u '/\"2-/q3; s/.*\"id\": \"\([^\"]*\)\".*/{\"id\": \"\1\", \"score\": 1}/'"
[ "$(cat "$folder/run/latest_checkpointed_iteration.txt")" = 1 ] || fail "the last checkpoint is not that of step 1"
"$TREADLE" train "$folder/grpo.yaml" --threads 1 --resume megatron_training.val_path=null --json >"$folder/resumed" 2>"$folder/err" ||
  { cat "$folder/err"; fail "a run whose rewards failed does not go on"; }
[ "$(value resumed steps)" = 2 ] || fail "it goes on with $(value resumed steps) steps"
rm -rf "$folder/run"
status=0
"$TREADLE" train "$folder/grpo.yaml" 'rl_config.verifier_function=[command]' 'rl_config.verifier_command=sleep 100' rl_config.verifier_timeout=1 >/dev/null 2>"$folder/err" || status=$?
[ $status = 1 ] || fail "a command that hangs: status $status"
grep -q "command 'sleep 100': answered nothing for 1 s, with [1-9][0-9]* samples to answer" "$folder/err" || { cat "$folder/err"; fail "no word of the time"; }
rm -rf "$folder/run"
"$TREADLE" train "$folder/grpo.yaml" megatron_training.train_iters=1 rl_config.log_val_generations=2 'rl_config.verifier_function=[command, length:target=4]' 'rl_config.verifier_weight=[0.5, 1]' rl_config.verifier_parallel=2 \
  "rl_config.verifier_command=tee -a $folder/asked.\$\$ | sed -u 's/.*\"id\": \"\([^\"]*\)\".*/{\"id\": \"\1\", \"score\": 0.25, \"pred\": \"x\"}/'" \
  >/dev/null 2>"$folder/err" || { cat "$folder/err"; fail "a command is not heard"; }
# ids REGEX: of what the command was asked, by either of its two processes
ids() { cat "$folder"/asked.* | grep -c "^{\"id\": \"$1\", " || true; }
[ "$(ids 'test-0-[0-9]*-0') $(ids 'test-1-[0-9]*-0') $(ids '1-[0-3]-[0-3]')" = '180 180 16' ] || fail "ids: $(ids 'test-0-.*') $(ids 'test-1-.*') $(ids '1-.*')"
for name in samples.jsonl:1-0-0 validation/0.jsonl:test-0-0-0 validation/1.jsonl:test-1-0-0; do
  grep -q "\"uid\": \"${name#*:}\", " "$folder/run/${name%:*}" || fail "${name%:*} has no ${name#*:}"
done

# eval
"$TREADLE" eval "$TREADLE_SOURCE/examples/sequence/policy" --data "$folder/data/test.jsonl" --reward sequence --n 4 --max-new-tokens 20 --json >"$folder/eval"
for key in rows n 'mean@4' 'best@4\/mean' 'maj@4\/mean' response_length; do [ -n "$(value eval "$key")" ] || fail "eval: no $key"; done
[ "$(value eval rows)" = 180 ] || fail "eval: $(value eval rows) rows"
status=0
"$TREADLE" eval "$TREADLE_SOURCE/examples/sequence/policy" --data "$folder/data/test.jsonl" --reward command --reward-command 'exit 3' --max-new-tokens 20 >"$folder/out" 2>"$folder/err" || status=$?
[ $status = 1 ] && grep -q "command 'exit 3'" "$folder/err" || { cat "$folder/err"; fail "eval: a command that fails: status $status"; }
"$TREADLE" eval --help >"$folder/help"
for words in '  length:target=T   1 - ' '  command           '; do
  grep -qF -- "$words" "$folder/help" || { cat "$folder/help"; fail "eval --help: no '$words'"; }
done
for words in 'half of max_position_embeddings, at most 1024' 'most probable token (default: 1)'; do
  tr -s ' \n' ' ' <"$folder/help" | grep -qF -- "$words" || { cat "$folder/help"; fail "eval --help: no '$words'"; }
done
"$TREADLE" help train >"$folder/help"
grep -q '^  gsm8k ' "$folder/help" || fail "the help of train does not list rewards"
# eval_refused WORDS DATA OPTIONS...: what a person can type is what the message names
eval_refused() {
  local words=$1 data=$2 status=0
  shift 2
  "$TREADLE" eval "$TREADLE_SOURCE/examples/sequence/policy" --data "$data" --reward sequence "$@" >/dev/null 2>"$folder/err" || status=$?
  [ $status = 2 ] || { cat "$folder/err"; fail "eval: status $status for: $*"; }
  grep -q -- "$words" "$folder/err" || { cat "$folder/err"; fail "eval: no '$words' for: $*"; }
}
eval_refused "test.jsonl: line 1: has no 'question' (prompt_key, --prompt-key)" "$folder/data/test.jsonl" --prompt-key question
eval_refused "test.jsonl: line 1: has no 'solution' (answer_key, --answer-key)" "$folder/data/test.jsonl" --answer-key solution
eval_refused 'test.jsonl: line 1: the prompt has .* tokens; at most 1 (a smaller max_tokens, --max-new-tokens,' "$folder/data/test.jsonl" --max-new-tokens 2047
eval_refused "null.jsonl: line 21: has no 'answer' (answer_key, --answer-key); leave_unanswered_out, --no-answer leave_out, leaves" "$folder/null.jsonl"
"$TREADLE" eval "$TREADLE_SOURCE/examples/sequence/policy" --data "$folder/null.jsonl" --reward sequence --no-answer leave_out --json >"$folder/eval_null"
[ "$(value eval_null rows) $(value eval_null left_out)" = '20 1' ] || { cat "$folder/eval_null"; fail "eval of data without an answer"; }
# which rewards need answers
for reward in regex:1 length:target=4; do
  "$TREADLE" eval "$TREADLE_SOURCE/examples/sequence/policy" --data "$folder/null.jsonl" --reward "$reward" --max-new-tokens 4 --json >"$folder/eval_null"
  [ "$(value eval_null rows)" = 21 ] || { cat "$folder/eval_null"; fail "$reward needs answers"; }
done
# more prompts than are drawn at once: without chance each copy of the data has the same score
for copy in {1..23}; do cat "$folder/data/test.jsonl"; done >"$folder/many.jsonl"
for data in "$folder/data/test.jsonl" "$folder/many.jsonl"; do
  "$TREADLE" eval "$TREADLE_SOURCE/examples/sequence/policy" --data "$data" --reward sequence --temperature 0 --max-new-tokens 20 --json >"$folder/eval_$(basename "$data" .jsonl)"
done
[ "$(value eval_many rows)" = 4140 ] || fail "eval of many: $(value eval_many rows) rows"
[ "$(value eval_many 'mean@1' | cut -c1-12)" = "$(value eval_test 'mean@1' | cut -c1-12)" ] || fail "eval of many: $(value eval_many 'mean@1'), of few: $(value eval_test 'mean@1')"
