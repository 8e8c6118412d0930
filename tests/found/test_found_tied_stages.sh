#!/usr/bin/env bash
# Tied weights under pipeline stages are where each engine's own class has them: EXAONE 4 in SGLang keeps lm_head on both stages, Phi-3 in
# vLLM the embedding on the last. Some classes make the head whether it is tied or not, with one stage, too.
. "$(dirname "$0")/found.bash"

# What any of the families below asks for; Kimi has its own in text_config.
fields='"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32,
 "vocab_size": 128, "tie_word_embeddings": true, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16,
 "v_head_dim": 32, "num_local_experts": 4, "n_routed_experts": 4, "num_experts": 4, "moe_num_experts": 4, "num_shared_expert": [1, 1],
 "num_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "intermediate_size_mlp": 64,
 "shared_expert_intermediate_size": 64, "routed_expert_hidden_size": 32, "first_k_dense_replace": 0, "num_nextn_predict_layers": 0,
 "index_n_heads": 2, "index_head_dim": 32, "index_topk": 8, "o_lora_rank": 32,
 "o_groups": 2, "hc_mult": 2, "num_hash_layers": 1, "compress_ratios": [0, 0], "attn_res_block_size": 2, "linear_attn_config":
 {"full_attn_layers": [2], "kda_layers": [1], "head_dim": 32, "num_heads": 2, "short_conv_kernel_size": 4}'

# names FAMILY LAYOUT STAGES STAGE: which of embedding and head the stage has
names() {
  cat >"$folder/config.json" <<END
{"model_type": "$1", "dtype": "bfloat16", "text_config": {$fields}, $fields}
END
  run 0 "$TREADLE" layout --model "$folder/config.json" --layout "$2:pp=$3" --ranks "$3" --rank "$4" --json
  sed -n 's/.*"name": "[a-z_.]*\(embed_tokens\|embedding\|lm_head\)\.weight".*/\1/p' "$folder/out" | sort -u | xargs
}
# has WHAT FAMILY LAYOUT STAGES STAGE
has() {
  local want=$1 found
  shift
  found=$(names "$@") || fail "$found"
  [ "$found" = "$want" ] || fail "tied $1 in $2, stage $4 of $3, counted from 0: '$found', not '$want'"
}
# What there is with one stage | on the first of two | on the last of two
while IFS='|' read -r family engine only first last; do
  has "$only" "$family" "$engine" 1 0
  has "$first" "$family" "$engine" 2 0
  has "$last" "$family" "$engine" 2 1
done <<'END'
exaone4|sglang|embed_tokens|embed_tokens lm_head|lm_head
exaone4|vllm|embed_tokens|embed_tokens|embed_tokens
phi3|vllm|embed_tokens|embed_tokens|embed_tokens
phi3|sglang|embed_tokens|embed_tokens|
llama|vllm|embed_tokens|embed_tokens|embed_tokens
llama|sglang|embed_tokens|embed_tokens|
mistral|vllm|embed_tokens|embed_tokens|embed_tokens
mistral|sglang|embed_tokens|embed_tokens|
mistral3|vllm|embed_tokens|embed_tokens|embed_tokens
mistral3|sglang|embed_tokens|embed_tokens|
llama4|vllm|embed_tokens|embed_tokens|embed_tokens
llama4|sglang|embed_tokens|embed_tokens|embed_tokens
olmo3|vllm|embed_tokens|embed_tokens|embed_tokens
olmo3|sglang|embed_tokens|embed_tokens|embed_tokens
seed_oss|vllm|embed_tokens|embed_tokens|embed_tokens
seed_oss|sglang|embed_tokens|embed_tokens|embed_tokens
smollm3|vllm|embed_tokens|embed_tokens|embed_tokens
smollm3|sglang|embed_tokens|embed_tokens|embed_tokens
hunyuan_v1_moe|vllm|embed_tokens|embed_tokens|embed_tokens
qwen3_vl|vllm|embed_tokens|embed_tokens|embed_tokens
qwen3_vl|sglang|embed_tokens|embed_tokens|lm_head
glm4_moe|vllm|embed_tokens lm_head|embed_tokens|lm_head
qwen3_next|vllm|embed_tokens lm_head|embed_tokens lm_head|embed_tokens lm_head
gpt_oss|vllm|embedding lm_head|embedding lm_head|embedding lm_head
glm4_moe_lite|vllm|embed_tokens lm_head|embed_tokens|lm_head
glm4_moe_lite|sglang|embed_tokens lm_head|embed_tokens lm_head|lm_head
glm_moe_dsa|vllm|embed_tokens lm_head|embed_tokens|lm_head
glm_moe_dsa|sglang|embed_tokens|embed_tokens|lm_head
deepseek_v32|vllm|embed_tokens lm_head|embed_tokens|lm_head
deepseek_v32|sglang|embed_tokens|embed_tokens|lm_head
deepseek_v4|vllm|embed_tokens lm_head|embed_tokens|lm_head
deepseek_v4|sglang|embed_tokens|embed_tokens|lm_head
kimi_k25|vllm|embed_tokens lm_head|embed_tokens|lm_head
kimi_k25|sglang|embed_tokens|embed_tokens|lm_head
kimi_k3|vllm|embed_tokens lm_head|embed_tokens|lm_head
kimi_k3|sglang|embed_tokens lm_head|embed_tokens|lm_head
minimax_m2|vllm|embed_tokens lm_head|embed_tokens|lm_head
minimax_m2|sglang|embed_tokens lm_head|embed_tokens|embed_tokens lm_head
mimo_v2_flash|vllm|embed_tokens lm_head|embed_tokens|embed_tokens lm_head
mimo_v2_flash|sglang|embed_tokens lm_head|embed_tokens|lm_head
END
