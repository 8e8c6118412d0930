#!/usr/bin/env bash
# Published fp8 files have their scales in BF16 or F16, and were refused: "weight_scale_inv is BF16 instead of F32".
. "$(dirname "$0")/found.bash"

for type in F32 BF16 F16; do
  mkdir "$folder/$type"
  cat >"$folder/$type/config.json" <<'END'
{"model_type": "qwen3", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 2,
 "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 128, "rms_norm_eps": 1e-06, "tie_word_embeddings": false, "dtype": "bfloat16",
 "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
END
done
# Codes 0x38 (1.0) and 0x40 (2.0) by turns; the scales are 0.25, 0.5, ..., which all three types hold.
python3 - "$folder" <<'END'
import json, struct, sys

def code(type, value):
    if type == "F16":
        return struct.pack("<e", value)
    return struct.pack("<f", value)[0 if type == "F32" else 2:]

for type in ("F32", "BF16", "F16"):
    header, data = {}, b""
    def add(name, dtype, shape, content):
        global data
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    for name, shape in (("model.embed_tokens", [128, 128]), ("lm_head", [128, 128]), ("model.norm", [128]),
                        ("model.layers.0.input_layernorm", [128]), ("model.layers.0.post_attention_layernorm", [128]),
                        ("model.layers.0.self_attn.q_norm", [128]), ("model.layers.0.self_attn.k_norm", [128])):
        elems = shape[0] * (shape[1] if len(shape) > 1 else 1)
        add(name + ".weight", "BF16", shape, b"\x80\x3f" * elems)
    for name, rows, cols in (("self_attn.q_proj", 256, 128), ("self_attn.k_proj", 256, 128), ("self_attn.v_proj", 256, 128),
                             ("self_attn.o_proj", 128, 256), ("mlp.gate_proj", 256, 128), ("mlp.up_proj", 256, 128),
                             ("mlp.down_proj", 128, 256)):
        name = f"model.layers.0.{name}.weight"
        add(name, "F8_E4M3", [rows, cols], b"\x38\x40" * (rows * cols // 2))
        add(name + "_scale_inv", type, [rows // 128, cols // 128], code(type, 0.25) + code(type, 0.5))
    text = json.dumps(header).encode()
    open(f"{sys.argv[1]}/{type}/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
END

for type in F32 BF16 F16; do
  run 0 "$TREADLE" switch --model "$folder/$type" --train megatron:tp=1 --infer vllm:tp=1 --cycles 0 --check
  printed PASS
  run 0 "$TREADLE" family check "$folder/$type"
  # between files of Hugging Face: as they are
  run 0 "$TREADLE" convert "$folder/$type" "$folder/same-$type" --from hf --to hf
  cmp "$folder/$type/model.safetensors" "$folder/same-$type/model.safetensors" || fail "$type: other bytes"
  # decoded: the same values, whatever the type
  run 0 "$TREADLE" convert "$folder/$type" "$folder/plain-$type" --from hf --to hf:dtype=bf16
  cmp "$folder/plain-F32/model.safetensors" "$folder/plain-$type/model.safetensors" || fail "$type: other values"
  # quantised again: new scales are fp32
  run 0 "$TREADLE" convert "$folder/$type" "$folder/megatron-$type" --from hf --to megatron:tp=2
  run 0 "$TREADLE" convert "$folder/megatron-$type" "$folder/back-$type" --model "$folder/$type" --from megatron:tp=2 --to hf:dtype=fp8
  run 0 "$TREADLE" switch --model "$folder/back-$type" --train megatron:tp=1 --infer vllm:tp=1 --cycles 0 --check
  ! grep -aqF '"BF16", "shape": [2, 1]' "$folder/back-$type/model.safetensors" || fail "$type: scales that were made are not fp32"
done
cmp "$folder/back-BF16/model.safetensors" "$folder/back-F16/model.safetensors" || fail "other fp8 values"
sed -i 's/"F16"/"F64"/g' "$folder/F16/model.safetensors"
run 2 "$TREADLE" inspect "$folder/F16"
