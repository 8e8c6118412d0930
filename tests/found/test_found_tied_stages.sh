#!/usr/bin/env bash
# Tied weights under pipeline stages are where each engine's own class has them: EXAONE 4 in SGLang keeps lm_head on both stages, Phi-3 in
# vLLM the embedding on the last.
. "$(dirname "$0")/found.bash"

# names FAMILY LAYOUT RANK: which of embedding and head the rank has
names() {
  cat >"$folder/config.json" <<END
{"model_type": "$1", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
 "head_dim": 32, "vocab_size": 128, "tie_word_embeddings": true, "dtype": "bfloat16"}
END
  run 0 "$TREADLE" layout --model "$folder/config.json" --layout "$2" --ranks 2 --rank "$3" --json
  grep -o '"name": "[^"]*\(embed_tokens\|lm_head\)[^"]*"' "$folder/out" | sed 's/.*"\(model\.\)\?\([a-z_]*\).weight"/\2/' | sort -u | tr '\n' ' '
}
while IFS='|' read -r family layout first last; do
  [ "$(names "$family" "$layout" 0)" = "$first " ] || fail "$family $layout: the first stage has $(names "$family" "$layout" 0)"
  [ "$(names "$family" "$layout" 1)" = "$last${last:+ }" ] || fail "$family $layout: the last stage has $(names "$family" "$layout" 1)"
done <<'END'
exaone4|sglang:pp=2|embed_tokens lm_head|lm_head
exaone4|vllm:pp=2|embed_tokens|embed_tokens
phi3|vllm:pp=2|embed_tokens|embed_tokens
phi3|sglang:pp=2|embed_tokens|
llama|vllm:pp=2|embed_tokens|embed_tokens
llama|sglang:pp=2|embed_tokens|
END
