#!/usr/bin/env bash
# Tokenizers as today's tools write them: tokens that only tokenizer_config.json has, in each of its places; a model_max_length of 10^30; more
# chat templates in a folder of their own, which goes along when the model is converted.
. "$(dirname "$0")/found.bash"
model=$folder/model
mkdir -p "$model"
vocabulary='"a": 0, "b": 1, "<": 2, "|": 3, "t": 4, ">": 5, "ab": 6, "u": 7'
cat >"$model/tokenizer.json" <<END
{"version": "1.0", "added_tokens": [{"id": 8, "content": "<|u|>", "special": true}],
 "model": {"type": "BPE", "vocab": {$vocabulary}, "merges": ["a b"]}}
END
# ids CONFIG WANTED: the ids of a text
ids() {
  echo "$1" >"$model/tokenizer_config.json"
  run 0 "$TREADLE" tokenize --tokenizer "$model" --text 'ab<|t|>a<|u|>' --json
  printed "\"token_ids\": [$2]}"
}
max='"model_max_length": 1000000000000000019884624838656'
plain='6, 2, 3, 4, 3, 5, 0, 8'
added='6, 9, 0, 8'
ids "{$max}" "$plain"
ids "{$max, \"added_tokens_decoder\": {\"8\": {\"content\": \"<|u|>\", \"special\": true}, \"9\": {\"content\": \"<|t|>\", \"special\": true}}}" "$added"
ids "{$max, \"additional_special_tokens\": [\"<|t|>\"]}" "$added"
ids "{$max, \"extra_special_tokens\": [{\"content\": \"<|t|>\", \"lstrip\": false}]}" "$added"
ids "{$max, \"extra_special_tokens\": {\"tool_token\": \"<|t|>\"}}" "$added"
ids "{$max, \"eos_token\": \"<|t|>\"}" "$added"
ids "{$max, \"mask_token\": {\"content\": \"<|t|>\"}}" "$added"
ids "{$max, \"pad_token\": \"<|pad|>\", \"extra_special_tokens\": [\"<|t|>\"]}" '6, 10, 0, 8'
# What tokenizer.json has stays as it is; a named token of the vocabulary is looked for before words are merged.
ids "{$max, \"added_tokens_decoder\": {\"4\": {\"content\": \"<|u|>\", \"special\": true}}}" "$plain"
ids "{$max, \"eos_token\": \"b\"}" '0, 1, 2, 3, 4, 3, 5, 0, 8'
echo '{"eos_token": "<|t|>"}' >"$model/special_tokens_map.json"
ids "{$max}" "$added"
rm "$model/special_tokens_map.json"
echo '{"added_tokens_decoder": {"12": {"content": "<|t|>", "special": true}}}' >"$model/tokenizer_config.json"
refused "added token '<|t|>' has the id 12, but by the vocabulary and the tokens before it would be 9" \
  "$TREADLE" tokenize --tokenizer "$model" --text a
echo '{"extra_special_tokens": [7]}' >"$model/tokenizer_config.json"
refused 'extra_special_tokens[0] is not a text' "$TREADLE" tokenize --tokenizer "$model" --text a

# A token that only the config has may be beyond the model's vocabulary; a text that has it is refused.
run 0 "$TREADLE" make-model "$folder/made" --layers 1 --hidden 64 --vocab 9
cp "$model/tokenizer.json" "$folder/made"
echo '{"pad_token": "<|t|>"}' >"$folder/made/tokenizer_config.json"
run 0 "$TREADLE" generate --model "$folder/made" --prompt ab --max-new-tokens 1
refused 'line 1' "$TREADLE" generate --model "$folder/made" --prompt 'ab<|t|>' --max-new-tokens 1

mkdir "$folder/made/additional_chat_templates"
echo tools >"$folder/made/additional_chat_templates/tool_use.jinja"
run 0 "$TREADLE" convert "$folder/made" "$folder/there" --from hf --to megatron:tp=1
run 0 "$TREADLE" convert "$folder/there" "$folder/back" --from megatron:tp=1 --to hf
cmp "$folder/made/additional_chat_templates/tool_use.jinja" "$folder/back/additional_chat_templates/tool_use.jinja"
