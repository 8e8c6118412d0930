#!/usr/bin/env bash
# A key that config.json lacks was guessed (as many key heads as heads), and configs that transformers 5 has saved were refused or
# taken for another model. What classes of transformers mean is compared at large in tests/core/model/test_round_trip.c.
. "$(dirname "$0")/found.bash"

moe='"model_type": "qwen3_moe", "hidden_size": 512, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8,
  "vocab_size": 128, "moe_intermediate_size": 64, "num_experts_per_tok": 2, "norm_topk_prob": true, "dtype": "bfloat16"'
config() { echo "{$1}" >"$folder/config.json"; }
inspect() { "$TREADLE" inspect "$folder/config.json"; }

config "$moe, \"num_experts\": 4"
run 0 inspect
printed ' ng=4 '
config "$moe, \"num_local_experts\": 6"
run 0 inspect
printed ' E=6 '
config "$moe, \"num_local_experts\": 6, \"num_experts\": 6"
run 0 inspect
config "$moe, \"num_local_experts\": 6, \"num_experts\": 4"
refused 'num_experts and num_local_experts are two names of one field' inspect
config "$moe"
refused 'num_experts is missing' inspect

# DeepSeek-V4, as published and as transformers writes it
v4='"model_type": "deepseek_v4", "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 1,
  "head_dim": 64, "qk_rope_head_dim": 32, "q_lora_rank": 64, "o_lora_rank": 32, "o_groups": 2, "vocab_size": 256,
  "moe_intermediate_size": 64, "n_routed_experts": 4, "num_experts_per_tok": 2, "hc_mult": 2, "index_n_heads": 2,
  "index_head_dim": 32, "num_nextn_predict_layers": 0, "dtype": "bfloat16"'
published='"num_hash_layers": 2, "compress_ratios": [0, 0, 4, 128]'
mlp='"mlp_layer_types": ["hash_moe", "hash_moe", "moe", "moe"]'
types='"layer_types": ["sliding_attention", "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]'
config "$v4, $published"
run 0 inspect
grep -v '^config' "$folder/out" >"$folder/published" # all but the numbers
for text in "$mlp, $types" "$mlp, $types, $published" \
  "$mlp, $types, \"compress_rates\": {\"compressed_sparse_attention\": 4, \"heavily_compressed_attention\": 128}"; do
  config "$v4, $text"
  run 0 inspect
  grep -v '^config' "$folder/out" | cmp - "$folder/published" || fail "another model: $text"
done
config "$v4, $mlp, $types, \"compress_rates\": {\"compressed_sparse_attention\": 8}"
refused 'compress_rates: compressed_sparse_attention must be 4' inspect
config "$v4, $mlp, $types, \"num_hash_layers\": 3"
refused 'mlp_layer_types and num_hash_layers name different layers: layer 2' inspect
config "$v4, $mlp, $types, \"compress_ratios\": [0, 4, 4, 128]"
refused 'compress_ratios and layer_types disagree: layer 1' inspect

# Numbers that no model can have
while IFS='|' read -r said text; do
  config "$moe, \"num_experts\": 4, $text"
  refused "$said" inspect
done <<'END'
rms_norm_eps is 0, not a number above 0|"rms_norm_eps": 0
rms_norm_eps is -0.5, not a number above 0|"rms_norm_eps": -0.5
not a number above 0|"rms_norm_eps": 1e-60
rms_norm_eps is "small", not a number above 0|"rms_norm_eps": "small"
rope_theta is 0.0, not a number above 0|"rope_theta": 0.0
max_position_embeddings is -1, not a number above 0|"max_position_embeddings": -1
END

# One model that says twice whether its head is tied
vl='"model_type": "qwen3_vl", "text_config": {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
  "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 64'
config "$vl, \"tie_word_embeddings\": false}, \"tie_word_embeddings\": true"
refused 'tie_word_embeddings is true, and text_config.tie_word_embeddings is false' inspect
