#!/usr/bin/env bash
# A symbolic link where an output goes is refused before the work begins, and what it leads to stays as it was. Counts
# that no run can have in a checkpoint are refused by name. A last line of metrics.jsonl or samples.jsonl that is not
# whole is cut off at --resume, which says so.
# ctest: timeout=300
source "$TREADLE_SOURCE/tests/found/found.bash"
policy=$TREADLE_SOURCE/examples/sequence/policy
"$TREADLE" data sequence --out "$folder/data" --seed 1 --noise 0.3 >/dev/null
head -20 "$folder/data/sft.jsonl" >"$folder/rows.jsonl"
cat >"$folder/train.yaml" <<END
megatron_training: {tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence, data_path: $folder/data/train.jsonl, train_iters: 2, global_batch_size: 2,
  save_interval: 1}
actor_config: {model: $policy, save: $folder/run, micro_batch_size: 4, lr: 4.0e-4}
generate_config: {sampling_config: {max_tokens: 8}}
rl_config: {n_samples_per_prompt: 4, max_prompt_length: 10, verifier_function: [sequence]}
END
cat >"$folder/sft.yaml" <<END
megatron_training: {tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence, data_path: $folder/rows.jsonl, train_iters: 2, global_batch_size: 4,
  save_interval: 1}
actor_config: {model: $policy, save: $folder/run, micro_batch_size: 2, lr: 1.0e-3}
END
train=("$TREADLE" train "$folder/train.yaml" --threads 1)
sft=("$TREADLE" sft "$folder/sft.yaml" --threads 1)

# ---- Inputs ----
# replaced COMMAND...: the output is one of the inputs, by whatever path; the input stays.
replaced() {
  local sum
  sum=$(cat "$folder/mine/"* | sha256sum)
  refused ', and would be replaced: name another file for the result' "$@"
  [ "$(cat "$folder/mine/"* | sha256sum)" = "$sum" ] || fail "an input is gone: $*"
}
cp -r "$policy" "$folder/mine"
echo '{"text": "1,2"}' >"$folder/mine/rows.jsonl"
echo '{"step": 1}' >"$folder/mine/metrics.jsonl"
ln "$folder/mine/rows.jsonl" "$folder/again.jsonl"
rows=(--file "$folder/mine/rows.jsonl")
for out in mine/rows.jsonl mine/../again.jsonl mine/config.json mine/model.safetensors; do
  replaced "$TREADLE" score --model "$folder/mine" "${rows[@]}" --out "$folder/$out"
  replaced "$TREADLE" grad "$folder/mine" "${rows[@]}" --out "$folder/$out"
done
replaced "$TREADLE" score --model "$folder/mine" "${rows[@]}" --logits "$folder/again.jsonl"
replaced "$TREADLE" generate --model "$folder/mine" "${rows[@]}" --out "$folder/mine/tokenizer_config.json"
replaced "$TREADLE" report "$folder/mine" --out "$folder/mine/metrics.jsonl"
for i in 1 2; do run 0 "$TREADLE" grad "$folder/mine" "${rows[@]}" --out "$folder/mine/grads.safetensors"; done

# ---- Links ----
mkdir "$folder/target"
echo mine >"$folder/file"
ln -s "$folder/target" "$folder/link"
ln -s "$folder/file" "$folder/file-link"
kept() {
  [ -z "$(ls -A "$folder/target")" ] || fail "$1: something was written through a link: $(ls "$folder/target")"
  [ "$(cat "$folder/file")" = mine ] || fail "$1: a file was written through a link"
  [ -L "$folder/link" ] && [ -L "$folder/file-link" ] || fail "$1: a link is gone"
}
# linked WHAT COMMAND...
linked() {
  local what=$1
  shift
  refused "is a symbolic link" "$@"
  ! grep -q "^step" "$folder/out" || fail "$what: the work had begun"
  kept "$what"
}
for slash in "" /; do
  linked "save of train" "${train[@]}" actor_config.save="$folder/link$slash"
  linked "save of sft" "${sft[@]}" actor_config.save="$folder/link$slash"
  linked "dump_rollouts" "${train[@]}" rl_config.dump_rollouts="$folder/link$slash"
  linked "convert" "$TREADLE" convert --from hf --to megatron:tp=1 "$policy" "$folder/link$slash"
  linked "data" "$TREADLE" data sequence --out "$folder/link$slash"
  linked "make-model" "$TREADLE" make-model "$folder/link$slash" --model "$policy/config.json"
done
linked "save_path" "${train[@]}" megatron.use_hf_ckpt=true megatron.ckpt_convertor.hf_model_path="$policy" megatron.ckpt_convertor.save_path="$folder/link"
linked "generate" "$TREADLE" generate --model "$policy" --prompt-ids 1,2 --max-new-tokens 1 --out "$folder/file-link"
[ ! -e "$folder/run" ] || fail "runs that are refused leave $(ls -R "$folder/run")"
for name in config.yaml metrics.jsonl samples.jsonl trace.jsonl latest_checkpointed_iteration.txt switch.json memory.json treadle.lock; do
  mkdir "$folder/run"
  ln -s "$folder/file" "$folder/run/$name"
  linked "$name of train" "${train[@]}"
  linked "$name of sft" "${sft[@]}"
  [ "$(ls "$folder/run")" = "$name" ] || fail "$name: the run left $(ls "$folder/run")"
  rm -r "$folder/run"
done
for name in global_step_2 validation; do
  mkdir "$folder/run"
  ln -s "$folder/target" "$folder/run/$name"
  linked "$name" "${train[@]}"
  rm -r "$folder/run"
done
mkdir "$folder/rolls"
ln -s "$folder/file" "$folder/rolls/2.jsonl"
linked "a file of dump_rollouts" "${train[@]}" rl_config.dump_rollouts="$folder/rolls"
mkdir "$folder/other"
ln -s "$folder/file" "$folder/other/sft.jsonl"
linked "a file of data" "$TREADLE" data sequence --out "$folder/other"
[ "$(ls "$folder/other")" = sft.jsonl ] || fail "data wrote before it looked: $(ls "$folder/other")"
rm -rf "$folder/run"
mkdir "$folder/real" # folders on the way may be links
ln -s "$folder/real" "$folder/way"
run 0 "${sft[@]}" actor_config.save="$folder/way/run"
[ -d "$folder/real/run/global_step_2" ] || fail "a link on the way is not followed"
linked "report" "$TREADLE" report "$folder/real/run" --out "$folder/file-link"

# ---- Counts ----
for command in train sft; do
  run 0 "$TREADLE" $command "$folder/$command.yaml" --threads 1 actor_config.save="$folder/$command"
  for name in optimizer_steps drawn; do
    [ $command = train ] || [ $name != drawn ] || continue
    rm -rf "$folder/run"
    cp -r "$folder/$command" "$folder/run"
    rm "$folder/run/global_step_2/digests.json"
    sed -i "s/\"$name\": [0-9]*/\"$name\": 1000000000000000/" "$folder/run/global_step_2/data.json"
    refused "data.json: '$name' is 1000000000000000, and no run counts beyond 1099511627776" "$TREADLE" $command "$folder/$command.yaml" --resume
  done
  echo '{"step": 1000000000000000}' >"$folder/run/global_step_2/actor/optimizer/state.json"
  cp "$folder/$command/global_step_2/data.json" "$folder/run/global_step_2/data.json"
  refused "state.json: 'step' is 1000000000000000" "$TREADLE" $command "$folder/$command.yaml" --resume
done

# ---- Torn lines ----
for command in train sft; do
  for tail in '{"step":3,"actor/gr' '{"step":3,"actor/gr\n' '\0\0\0\0'; do
    for name in metrics samples; do
      [ $command = train ] || [ $name = metrics ] || continue
      rm -rf "$folder/run"
      cp -r "$folder/$command" "$folder/run"
      lines=$(wc -l <"$folder/run/$name.jsonl")
      printf "$tail" >>"$folder/run/$name.jsonl"
      run 0 "$TREADLE" $command "$folder/$command.yaml" --threads 1 --resume megatron_training.train_iters=3
      said "$name.jsonl: its last line, $((lines + 1)), was not whole, as after a kill: it is cut off"
      [ "$(grep -c '"step":' "$folder/run/metrics.jsonl")" = 3 ] || fail "$command: metrics.jsonl has not 3 lines"
      ! grep -q 'actor/gr$' "$folder/run/$name.jsonl" || fail "the torn line is there"
    done
  done
done
sed -i '1s/.*/{"st/' "$folder/run/metrics.jsonl" # no last line
refused "metrics.jsonl: line 1, column 5: the text ends where" "${sft[@]}" --resume
