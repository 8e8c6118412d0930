#!/usr/bin/env bash
# JSON as Python's json writes it: whole numbers beyond 64 bits, NaN, Infinity, zero characters, half pairs, a mark of the byte order. What
# nobody reads is taken; what somebody needs is refused by line and key.
# ctest: timeout=120
. "$(dirname "$0")/found.bash"
policy=$TREADLE_SOURCE/examples/sequence
cat >"$folder/run.yaml" <<END
megatron_training: {tokenizer_name_or_path: $policy, data_path: x, train_iters: 1, global_batch_size: 2}
actor_config: {model: $policy/policy, save: $folder/run, lr: 0, micro_batch_size: 2}
generate_config: {sampling_config: {max_tokens: 2}}
rl_config: {n_samples_per_prompt: 2, max_prompt_length: 10, verifier_function: [gsm8k], dump_rollouts: $folder/dump}
END
# rows LINE: a file of that line and one more
rows() { printf '%s\n{"prompt": "2,", "answer": "4"}\n' "$1" >"$folder/rows.jsonl"; rm -rf "$folder/run" "$folder/dump"; }
train=("$TREADLE" train "$folder/run.yaml" "megatron_training.data_path=$folder/rows.jsonl" --threads 1)

# Prompts: what nobody reads.
for value in NaN Infinity -Infinity 18446744073709551615 1e999 '"\ud83d"' '"\u0000"' '{"\u0000": NaN}'; do
  rows "{\"prompt\": \"1,\", \"answer\": \"2\", \"beside\": $value}"
  run 0 "${train[@]}"
done
rows $'\xef\xbb\xbf''{"prompt": "1,", "answer": "2"}'
run 0 "${train[@]}"
printf '%s\n' $'\xef\xbb\xbf'' [{"prompt": "1,", "answer": NaN}, {"prompt": "1,", "answer": "2"}]' >"$folder/rows.jsonl"
rm -rf "$folder/run"
refused "item 0: 'answer' must be a text or a number (line 1: NaN)" "${train[@]}"
# An answer keeps its digits.
for digits in 123456789012345678901234567890 -9223372036854775809; do
  rows "{\"prompt\": \"1,\", \"answer\": $digits}"
  run 0 "${train[@]}"
  grep -qF "\"answer\": \"$digits\"" "$folder/dump/1.jsonl" || fail "the dump has no answer $digits"
done
rows '{"prompt": "1,", "answer": NaN}'
run 0 "${train[@]}" 'rl_config.verifier_function=["length:target=3"]' # which needs no answer
# What somebody needs.
rows '{"prompt": "1,", "answer": NaN}'
refused "rows.jsonl: line 1: 'answer' must be a text or a number (line 1: NaN)" "${train[@]}"
rows '{"prompt": "1,\u00002", "answer": "2"}'
refused "rows.jsonl: line 1: 'prompt' has a zero character" "${train[@]}"
rows '{"prompt": [{"role": "user", "content": "1\u0000"}], "answer": "2"}'
refused "rows.jsonl: line 1: 'prompt' has a zero character" "${train[@]}"
rows '{"prompt": "1,", "answer": "2\u0000"}'
refused "rows.jsonl: line 1: 'answer' has a zero character" "${train[@]}"
rows '{"prompt": "1 \ud83d", "answer": "2"}'
refused "rows.jsonl: line 1: 'prompt' must be a text, or a list of messages (line 1:" "${train[@]}"
rows '{"prompt": "1,", "answer": "2", "x": 1, "x": 2}'
refused "rows.jsonl: line 1, column 41: key 'x' stands twice in one object" "${train[@]}"

# Rows of sft and requests are only tokenised: a zero character is a character, which a vocabulary may have.
mkdir "$folder/model"
cat >"$folder/model/tokenizer.json" <<'END'
{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "\u0000": 2, "c": 3}, "merges": []}}
END
cat >"$folder/model/tokenizer_config.json" <<'END'
{"eos_token": "b", "model_max_length": 1000000000000000019884624838656, "beside": NaN, "\u0000": "\ud83d",
 "chat_template": "{{ messages[0].x }}{{ messages[0].x|tojson }}"}
END
cp "$policy/policy/config.json" "$folder/model"
cat >"$folder/sft.yaml" <<END
megatron_training: {tokenizer_name_or_path: $folder/model, data_path: $folder/text.jsonl, train_iters: 1, global_batch_size: 1}
actor_config: {model: $policy/policy, save: $folder/sft, micro_batch_size: 1}
END
echo '{"text": "ab\u0000ba"}' >"$folder/text.jsonl"
run 0 "$TREADLE" sft "$folder/sft.yaml" --threads 1
run 0 "$TREADLE" tokenize --tokenizer "$folder/model" --file "$folder/text.jsonl" --json
printed '[0, 1, 2, 1, 0]'
echo '{"text": "ab\ud83d"}' >"$folder/text.jsonl"
refused "text.jsonl: line 1: text must be a text (line 1: \"ab\ud83d\"" "$TREADLE" sft "$folder/sft.yaml" actor_config.save="$folder/sft2"

# A template sees numbers as Python does.
echo "{\"messages\": [{\"role\": \"a\", \"x\": [12345678901234567890123, -9223372036854775809, NaN, -Infinity, 1e999]}]}" >"$folder/chat.jsonl"
run 0 "$TREADLE" tokenize --model "$folder/model" --file "$folder/chat.jsonl" --json
printed "[12345678901234567890123, -9223372036854775809, nan, -inf, inf][12345678901234567890123, -9223372036854775809, NaN, -Infinity, Infinity]"

# Configs: a value that nobody reads goes with the model; one that is read is refused by key and line.
cp -r "$policy/policy" "$folder/own"
chmod -R u+w "$folder/own"
config() { sed "s/^{/{ \"beside\": [NaN, 18446744073709551615, \"\\\\ud83d\"],\n $1/" "$policy/policy/config.json" >"$folder/own/config.json"; }
config ''
run 0 "$TREADLE" convert "$folder/own" "$folder/copy" --from hf --to hf:dtype=fp32
python3 - "$folder/copy/config.json" <<'END' || fail "the copy's config has other values"
import json, sys
beside = json.load(open(sys.argv[1]))["beside"]
sys.exit(not (str(beside[0]) == "nan" and beside[1:] == [18446744073709551615, "\ud83d"]))
END
sed 's/"rms_norm_eps": *[^,]*/"rms_norm_eps": NaN/' "$policy/policy/config.json" >"$folder/own/config.json"
refused "rms_norm_eps is NaN (line " "$TREADLE" generate --model "$folder/own" --prompt 1, --max-new-tokens 1
sed 's/"num_hidden_layers": *[^,]*/"num_hidden_layers": 18446744073709551615/' "$policy/policy/config.json" >"$folder/own/config.json"
refused "num_hidden_layers is 18446744073709551615 (line " "$TREADLE" inspect "$folder/own"

# No file of the source uses the library's own readers.
if grep -rlE '\bjson_load(s|b|f|_file|_callback)?\(' "$TREADLE_SOURCE/src"; then fail "these read JSON past src/core/base/json.h"; fi
