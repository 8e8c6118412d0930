#!/usr/bin/env bash
# What a limit says of a map holds for the paths below it, in the file and on the command line, with Hydra's + and without; and variables of the chat
# template are passed on to it: one of them turns the end of each prompt into another.
# ctest: timeout=120
source "$(dirname "$0")/found.bash"
"$TREADLE" data sequence --out "$folder/data" --seed 1 >/dev/null
head -4 "$folder/data/train.jsonl" >"$folder/few.jsonl"
cp -r "$TREADLE_SOURCE/examples/sequence" "$folder/tokenizer"
cat >"$folder/tokenizer/chat_template.jinja" <<'END'
{% for m in messages %}{{ m.content }}{% endfor %}{% if think is defined and not think %}7{% else %}8{% endif %}{{ style.word if style is defined }}
END
printf '%s' "$(cat "$folder/tokenizer/chat_template.jinja")" >"$folder/tokenizer/chat_template.jinja"
cat >"$folder/run.yaml" <<END
megatron_training:
  tokenizer_name_or_path: $folder/tokenizer
  data_path: $folder/few.jsonl
  train_iters: 1
  global_batch_size: 2
actor_config: {model: $TREADLE_SOURCE/examples/sequence/policy, save: $folder/run}
generate_config: {sampling_config: {max_tokens: 2}}
rl_config: {n_samples_per_prompt: 2, max_prompt_length: 40, verifier_function: [sequence], dump_rollouts: $folder/dump}
END
# last WORDS: with these overrides the tokens of all prompts end as those of the word do
last() {
  local wanted=$1
  shift
  rm -rf "$folder/run" "$folder/dump"
  run 0 "$TREADLE" train "$folder/run.yaml" --threads 1 "$@"
  python3 - "$folder/dump/1.jsonl" "$folder/ids.$wanted" <<'END' || fail "prompts do not end as '$wanted' does: $*"
import json, os, sys
ends = {tuple(json.loads(line)["prompt_ids"][-1:]) for line in open(sys.argv[1])}
assert len(ends) == 1, ends
if not os.path.exists(sys.argv[2]):
    open(sys.argv[2], "w").write(repr(ends))
sys.exit(open(sys.argv[2]).read() != repr(ends))
END
}
last 8
last 7 data.apply_chat_template_kwargs.think=false
cmp -s "$folder/ids.7" "$folder/ids.8" && fail "the two ends are the same tokens"
last 7 '++data.apply_chat_template_kwargs={think: no}'
last 7 'rl_config.chat_template_kwargs={think: off}'
last 3 data.apply_chat_template_kwargs.style.word=3
# Of the file, as a map; and what goes before it.
cp "$folder/run.yaml" "$folder/plain.yaml"
printf 'data: {apply_chat_template_kwargs: {think: false}}\n' >>"$folder/run.yaml"
last 7
last 8 data.apply_chat_template_kwargs.think=true
grep -q 'chat_template_kwargs: *{"think": true}' "$folder/run/config.yaml" || fail "the resolved file has no variables"
cp "$folder/plain.yaml" "$folder/run.yaml"
# A text as it stands, without the template.
run 0 "$TREADLE" train "$folder/run.yaml" --threads 1 rl_config.apply_chat_template=false actor_config.save="$folder/other"
refused 'must be a map' "$TREADLE" train "$folder/run.yaml" data.apply_chat_template_kwargs=7

# Limits hold below the path that they stand at.
limit() {
  refused "$1: this cannot be done here" "$TREADLE" train "$folder/run.yaml" "$1=1"
  refused "$1: this cannot be done here" "$TREADLE" train "$folder/run.yaml" "+$1=1"
  { cat "$folder/plain.yaml"; printf '%s: 1\n' "$1"; } >"$folder/flat.yaml"
  refused "$1: this cannot be done here" "$TREADLE" train "$folder/flat.yaml"
}
limit actor_rollout_ref.rollout.quantization.method
limit algorithm.rollout_correction.something
limit actor_rollout_ref.actor.optim.override_optimizer_config.amsgrad
refused 'a key cannot be taken away' "$TREADLE" train "$folder/run.yaml" '~data.shuffle'
refused '--cfg job --resolve' "$TREADLE" train "$folder/run.yaml" model_engine=megatron
