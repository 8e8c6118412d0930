#!/usr/bin/env bash
# treadle train with RLinf's use_hf_ckpt: the first start converts, the next ones find it; the same bits as without; another layout and changed weights are
# noticed; a conversion that fails leaves nothing, one that was killed continues in the next run. And checkpoint_load_path: a checkpoint that is there.
# ctest: label=mpi timeout=300
set -euo pipefail
source "$TREADLE_SOURCE/tests/cli/ranks.sh"
converted=$folder/out/first/converted_ckpts/actor

"$TREADLE" data sequence --out "$folder/data" --seed 1 --noise 0.3 >/dev/null
cp -r "$TREADLE_SOURCE/examples/sequence/policy" "$folder/policy"
cat >"$folder/grpo.yaml" <<END
runner: {output_dir: $folder/out, experiment_name: first}
rollout: {model_dir: $folder/policy}
megatron_training:
  tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence
  data_path: $folder/data/train.jsonl
  train_iters: 1
  global_batch_size: 2
actor_config: {save: $folder/run, micro_batch_size: 4, lr: 1.0e-3}
generate_config: {sampling_config: {max_tokens: 8}}
rl_config: {n_samples_per_prompt: 4, max_prompt_length: 10, use_kl_loss: true, verifier_function: [sequence]}
actor:
  checkpoint_load_path: null
  model: {tensor_model_parallel_size: 1, pipeline_model_parallel_size: 1}
  megatron:
    use_hf_ckpt: True
    ckpt_convertor:
      hf_model_path: \${rollout.model_dir}
      save_path: \${runner.output_dir}/\${runner.experiment_name}/converted_ckpts/actor
      tensor_model_parallel_size: 2
      pipeline_model_parallel_size: 2
END

# run NAME RANKS KEYS...
run() {
  local name=$1 ranks=$2
  shift 2
  rm -rf "$folder/run"
  "${launch[@]}" -n "$ranks" "$TREADLE" train "$folder/grpo.yaml" "$@" --threads 1 --json >"$folder/$name" 2>"$folder/$name.err" ||
    { cat "$folder/$name.err"; fail "$name: failed"; }
  [ "$(value "$name" logprob_differing)" = 0 ] || fail "$name: log-probabilities differ"
  [ ! -e "$converted.converting" ] || fail "$name: a conversion is left"
}
# same NAME: the bits of the run without a conversion
same() {
  for key in weights_digest losses_digest; do
    [ "$(value plain $key)" = "$(value "$1" $key)" ] || fail "$1 has another $key than without a conversion"
  done
}
# refused WORDS KEYS...
refused() {
  local words=$1 status=0
  shift
  rm -rf "$folder/run"
  "$TREADLE" train "$folder/grpo.yaml" "$@" >"$folder/out.txt" 2>"$folder/err" || status=$?
  [ $status = 2 ] || { cat "$folder/err"; fail "status $status for: $*"; }
  grep -q -- "$words" "$folder/err" || { cat "$folder/err"; fail "no '$words' for: $*"; }
}

run plain 1 actor.megatron.use_hf_ckpt=false
mv "$folder/run/global_step_1/actor/huggingface" "$folder/trained"
rm -r "$folder/run"
[ ! -e "$folder/out" ] || fail "it was converted though nobody asked"

# A conversion that fails, as files may have 100 KiB, leaves nothing; what is not treadle's stays.
status=0
(
  trap '' XFSZ
  ulimit -f 100
  "$TREADLE" train "$folder/grpo.yaml" 2>&1 | cat >"$folder/err"
  exit "${PIPESTATUS[0]}"
) || status=$?
[ $status = 2 ] || { cat "$folder/err"; fail "a conversion that fails: status $status"; }
grep -q 'save_path (line 18): .*actor.converting/.*File too large' "$folder/err" || { cat "$folder/err"; fail "it is not said where it failed"; }
[ -z "$(ls "$(dirname "$converted")")" ] || fail "a conversion that failed leaves $(ls "$(dirname "$converted")")"
mkdir -p "$converted.converting/hf"
refused 'save_path (line 18): .*is not empty'
[ -e "$converted.converting/hf" ] || fail "what is not treadle's was removed"
rm -r "$folder/out"

run first 2
grep -q "^converting the model to $converted" "$folder/first.err" || { cat "$folder/first.err"; fail "it does not say that it converts"; }
[ -f "$converted/release/mp_rank_01_001/model_optim_rng.pt" ] || { find "$folder/out"; fail "not converted for tp=2, pp=2"; }
same first
before=$(stat -c %Y-%i "$converted/release/mp_rank_00_000/model_optim_rng.pt")
run second 1
grep -q "^$converted: converted by an earlier run" "$folder/second.err" || { cat "$folder/second.err"; fail "it does not say that it found it"; }
[ "$before" = "$(stat -c %Y-%i "$converted/release/mp_rank_00_000/model_optim_rng.pt")" ] || fail "it was converted again"
same second

cp -r "$converted" "$folder/other"
refused 'exclude each other' actor.checkpoint_load_path="$folder/other"
run loaded 1 actor.megatron.use_hf_ckpt=false actor.checkpoint_load_path="$folder/other"
same loaded
"$TREADLE" convert --from hf --to megatron:tp=2 "$folder/policy" "$folder/by_hand" >/dev/null
refused 'and no run has converted it.*checkpoint_load_path' megatron.ckpt_convertor.save_path="$folder/by_hand"
run hand 1 actor.megatron.use_hf_ckpt=false actor.checkpoint_load_path="$folder/by_hand" megatron.ckpt_convertor.pipeline_model_parallel_size=1
same hand
# It is the folder's values that count, also for the reference.
"$TREADLE" convert --from hf --to megatron:tp=1 "$folder/trained" "$folder/trained_by_hand" >/dev/null
one=(megatron.ckpt_convertor.tensor_model_parallel_size=1 megatron.ckpt_convertor.pipeline_model_parallel_size=1)
run trained.hf 1 actor.megatron.use_hf_ckpt=false rollout.model_dir="$folder/trained"
run trained.megatron 1 actor.megatron.use_hf_ckpt=false actor.checkpoint_load_path="$folder/trained_by_hand" "${one[@]}"
for key in weights_digest losses_digest; do
  [ "$(value trained.hf $key)" = "$(value trained.megatron $key)" ] || fail "checkpoint_load_path has another $key than the same weights of Hugging Face"
done
[ "$(value trained.hf weights_digest)" != "$(value plain weights_digest)" ] || fail "other weights have the same digest"
# And with the controller apart: in an engine of the reference's own, on a pool of its own or beside Actor; and where the first start converts.
apart() {
  local name=$1 as=$2 ranks=$3 key
  shift 3
  run "$name" "$ranks" "$@"
  for key in weights_digest losses_digest; do
    [ "$(value "$as" $key)" = "$(value "$name" $key)" ] || fail "$name has another $key than $as"
  done
}
pools=('resource_pools={policy: [1], other: [1]}')
apart pools trained.hf 3 actor.megatron.use_hf_ckpt=false actor.checkpoint_load_path="$folder/trained_by_hand" "${one[@]}" "${pools[@]}" 'mapping={ActorRollout: policy, RefPolicy: other}'
apart sides trained.hf 3 actor.megatron.use_hf_ckpt=false actor.checkpoint_load_path="$folder/trained_by_hand" "${one[@]}" "${pools[@]}" 'mapping={Actor: policy, Rollout: other, RefPolicy: policy}'
apart load trained.hf 3 actor.megatron.use_hf_ckpt=false actor_config.load="$folder/trained_by_hand" "${one[@]}" "${pools[@]}" 'mapping={ActorRollout: policy, RefPolicy: other}'
apart converts plain 3 megatron.ckpt_convertor.save_path="$folder/apart" "${pools[@]}" 'mapping={ActorRollout: policy, RefPolicy: other}'
[ -f "$folder/apart/release/mp_rank_01_001/model_optim_rng.pt" ] || fail "the controller apart has not converted"
refused 'checkpoint_load_path (override).*mp_rank' actor.megatron.use_hf_ckpt=false actor.checkpoint_load_path="$folder/by_hand"

refused "converted to 'megatron:tp=2,pp=2', and this run takes 'megatron:tp=2,pp=1'" actor.megatron.ckpt_convertor.pipeline_model_parallel_size=1
refused 'the model that is converted is the one that is trained' actor_config.model="$TREADLE_SOURCE/examples/sequence/policy"
refused 'needs megatron.ckpt_convertor.save_path' megatron.ckpt_convertor.save_path=null
touch -d '2020-01-01' "$folder/policy/model.safetensors"
refused 'save_path (line 18): .*model.safetensors has changed since'

# Killed: the next run continues what is left.
rm -rf "$folder/out" "$folder/run"
mkdir -p "$(dirname "$converted")"
"$TREADLE" train "$folder/grpo.yaml" --threads 1 >/dev/null 2>&1 &
pid=$!
for _ in $(seq 2000); do
  if [ -e "$converted.converting/treadle-convert.json" ] || [ -e "$converted" ]; then break; fi
  sleep 0.001
done
kill -9 $pid 2>/dev/null || true
wait $pid 2>/dev/null || true
run again 2
same again
