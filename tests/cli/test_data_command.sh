#!/usr/bin/env bash
# treadle data: the rows of the task of sequences, which treadle grad takes and whose prompts treadle generate answers; the same bytes again; and
# refusals that leave what is there.
# ctest: timeout=120
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }
value() { sed -n "s/.*\"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" "$folder/$1"; }
lines() { wc -l <"$folder/$1"; }

"$TREADLE" data sequence --out "$folder/rows" --seed 3 --json >"$folder/json"
[ "$(value json train) $(value json test) $(value json sft)" = "720 180 40000" ] || fail "$(cat "$folder/json")"
[ "$(lines rows/train.jsonl) $(lines rows/test.jsonl) $(lines rows/sft.jsonl)" = "720 180 40000" ] || fail "other numbers of lines"
[ "$(ls "$folder/rows" | tr '\n' ' ')" = "sft.jsonl test.jsonl train.jsonl " ] || fail "other files: $(ls "$folder/rows")"
"$TREADLE" data sequence --out="$folder/again" --noise=0.3 --seed=3 >"$folder/line"
grep -q '720 prompts.*180 prompts.*40000 rows' "$folder/line" || fail "no line for people"
diff -r "$folder/rows" "$folder/again" || fail "the same options give other bytes"
"$TREADLE" data sequence --out "$folder/again" --seed 3 >/dev/null || fail "what is there already is refused"

# A model and its tokenizer. Rows become tokens: S behind the prompt and E behind the response; the response counts.
model=$folder/model
"$TREADLE" make-model "$model" --model "$TREADLE_SOURCE/examples/sequence/config.json" >/dev/null
cp "$TREADLE_SOURCE/examples/sequence/tokenizer_config.json" "$model"
head -50 "$folder/rows/sft.jsonl" >"$folder/some.jsonl"
# 1 token for each byte of a response, and the end token
counted=$(sed 's/.*"response": "\(.*\)"}/\1/' "$folder/some.jsonl" | awk '{n += length($0) + 1} END {print n}')
"$TREADLE" grad "$model" --file "$folder/some.jsonl" --dtype fp32 --json >"$folder/grad"
[ "$(value grad tokens)" = "$counted" ] || fail "$(value grad tokens) tokens count, not $counted"
printf '%s\n' '{"prompt": "8,3:9,2", "response": "7,2", "id": 5}' >"$folder/one.jsonl"
printf '%s\n' '[{"data_source": "x", "prompt": [{"role": "user", "content": "8,3:9,2"}],' '"response": "7,2"}]' >"$folder/list.json"
printf '%s\n' '{"ids": [12, 14, 7, 15, 13, 14, 6, 0, 11, 14, 6, 1], "mask": [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]}' >"$folder/ids.jsonl"
for rows in one.jsonl list.json ids.jsonl; do
  "$TREADLE" grad "$model" --file "$folder/$rows" --json >"$folder/$rows.grad"
  [ "$(value $rows.grad digest)" = "$(value one.jsonl.grad digest)" ] || fail "$rows: other gradients"
done

# A chat template that is broken is not a missing one.
sed 's/sep_token }}/sep_token/' "$TREADLE_SOURCE/examples/sequence/tokenizer_config.json" >"$model/tokenizer_config.json"
status=0
"$TREADLE" grad "$model" --file "$folder/one.jsonl" 2>"$folder/err" || status=$?
[ $status = 2 ] && grep -q 'tokenizer_config.json: chat_template: line' "$folder/err" || fail "status $status: $(cat "$folder/err")"
cp "$TREADLE_SOURCE/examples/sequence/tokenizer_config.json" "$model"

# E ends an answer, and its text has no blanks.
"$TREADLE" generate --model "$model" --prompt 8,3:9,4 --chat --n 20 --seed 1 --max-new-tokens 400 --out "$folder/answers.jsonl"
grep -q '"prompt_token_ids": *\[12, *14, *7, *15, *13, *14, *8, *0\]' "$folder/answers.jsonl" || fail "$(head -c 300 "$folder/answers.jsonl")"
grep -q '"finish_reason": *"stop"' "$folder/answers.jsonl" || fail "no sample ends at E"
! grep -q '"text": *"[^"]* ' "$folder/answers.jsonl" || fail "blanks between characters"

# refused STATUS WORDS ARGUMENTS...: a message with these words.
refused() {
  local wanted=$1 words=$2 status=0
  shift 2
  "$TREADLE" data "$@" >"$folder/out" 2>"$folder/err" || status=$?
  [ $status = "$wanted" ] || fail "status $status for: $*"
  grep -q -- "$words" "$folder/err" || { cat "$folder/err"; fail "no '$words' for: $*"; }
}
cp -r "$folder/rows" "$folder/kept"
refused 2 'sft.jsonl: is there, with other content' sequence --out "$folder/rows" --seed 3 --noise 0.2
refused 2 'train.jsonl: is there, with other content' sequence --out "$folder/rows"
diff -r "$folder/rows" "$folder/kept" || fail "a refusal changes files"
refused 2 'noise' sequence --out "$folder/none" --noise 1.5
refused 2 '--noise' sequence --out "$folder/none" --noise much
refused 2 '--out' sequence
refused 2 "no task 'series'" series --out "$folder/none"
refused 2 'DIR\|sequence' --out "$folder/none"
refused 2 'not/there' sequence --out "$folder/not/there"
[ ! -e "$folder/none" ] || fail "a folder is left by a refusal"
if [ -e /dev/full ]; then
  "$TREADLE" data sequence --out "$folder/full" >/dev/full 2>"$folder/err" && fail "a full disk is not seen"
fi
"$TREADLE" help data >"$folder/line"
grep -q 'noise Q' "$folder/line" || fail "no help"
