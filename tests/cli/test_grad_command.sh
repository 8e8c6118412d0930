#!/usr/bin/env bash
# treadle grad: the same figures in two layouts and with any number of threads, a file of gradients under Hugging Face names, and refusals
# that name line, rule and numbers.
# ctest: timeout=120
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
model=$TREADLE_SOURCE/tests/golden/models/llama-gqa-llama3rope
rows=$TREADLE_SOURCE/tests/golden/grads/llama-gqa-llama3rope/rows.jsonl
fail() { echo "$1"; exit 1; }
value() { sed -n "s/.*\"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" "$folder/$1"; }

"$TREADLE" grad "$model" --file "$rows" --dtype fp32 --out "$folder/g.safetensors" --json >"$folder/hf"
"$TREADLE" grad "$model" --file "$rows" --layout megatron:dtype=fp32 --threads 1 --json >"$folder/megatron"
"$TREADLE" grad "$model" --file "$rows" --dtype fp32 --micro-batch-size 3 --json >"$folder/batch"
"$TREADLE" grad "$model" --file "$rows" --dtype bf16 --json >"$folder/bf16"
for key in loss tokens grad_norm digest; do
  [ -n "$(value hf $key)" ] || fail "no $key"
  [ "$(value hf $key)" = "$(value megatron $key)" ] || fail "$key differs in megatron's layout"
done
[ "$(value hf digest)" != "$(value batch digest)" ] || fail "micro batches change no bit: the digest shows nothing"
[ "$(value hf digest)" != "$(value bf16 digest)" ] || fail "bf16 changes no bit"
[[ $(value hf loss) = 10.02530* ]] || fail "loss $(value hf loss)"
grep -aq '"model.layers.0.self_attn.q_proj.weight":{"dtype":"F32"' "$folder/g.safetensors" || fail "no gradient of q_proj"
mkdir "$folder/as_model" # the file is one that a model could have
cp "$model/config.json" "$folder/as_model"
mv "$folder/g.safetensors" "$folder/as_model/model.safetensors"
"$TREADLE" inspect "$folder/as_model" >/dev/null || fail "the file of gradients is not read"
"$TREADLE" grad "$model" --file "$rows" >"$folder/line"
grep -q '^loss 10.0.* of .* tokens, norm' "$folder/line" || fail "no line for people"

# refused WORDS ARGUMENTS...: exit status 2, a message with these words, and nothing written.
refused() {
  local words=$1 status=0
  shift
  "$TREADLE" grad "$@" --out "$folder/none" >"$folder/out" 2>"$folder/err" || status=$?
  [ $status = 2 ] || fail "status $status for: $*"
  grep -q -- "$words" "$folder/err" || { cat "$folder/err"; fail "no '$words' for: $*"; }
  [ ! -e "$folder/none" ] || fail "a file is left for: $*"
}
refused "has 1 data parallel rank, which Ulysses ranks, 2, do not divide" "$model" --file "$rows" --ulysses 2
# Experts: the loss of their routers, the same in a grid, beside a loss that stays.
moe=$TREADLE_SOURCE/tests/golden/models/qwen2moe
"$TREADLE" grad "$moe" --file "$rows" --dtype fp32 --json >"$folder/plain" 2>/dev/null
"$TREADLE" grad "$moe" --file "$rows" --dtype fp32 --aux-loss-coeff 0.1 --z-loss-coeff 0.01 --json >"$folder/even" 2>/dev/null
"$MPIEXEC" -n 2 "$TREADLE" grad "$moe" --file "$rows" --layout megatron:tp=2,ep=2,etp=1 --dtype fp32 --aux-loss-coeff 0.1 --z-loss-coeff 0.01 --json >"$folder/grid" 2>/dev/null
[ "$(value plain aux_loss)" = 0.0 ] || [ "$(value plain aux_loss)" = 0 ] || fail "aux_loss $(value plain aux_loss) without coefficients"
[ "$(value plain loss)" = "$(value even loss)" ] || fail "the loss has changed"
[ "$(value plain digest)" != "$(value even digest)" ] || fail "losses of routers change no gradient"
for key in loss aux_loss grad_norm digest; do
  [ "$(value even $key)" = "$(value grid $key)" ] || fail "$key differs in a grid of experts: $(value even $key), $(value grid $key)"
done
# The experts of tokens: those that the generator's layers choose; bf16 goes by them.
choices=$folder/choices.jsonl
"$TREADLE" grad "$moe" --file "$rows" --dtype fp32 --write-experts "$choices" --json >"$folder/own" 2>/dev/null
[ "$(value own digest)" = "$(value plain digest)" ] || fail "to write experts changes gradients"
sed 's/"ids":/"token_ids":/; s/, "mask": \[[^]]*\]//' "$rows" >"$folder/texts.jsonl"
"$TREADLE" score --model "$moe" --layout vllm:tp=1,dtype=fp32 --file "$folder/texts.jsonl" --experts --out "$folder/scored.jsonl" >/dev/null 2>&1
grep -o '"experts": \[\[.*\]\]\]' "$folder/scored.jsonl" | cmp - <(grep -o '"experts": \[\[.*\]\]\]' "$choices") || fail "score chooses other experts"
"$TREADLE" grad "$moe" --file "$rows" --dtype fp32 --experts "$folder/scored.jsonl" --json >"$folder/replayed" 2>/dev/null
[ "$(value replayed digest)" = "$(value plain digest)" ] || fail "the same experts give other gradients"
[ "$(value replayed experts_differing)" = 0 ] && [ "$(value replayed experts_compared)" -gt 100 ] || fail "its own experts differ"
for file in "$choices" "$folder/scored.jsonl"; do
  "$MPIEXEC" -n 4 "$TREADLE" grad "$moe" --file "$rows" --layout megatron:tp=2,pp=2,ep=2,etp=1 --dtype bf16 --experts "$file" --json >"$folder/bf16" 2>/dev/null
  "$TREADLE" grad "$moe" --file "$rows" --dtype bf16 --experts "$file" --json >"$folder/one" 2>/dev/null
  for key in loss digest experts_compared experts_differing; do
    [ "$(value one $key)" = "$(value bf16 $key)" ] || fail "$key of replayed experts differs in a grid"
  done
done
refused 'experts of .* rows, and there are' "$moe" --file "$rows" --experts <(head -n 2 "$choices")
refused 'line 1: it has no list "experts"' "$moe" --file "$rows" --experts "$rows"
refused 'the model has no experts to replay' "$model" --file "$rows" --experts "$choices"
refused 'line 1: has experts of .* tokens, and row 0 has .* before its last one' "$moe" --file "$rows" --experts <(sed '1s/^{"experts": \[/&[[0, 1], [0, 1], [0, 1], [0, 1]], /' "$choices")
refused 'line 1: experts.0..0. do not ascend: 5 at' "$moe" --file "$rows" --experts <(sed '1s/[0-9]*, [0-9]*/5, 5/' "$choices")
refused 'goes with --loss nll' "$moe" --file "$rows" --loss grpo --config "$folder/none.yaml" --experts "$choices"
refused 'aux-loss-coeff -1: a number from 0 on' "$moe" --file "$rows" --aux-loss-coeff -1
refused 'the model has no experts' "$model" --file "$rows" --z-loss-coeff 0.1
refused '1 rank is not divisible by etp .* ep .* pp' "$moe" --file "$rows" --layout megatron:ep=3
line() { printf '%s\n' "$1" >"$folder/rows.jsonl"; }
line '{"ids": [1, 2, 3], "mask": [0, 1, 1]}
{"ids": [1, 2, 300000], "mask": [0, 1, 1]}'
refused 'line 2.*token 2 is 300000; the vocabulary has' "$model" --file "$folder/rows.jsonl"
line '{"ids": [1, 2, 3], "mask": [0, 1]}'
refused 'line 1.*mask must be a list of 3 items' "$model" --file "$folder/rows.jsonl"
line '{"ids": [1, 2, 3], "mask": [1, 1, 1]}'
refused 'mask\[0\] must be 0' "$model" --file "$folder/rows.jsonl"
line '{"ids": [1, 2, 3], "mask": [0, 2, 1]}'
refused 'mask\[1\] is not 0 or 1' "$model" --file "$folder/rows.jsonl"
line '{"ids": [1, 2, 3], "mask": [0, 0, 0]}'
refused 'no token of it counts' "$model" --file "$folder/rows.jsonl"
line '{"ids": [1], "mask": [0]}'
refused '2 are the least' "$model" --file "$folder/rows.jsonl"
line '{"ids": [1, 2], "mask": [0, 1], "masks": 1}'
refused 'masks' "$model" --file "$folder/rows.jsonl"
line '{"mask": [0, 1]}'
refused 'must have ids and mask, text, prompt and response, or messages' "$model" --file "$folder/rows.jsonl"
line 'ids'
refused 'line 1' "$model" --file "$folder/rows.jsonl"
line ''
refused 'no rows' "$model" --file "$folder/rows.jsonl"
refused 'otherwise' "$model" --file "$rows" --layout hf:dtype=bf16 --dtype fp32
refused 'ranks' "$model" --file "$rows" --layout megatron:tp=2
