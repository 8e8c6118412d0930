#!/usr/bin/env bash
# modules_to_not_convert was matched as plain text: the router mlp.gate shadowed mlp.gate_proj, layer 1 layers 10 and 11, and a
# regex fitted nothing.
. "$(dirname "$0")/found.bash"

# What is bf16 in 12 layers: gate_proj, q_proj and down_proj.
check() {
  cat >"$folder/config.json" <<END
{"model_type": "qwen3", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 12, "num_attention_heads": 2,
 "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 128, "rms_norm_eps": 1e-06, "tie_word_embeddings": false,
 "dtype": "bfloat16", "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "$1": [$2]}}
END
  run 0 "$TREADLE" layout --model "$folder/config.json" --layout hf --ranks 1 --rank 0 --json
  local counts='' name
  for name in gate_proj q_proj down_proj; do
    counts="$counts $(tr '{' '\n' <"$folder/out" | grep "$name.weight\"" | grep -c bf16 || true)"
  done
  [ "$counts" = " $3" ] || fail "$1 [$2]: bf16 in$counts layers, not $3"
}
check modules_to_not_convert '' '0 0 0'
check modules_to_not_convert '"lm_head", "mlp.gate"' '0 0 0'
check modules_to_not_convert '"gate"' '0 0 0'
check modules_to_not_convert '"model.layers.1"' '1 1 1'
check modules_to_not_convert '"model.layers.1."' '1 1 1'
check ignored_layers '"layers.1"' '1 1 1'
check ignored_layers '"model.layers.1", "model.layers.11.mlp"' '2 1 2'
check modules_to_not_convert '"model.layers.*.mlp.down_proj"' '0 0 12'
check modules_to_not_convert '"model\\.layers\\.(1|2)\\.mlp"' '2 0 2'
check modules_to_not_convert '"model.layers.1\\d"' '2 2 2'
check modules_to_not_convert '"re:.*self_attn.*"' '0 12 0'
check modules_to_not_convert '"*.mlp.*"' '12 0 12'
check modules_to_not_convert '"self_attn"' '0 12 0'
check modules_to_not_convert '"down_proj"' '0 0 12'
check modules_to_not_convert '"model.layers.3.self_attn.qkv_proj"' '0 1 0'
check modules_to_not_convert '"odel.layers.1"' '0 0 0'
