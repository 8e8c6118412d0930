#!/usr/bin/env bash
# What a config says beside sizes was not heard: switches of transformers that change what a model computes are refused where something is computed,
# not where weights are moved; two dtypes that disagree are said. Every command says what was taken in another way than config or files say.
# ctest: timeout=120
. "$(dirname "$0")/found.bash"

sequence=$TREADLE_SOURCE/examples/sequence model=$folder/model
cp -r "$sequence/policy" "$model"
config=$(cat "$sequence/policy/config.json")
# with TEXT: the config has these fields, too.
with() { sed "s|^{|{$1,|" <<<"$config" >"$model/config.json"; }
echo '{"ids": [3, 4, 5, 6], "mask": [0, 1, 1, 1]}' >"$folder/rows.jsonl"
echo '{"token_ids": [3, 4, 5, 6]}' >"$folder/texts.jsonl"
"$TREADLE" data sequence --out "$folder/data" --seed 1 >/dev/null
head -1 "$folder/data/test.jsonl" >"$folder/prompts.jsonl"
cat >"$folder/sft.yaml" <<END
megatron_training: {tokenizer_name_or_path: $sequence, train_iters: 1, global_batch_size: 1, data_path: $folder/rows.jsonl}
actor_config: {model: $model, save: $folder/run}
END
cat >"$folder/grpo.yaml" <<END
megatron_training: {tokenizer_name_or_path: $sequence, train_iters: 1, global_batch_size: 1, data_path: $folder/prompts.jsonl}
actor_config: {model: $model, save: $folder/run}
generate_config: {sampling_config: {max_tokens: 4}}
rl_config: {n_samples_per_prompt: 2, max_prompt_length: 12, verifier_function: [sequence]}
END
# computing NAME: the command line of one that computes.
computing() {
  rm -rf "$folder/run"
  case $1 in
    score) line=(score --model "$model" --file "$folder/texts.jsonl") ;;
    generate) line=(generate --model "$model" --prompt-ids 3,4 --max-new-tokens 2) ;;
    eval) line=(eval "$model" --data "$folder/prompts.jsonl" --reward sequence --max-new-tokens 4 --tokenizer "$sequence") ;;
    grad) line=(grad "$model" --file "$folder/rows.jsonl") ;;
    sft) line=(sft "$folder/sft.yaml") ;;
    train) line=(train "$folder/grpo.yaml") ;;
  esac
  line=("$TREADLE" "${line[@]}" --threads 1)
}

# ---- Switches ----

while IFS='|' read -r text said; do
  with "$text"
  computing score
  refused "$model/config.json: $said" "${line[@]}"
done <<'END'
"is_causal": false|is_causal is false, and the engine does not compute attention to later tokens
"use_bidirectional_attention": true|use_bidirectional_attention is true
"use_bidirectional_attention": "all"|use_bidirectional_attention is "all"
"is_encoder_decoder": true|is_encoder_decoder is true, and the engine does not compute a decoder with an encoder
"add_cross_attention": true|add_cross_attention is true, and the engine does not compute cross attention
"attn_logit_softcapping": 50.0|attn_logit_softcapping is 50.0
"final_logit_softcapping": 30|final_logit_softcapping is 30
"logits_scaling": 8|logits_scaling is 8, and the engine does not compute scaled logits
"logit_scale": 0.0625|logit_scale is 0.0625
"embedding_multiplier": 12|embedding_multiplier is 12
"residual_multiplier": 0.22|residual_multiplier is 0.22
"mlp_multipliers": [1.0, 0.5]|mlp_multipliers is [1.0,0.5]
"attention_multiplier": 0.5|attention_multiplier is 0.5
"query_pre_attn_scalar": 7|query_pre_attn_scalar is 7
"scale_emb": 12|scale_emb is 12, and the engine does not compute scaled embeddings
"scale_depth": 1.4|scale_depth is 1.4
"clip_qkv": 8|clip_qkv is 8
"swiglu_limit": 7.0|swiglu_limit is 7.0
"attention_chunk_size": 8192|attention_chunk_size is 8192
"layer_types": ["sliding_attention"]|layer_types has 'sliding_attention' for layer 0
END
with '"is_causal": false'
for name in generate eval grad sft train; do
  computing $name
  refused "$model/config.json: is_causal is false" "${line[@]}"
  [ ! -e "$folder/run" ] || fail "$name: a refused run has left a folder"
done
# Weights are moved all the same.
run 0 "$TREADLE" plan --model "$model" --from megatron:tp=1 --to vllm:tp=1 --ranks 1
run 0 "$TREADLE" layout --model "$model" --layout megatron:tp=1 --ranks 1 --rank 0
run 0 "$TREADLE" convert --from hf --to megatron:tp=1 "$model" "$folder/megatron"
# Values under which nothing changes.
neutral='"is_causal": true, "is_encoder_decoder": false, "add_cross_attention": null, "use_bidirectional_attention": false'
neutral+=', "attn_logit_softcapping": null, "final_logit_softcapping": 0.0, "logits_scaling": 1, "embedding_multiplier": 1.0'
neutral+=', "mlp_multipliers": [1, 1.0], "clip_qkv": null, "attention_chunk_size": null'
with "$neutral"
computing score
run 0 "${line[@]}"
cp "$folder/out" "$folder/with"
echo "$config" >"$model/config.json"
run 0 "${line[@]}"
cmp "$folder/out" "$folder/with" || fail "neutral values change what is computed"

# ---- Notes ----

other() { sed 's/"torch_dtype": *"[a-z0-9]*"/"torch_dtype": "float16"/' <<<"$config" | sed "s|^{|{$1|" >"$model/config.json"; }
other '"dtype": "bfloat16", '
for name in score generate eval grad sft train; do
  computing $name
  run 0 "${line[@]}"
  [ "$(grep -c "torch_dtype is float16 beside a dtype of bfloat16, which is taken" "$folder/err")" = 1 ] ||
    { cat "$folder/err"; fail "$name: two dtypes are not said once"; }
done
other ''
for name in score generate eval grad sft train; do
  computing $name
  run 0 "${line[@]}"
  [ "$(grep -c "dtype is .*, and the files have .*, which is taken" "$folder/err")" = 1 ] || { cat "$folder/err"; fail "$name: another type of the files is not said once"; }
done

# ---- Keys of generation_config.json ----

echo "$config" >"$model/config.json"
for name in generate eval; do
  computing $name
  echo '{"do_sample": true, "min_length": 0, "num_beams": 1, "suppress_tokens": [], "bad_words_ids": null, "typical_p": 1.0, "eos_token_id": 1}' >"$model/generation_config.json"
  run 0 "${line[@]}"
  ! grep -q "not heard" "$folder/err" || fail "$name: values without effect are said"
  echo '{"min_length": 4, "num_beams": 4, "suppress_tokens": [5], "typical_p": 0.9, "stop_strings": ["x"], "forced_bos_token_id": 0, "temperature": 0.7}' >"$model/generation_config.json"
  run 0 "${line[@]}"
  said "$model/generation_config.json: not heard, though transformers generates other tokens with it: min_length, stop_strings, num_beams, typical_p, forced_bos_token_id, suppress_tokens"
  [ "$(grep -c "not heard" "$folder/err")" = 1 ] || fail "$name: it is said more than once"
done
rm "$model/generation_config.json"
echo "switches are refused, notes are said"
