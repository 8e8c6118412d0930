#!/usr/bin/env bash
# A first start that converts its model (use_hf_ckpt) is killed at any moment: each next start goes on. So it does with
# what such a run may leave: a part of a file, a folder that is whole and has no name yet, one of other weights, locks
# that nobody holds. What is not treadle's stays.
#   TREADLE_KILLS=N   how often it is killed at a random moment (4)
# ctest: stage=gcc timeout=900
source "$TREADLE_SOURCE/tests/found/found.bash"
"$TREADLE" data sequence --out "$folder/data" --seed 1 --noise 0.3 >/dev/null
cp -r "$TREADLE_SOURCE/examples/sequence/policy" "$folder/policy"
cat >"$folder/grpo.yaml" <<END
megatron_training: {tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence, data_path: $folder/data/train.jsonl, train_iters: 1, global_batch_size: 1}
actor_config: {save: $folder/run, micro_batch_size: 2}
rollout: {model_dir: $folder/policy}
megatron: {use_hf_ckpt: true, ckpt_convertor: {hf_model_path: "\${rollout.model_dir}", save_path: $folder/made, pipeline_model_parallel_size: 2}}
generate_config: {sampling_config: {max_tokens: 2}}
rl_config: {n_samples_per_prompt: 2, max_prompt_length: 10, verifier_function: [sequence]}
END
command=("$TREADLE" train "$folder/grpo.yaml" --threads 1)
# goes_on WHAT: a start makes the folder as it should be, and leaves nothing beside it.
goes_on() {
  local status=0
  rm -rf "$folder/run"
  "${command[@]}" >"$folder/out" 2>"$folder/err" </dev/null || status=$?
  [ $status = 0 ] || { cat "$folder/err"; fail "$1: the next start ends with $status"; }
  diff -r -x treadle-origin.json "$folder/right" "$folder/made" || fail "$1: the folder has other values"
  [ ! -e "$folder/made.converting" ] || fail "$1: $(ls -R "$folder/made.converting") is left"
}
"${command[@]}" >/dev/null
cp -r "$folder/made" "$folder/right"
"$TREADLE" convert --from hf --to megatron:pp=2 "$folder/policy" "$folder/plain" >/dev/null
diff -r -x treadle-origin.json "$folder/right" "$folder/plain" || fail "the folder is not what a conversion makes"

RANDOM=5
for ((i = 0; i < ${TREADLE_KILLS:-4}; i++)); do
  rm -rf "$folder/made" "$folder/made.converting" "$folder/run"
  "${command[@]}" >/dev/null 2>&1 </dev/null &
  pid=$!
  until [ -e "$folder/made.converting" ] || [ -e "$folder/made" ] || ! kill -0 $pid 2>/dev/null; do sleep 0.001; done
  sleep "0.0$((RANDOM % 60 + 10))"
  kill -9 $pid 2>/dev/null || true
  wait $pid 2>/dev/null || true
  left=$(ls "$folder" "$folder/made.converting" 2>/dev/null | tr "\n" " ") || true
  goes_on "killed, it left: $left"
done

beside=$folder/made.converting
take() { rm -rf "$folder/made" "$beside"; }
take && mkdir "$beside" && goes_on "an empty folder"
take && mkdir "$beside" && touch "$beside/treadle.lock" && goes_on "a lock"
take && mkdir "$beside" && touch "$beside/treadle-convert.json.12-3.tmp" && goes_on "a part of the journal"
take && mkdir "$beside" && touch "$beside/treadle-origin.json.4242-5.tmp" && goes_on "a part of the origin"
take && cp -r "$folder/plain" "$beside" && echo '{' >"$beside/treadle-origin.json.4242-5.tmp" && goes_on "all but the origin"
goes_on "a folder that is there"
touch "$folder/made/treadle.lock"
goes_on "a folder that is there, with a lock"
[ ! -e "$folder/made/treadle.lock" ] || fail "a lock that nobody holds is left"
inode=$(stat -c %i "$folder/made/release/mp_rank_00_000/model_optim_rng.pt")
mv "$folder/made" "$beside"
goes_on "a whole folder without its name"
[ "$inode" = "$(stat -c %i "$folder/made/release/mp_rank_00_000/model_optim_rng.pt")" ] || fail "a whole folder was made again"
mv "$folder/made" "$beside"
touch "$folder/policy/model.safetensors"
goes_on "a whole folder of weights that have changed since"

take && mkdir -p "$beside/hf"
rm -rf "$folder/run"
refused "is not empty (it has hf)" "${command[@]}"
[ -d "$beside/hf" ] || fail "what is not treadle's is gone"
