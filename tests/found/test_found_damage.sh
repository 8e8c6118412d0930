#!/usr/bin/env bash
# One flipped bit anywhere in a checkpoint of a run, or in Megatron's archives: found, with the name of part, file or
# entry; or nothing that is loaded differs. So are two parts, or the files of two checkpoints, that have changed places.
# A checkpoint without digests passes with a line.
#   TREADLE_FLIPS=N   flipped bits of each kind (6)
# ctest: stage=gcc timeout=900
source "$TREADLE_SOURCE/tests/found/found.bash"
flips=${TREADLE_FLIPS:-6}
policy=$TREADLE_SOURCE/examples/sequence/policy
command -v python3 >/dev/null || { echo "no python3: nothing flips bits"; exit 0; }
# flip FILE SEED: one bit, anywhere in it.
flip() {
  python3 -c '
import random, sys
random.seed(int(sys.argv[2]))
with open(sys.argv[1], "r+b") as file:
    data = bytearray(file.read())
    at = random.randrange(len(data))
    data[at] ^= 1 << random.randrange(8)
    file.seek(0)
    file.write(data)
print("byte %d of %s" % (at, sys.argv[1]))' "$1" "$2"
}

# ---- Archives ----
for kind in megatron:tp=1 torch_dist; do
  "$TREADLE" convert --from hf --to $kind "$policy" "$folder/$kind" >/dev/null
  found=0
  for ((i = 0; i < flips; i++)); do
    rm -rf "$folder/a" "$folder/b"
    cp -r "$folder/$kind" "$folder/a"
    mapfile -t files < <(find "$folder/a" -name '*.pt' -o -name '*.distcp' -o -name .metadata | LC_ALL=C sort)
    what=$(flip "${files[i % ${#files[@]}]}" "$i")
    status=0
    timeout 60 "$TREADLE" convert --from $kind --to hf "$folder/a" "$folder/b" >"$folder/out" 2>"$folder/err" || status=$?
    case $status in
      0) cmp "$folder/b/model.safetensors" "$policy/model.safetensors" || fail "$kind: $what was taken" ;;
      1 | 2) found=$((found + 1)) ;;
      *) cat "$folder/err"; fail "$kind: $what: status $status" ;;
    esac
  done
  [ $found -gt 0 ] || fail "$kind: none of $flips flipped bits was found"
done
# In the middle of a storage, as it was met.
rm -rf "$folder/a" "$folder/b"
cp -r "$folder/megatron:tp=1" "$folder/a"
python3 - "$folder/a/release/mp_rank_00/model_optim_rng.pt" <<'END'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[len(data) // 2] ^= 64
open(sys.argv[1], "wb").write(data)
END
refused "is damaged: its CRC-32 is" "$TREADLE" convert --from megatron:tp=1 --to hf "$folder/a" "$folder/b"
said "model_optim_rng.pt: entry 'archive/data/"

# ---- One rank's file under two names ----
for layout in megatron:tp=2 megatron:tp=1,pp=4; do
  rm -rf "$folder/two" "$folder/b"
  "$TREADLE" convert --from hf --to $layout "$policy" "$folder/two" >/dev/null
  run 0 "$TREADLE" convert --from $layout --to hf --model "$policy" "$folder/two" "$folder/b"
  rm -rf "$folder/b"
  files=("$folder"/two/release/mp_rank_*/model_optim_rng.pt)
  [ ${#files[@]} = 2 ] || files=("${files[@]:1:2}") # of four stages the middle ones, which have tensors of the same names
  cp "${files[1]}" "${files[0]}"
  refused "${files[0]} and ${files[1]} are one file under two names" "$TREADLE" convert --from $layout --to hf --model "$policy" "$folder/two" "$folder/b"
  [ ! -e "$folder/b" ] || fail "$layout: a refused conversion has left something"
done
# Weights of one number are alike on all ranks.
cp -r "$policy" "$folder/zeros"
python3 -c '
import struct, sys
with open(sys.argv[1], "r+b") as file:
    head = 8 + struct.unpack("<Q", file.read(8))[0]
    size = file.seek(0, 2)
    file.seek(head)
    file.write(bytes(size - head))' "$folder/zeros/model.safetensors"
run 0 "$TREADLE" convert --from hf --to megatron:tp=2 "$folder/zeros" "$folder/zeros.megatron"
run 0 "$TREADLE" convert --from megatron:tp=2 --to hf --model "$policy" "$folder/zeros.megatron" "$folder/b"
rm -rf "$folder/b"
cat >"$folder/grpo.yaml" <<END
megatron_training: {tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence, data_path: $folder/data/train.jsonl, train_iters: 2, global_batch_size: 2,
  save_interval: 1}
actor_config: {model: $policy, save: $folder/run, micro_batch_size: 4, lr: 4.0e-4}
generate_config: {sampling_config: {max_tokens: 8}}
rl_config: {n_samples_per_prompt: 4, max_prompt_length: 10, verifier_function: [sequence]}
END
"$TREADLE" data sequence --out "$folder/data" --seed 1 --noise 0.3 >/dev/null
refused "is damaged: its CRC-32 is" "$TREADLE" train "$folder/grpo.yaml" actor.checkpoint_load_path="$folder/a"

# ---- Checkpoints ----
rm -rf "$folder/run"
"$TREADLE" train "$folder/grpo.yaml" --threads 1 >/dev/null
mv "$folder/run" "$folder/right"
digest() { sed -n 's/.*"weights_digest": "\([0-9a-f]*\)".*/\1/p' "$1"; }
# begin: a copy of the run.
begin() { rm -rf "$folder/run" && cp -r "$folder/right" "$folder/run"; }
go_on() { "$TREADLE" train "$folder/grpo.yaml" --threads 1 --json --resume "$@"; }
begin
go_on >"$folder/out"
right=$(digest "$folder/out")
begin
go_on megatron_training.train_iters=3 >"$folder/out"
third=$(digest "$folder/out")
step=$folder/run/global_step_2
grep -q "\"actor/huggingface\": \"$right\"" "$folder/right/global_step_2/digests.json" || fail "its digest of the weights is not that of the run, $right"
found=0
for ((i = 0; i < flips; i++)); do
  begin
  mapfile -t files < <(find "$step" -type f | LC_ALL=C sort)
  what=$(flip "${files[(i * 7) % ${#files[@]}]}" "$i")
  status=0
  go_on megatron_training.train_iters=3 >"$folder/out" 2>"$folder/err" </dev/null || status=$?
  case $status in
    0) [ "$(digest "$folder/out")" = "$third" ] || fail "$what was taken" ;;
    2) found=$((found + 1)) ;;
    *) cat "$folder/err"; fail "$what: status $status" ;;
  esac
  begin
  flip "${files[(i * 7) % ${#files[@]}]}" "$i" >/dev/null
  check=0
  "$TREADLE" inspect "$step" --check >"$folder/out" 2>"$folder/err" || check=$?
  [ $check = $((status / 2)) ] || { cat "$folder/err"; fail "$what: inspect --check ends with $check, --resume with $status"; }
done
[ $found -gt 0 ] || fail "none of $flips flipped bits of a checkpoint was found"

begin
run 0 "$TREADLE" inspect "$folder/run" --check
printed "global_step_1: is what was saved"
mv "$step/actor/optimizer/exp_avg" "$folder/aside"
mv "$step/actor/optimizer/exp_avg_sq" "$step/actor/optimizer/exp_avg"
mv "$folder/aside" "$step/actor/optimizer/exp_avg_sq"
refused "actor/optimizer/exp_avg is damaged, or of another checkpoint" go_on
run 1 "$TREADLE" inspect "$folder/run" --check
said "actor/optimizer/exp_avg is damaged"
printed "global_step_1: is what was saved"
for file in data.json rng.json actor/optimizer/state.json actor/huggingface/model.safetensors actor/optimizer/master/model.safetensors digests.json; do
  begin
  mv "$step/$file" "$folder/aside"
  mv "$folder/run/global_step_1/$file" "$step/$file"
  mv "$folder/aside" "$folder/run/global_step_1/$file"
  refused "global_step_2: " go_on
  run 1 "$TREADLE" inspect "$step" --check
done
begin
rm "$step/actor/optimizer/state.json"
refused "has no file actor/optimizer/state.json" go_on
begin
rm "$step/digests.json"
run 0 go_on
[ "$(digest "$folder/out")" = "$right" ] || fail "an older checkpoint continues with other weights"
said "$step has no digests.json, as checkpoints of older versions have none"
run 0 "$TREADLE" inspect "$step" --check
printed "has no digests.json"
# The newest is gone, or all are: that is said.
begin
rm -r "$step"
run 0 go_on
said "run/latest_checkpointed_iteration.txt says '2', which is not a whole checkpoint: the run goes on from global_step_1"
[ "$(digest "$folder/out")" = "$right" ] || fail "from step 1 it comes to other weights"
begin
rm -r "$folder/run/global_step_"*
run 0 go_on
said "run/latest_checkpointed_iteration.txt says '2', and there is no checkpoint: the run begins anew"
begin
run 0 go_on
! grep -q latest_checkpointed "$folder/err" || fail "a word about a whole run"
refused "is not a checkpoint global_step_K of a run, and has none" "$TREADLE" inspect "$policy" --check
