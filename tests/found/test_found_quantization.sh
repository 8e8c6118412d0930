#!/usr/bin/env bash
# A quantization_config that treadle does not understand was taken for plain weights, without a word: 2 to 4 times too many bytes,
# e5m2 read as e4m3. Each key must be known with its value, or the model is refused by the name of the key.
. "$(dirname "$0")/found.bash"

base='"model_type": "qwen3", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 2,
  "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 128, "rms_norm_eps": 1e-06, "tie_word_embeddings": false,
  "max_position_embeddings": 512, "dtype": "bfloat16"'
blocks='"quant_method": "fp8", "weight_block_size": [128, 128]'
config() { echo "{$base$1}" >"$folder/config.json"; }
plan() { "$TREADLE" plan --model "$folder/config.json" --from megatron:tp=1 --to vllm:tp=1 --ranks 1 --json; }
export -f plan

# taken: no quantisation, and blocks of fp8
for text in '' ', "quantization_config": null' ", \"quantization_config\": {$blocks}" \
  ", \"quantization_config\": {$blocks, \"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\", \"kv_cache_scheme\": null}" \
  ", \"quantization_config\": {$blocks, \"scale_fmt\": \"float\", \"expert_dtype\": \"fp8\", \"dequantize\": false,
     \"modules_to_convert\": null, \"modules_to_not_convert\": [\"lm_head\"]}"; do
  config "$text"
  run 0 plan
  [ ! -s "$folder/err" ] || { cat "$folder/err"; fail "a word about $text"; }
done

# refused, with the name
while IFS='|' read -r name text; do
  config ", \"quantization_config\": $text"
  refused "$name" plan
done <<END
quant_method "gptq"|{"quant_method": "gptq", "bits": 4, "group_size": 128}
quant_method "awq"|{"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true, "version": "gemm"}
quant_method "bitsandbytes"|{"quant_method": "bitsandbytes", "load_in_4bit": true}
quant_method is missing|{"load_in_8bit": true}
quant_method is missing|{}
quant_method "compressed-tensors"|{"quant_method": "compressed-tensors", "format": "pack-quantized"}
quant_method "modelopt"|{"quant_method": "modelopt", "quant_algo": "FP8"}
quant_method "mxfp4" is not known of this family|{"quant_method": "mxfp4"}
quant_method "FP8"|{"quant_method": "FP8", "weight_block_size": [128, 128]}
quant_method 8 is not a text|{"quant_method": 8}
weight_block_size is missing|{"quant_method": "fp8", "activation_scheme": "dynamic"}
weight_block_size null|{"quant_method": "fp8", "weight_block_size": null}
weight_block_size [128]|{"quant_method": "fp8", "weight_block_size": [128]}
weight_block_size [99999999999999999999,128]|{"quant_method": "fp8", "weight_block_size": [99999999999999999999, 128]}
weight_block_size [128,0]|{"quant_method": "fp8", "weight_block_size": [128, 0]}
activation_scheme "static"|{$blocks, "activation_scheme": "static"}
fmt "e5m2"|{$blocks, "fmt": "e5m2"}
expert_dtype "fp4"|{$blocks, "expert_dtype": "fp4"}
dequantize true|{$blocks, "dequantize": true}
bits 4 is not known|{$blocks, "bits": 4}
modules_to_convert ["model.embed_tokens"]|{$blocks, "modules_to_convert": ["model.embed_tokens"]}
ignore ["lm_head"]|{$blocks, "ignore": ["lm_head"]}
modules_to_not_convert is not a list|{$blocks, "modules_to_not_convert": "lm_head"}
name different modules|{$blocks, "modules_to_not_convert": ["lm_head"], "ignored_layers": ["model.layers.0"]}
is not an object|"fp8"
is not an object|["fp8"]
END
# said under another key, by which MLX and older tools say it, or by the type: without quantization_config they were taken for plain weights
while IFS='|' read -r name text; do
  config ", $text"
  refused "$name" plan
done <<END
quantization {"group_size":64,"bits":4} is not a quantization_config|"quantization": {"group_size": 64, "bits": 4}
quantization {"group_size":64,"bits":4} is not a quantization_config|"quantization": {"group_size": 64, "bits": 4}, "quantization_config": {$blocks}
quantize "fp8" is not a quantization_config|"quantize": "fp8"
quantize true is not a quantization_config|"quantize": true
quant_config {"quant_method":"fp8"} is not a quantization_config|"quant_config": {"quant_method": "fp8"}
quantization_bit 4 is not a quantization_config|"quantization_bit": 4
text_config.quantization {"bits":4} is not a quantization_config|"text_config": {"quantization": {"bits": 4}}
END
config ''
for name in dtype torch_dtype; do
  sed -i 's/"[a-z_]*dtype": "[a-z0-9_]*"/"'$name'": "float8_e4m3fn"/' "$folder/config.json"
  refused "$name is \"float8_e4m3fn\", not float32, bfloat16 or float16" plan
done
for text in '"quantization": null' '"quantize": false' '"quantization_bit": 0' '"audio_config": {"num_quantizers": 8}'; do
  config ", $text"
  run 0 plan
done
config ', "compression_config": {"format": "pack-quantized"}'
refused 'compression_config: quant_method is missing' plan
config ', "text_config": {"quantization_config": {"quant_method": "gptq", "bits": 4}}'
refused 'text_config.quantization_config: quant_method "gptq"' plan

# what another file of the folder says
config ''
echo '{"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}' >"$folder/hf_quant_config.json"
refused 'hf_quant_config.json: this file says that the weights are quantised' plan
refused 'hf_quant_config.json' "$TREADLE" inspect "$folder"
refused 'hf_quant_config.json' "$TREADLE" family check "$folder"
rm "$folder/hf_quant_config.json"

# of families whose published files are not read, the plain weights are taken, and a line says so
echo '{"model_type": "kimi_k25", "text_config": {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
  "num_attention_heads": 2, "vocab_size": 64, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "v_head_dim": 16,
  "qk_rope_head_dim": 16, "moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
  "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_nextn_predict_layers": 0, "rms_norm_eps": 1e-5, "n_group": 1,
  "tie_word_embeddings": false, "dtype": "bfloat16", "quantization_config": {"quant_method": "compressed-tensors"}}}' >"$folder/config.json"
run 0 "$TREADLE" inspect "$folder/config.json"
said 'treadle knows no files with quant_method compressed-tensors: all figures are those of plain weights'
