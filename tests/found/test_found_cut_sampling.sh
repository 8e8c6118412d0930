#!/usr/bin/env bash
# Runs with top_p, top_k and min_p: log-probabilities are of what tokens were drawn from, in the generator and the trainer, with every layout, through
# several mini batches and epochs with a reference; so are the gradients of dumps. TREADLE_FULL=1: all cuts in all layouts, above 100,000 log-probabilities.
# ctest: label=mpi timeout=300
. "$TREADLE_SOURCE/tests/found/found.bash"
command -v python3 >/dev/null || { echo "no python3 here: skipped"; exit 0; }
launch=("$MPIEXEC")
case $("$MPIEXEC" --version 2>/dev/null) in *'Open MPI'* | *OpenRTE*) launch+=(--oversubscribe) ;; esac
policy=$TREADLE_SOURCE/examples/sequence/policy
prompts=4 steps=2
[ -z "${TREADLE_FULL:-}" ] || { prompts=64 steps=4; }
"$TREADLE" data sequence --out "$folder/data" --seed 1 >/dev/null
cat >"$folder/grpo.yaml" <<END
megatron_training:
  tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence
  data_path: $folder/data/train.jsonl
  train_iters: $steps
  global_batch_size: $prompts
actor_config:
  model: $policy
  save: $folder/run
  micro_batch_size: 4
  lr: 1.0e-3
generate_config:
  sampling_config: {max_tokens: 12}
rl_config:
  n_samples_per_prompt: 4
  max_prompt_length: 10
  verifier_function: [sequence]
  dump_rollouts: $folder/dump
END
S=generate_config.sampling_config
# train RANKS KEYS...: a run from the start, without one log-probability that differs.
train() {
  local ranks=$1 start=()
  shift
  [ "$ranks" = 1 ] || start=("${launch[@]}" -n "$ranks")
  rm -rf "$folder/run" "$folder/dump"
  run 0 "${start[@]}" "$TREADLE" train "$folder/grpo.yaml" --threads 1 "$@"
  printed '0 of '
  sed -n 's/.*0 of \([0-9]*\) log-probabilities differ.*/\1/p' "$folder/out" >>"$folder/tokens"
}

# ---- Four mini batches, two epochs, a reference ----
cuts=("$S.top_p=0.8" "$S.top_k=5" "$S.min_p=0.1" "$S.top_p=0.8 $S.top_k=5 $S.temperature=1.3" "$S.top_p=0.9 $S.min_p=0.05 $S.temperature=1.5")
layouts=("1" "2 actor_config.tensor_model_parallel_size=2 generate_config.infer_tensor_parallel_size=2"
  "2 actor_config.pipeline_model_parallel_size=2 generate_config.infer_tensor_parallel_size=1 generate_config.infer_pipeline_parallel_size=2")
for c in "${!cuts[@]}"; do
  for l in "${!layouts[@]}"; do
    # all cuts on one rank, and each other layout with two of them
    [ -n "${TREADLE_FULL:-}" ] || [ "$l" = 0 ] || [ $(((c + l) % 3)) = 0 ] || continue
    # shellcheck disable=SC2086
    train ${layouts[l]} ${cuts[c]} rl_config.mini_batch_size=$((prompts / 4)) rl_config.epochs=2 rl_config.use_kl_loss=true
    python3 - "$folder" <<'END' || fail "${cuts[c]}, ${layouts[l]}"
import json, math, struct, sys
folder = sys.argv[1]
for line in open(folder + '/run/metrics.jsonl'):
    for key, value in json.loads(line).items():
        assert not isinstance(value, float) or math.isfinite(value), (key, value)
rows = [json.loads(line) for line in open(folder + '/dump/1.jsonl')]
assert {row['mini_batch'] for row in rows} == {0, 1, 2, 3}
for row in rows: # the policy is still the reference: its KL is exactly 0
    assert row['old_log_probs'] == row['ref_log_probs'] == row['rollout_log_probs'], row['uid']
    assert len(row['kept']) == len(row['ids']) and all(i in ids for i, ids in zip(row['ids'], row['kept'])), row['uid']
assert any(len(ids) > 1 for row in rows for ids in row['kept'])
END
    sed 's/.*digest of the weights//;t;d' "$folder/out" >"$folder/digest"
    [ "$l" = 0 ] && cp "$folder/digest" "$folder/first"
    cmp -s "$folder/digest" "$folder/first" || fail "${cuts[c]}: other weights with ${layouts[l]}"
  done
done

# ---- The KL in rewards, and figures computed again ----
train 1 "$S.top_p=0.8" rl_config.use_kl_in_reward=true rl_config.init_kl_coef=0.1 rl_config.entropy_coeff=0.01 rl_config.mini_batch_size=2
head -1 "$folder/run/metrics.jsonl" | grep -q '"actor/reward_kl_penalty":0.0,' || fail "a KL in step 1"
check() { "$TREADLE_SOURCE/tools/check-rollouts" "$folder/run/config.yaml" "$folder/run/metrics.jsonl" "$folder/dump"; }
check >"$folder/out" || { cat "$folder/out"; fail "other figures"; }
grep -q '[1-9][0-9]* of a cut' "$folder/out" || fail "check-rollouts saw no cut"
# With two replicas of the generator, whose answers come together, and groups that are left out of the batch.
for more in '' 'rl_config.filter_groups_enable=true rl_config.filter_groups_max_batches=20'; do
  # shellcheck disable=SC2086
  train 2 "$S.top_p=0.9" "$S.temperature=1.2" rl_config.mini_batch_size=2 $more
  check >"$folder/out" || { cat "$folder/out"; fail "other figures with two replicas $more"; }
done
sed -i '1 s/"kept": \[\[[0-9]*/&, 15/' "$folder/dump/1.jsonl"
if check >/dev/null 2>&1; then fail "ids that were not kept are not seen"; fi

# ---- Gradients of a dump are those of the run, in another layout, too ----
train 1 "$S.top_p=0.8" "$S.temperature=1.2" megatron_training.train_iters=1 rl_config.use_kl_loss=true rl_config.entropy_coeff=0.01
cp "$folder/run/config.yaml" "$folder/config.yaml"
grad() { "$TREADLE" grad "$policy" --loss grpo --config "$folder/config.yaml" --file "$1" --json "${@:2}"; }
grad "$folder/dump/1.jsonl" >"$folder/grad"
python3 "$TREADLE_SOURCE/tests/tools/same_norm.py" "$folder/grad" "$folder/run/metrics.jsonl" || fail "a dump has other gradients"
run 0 "${launch[@]}" -n 2 "$TREADLE" grad "$policy" --loss grpo --config "$folder/config.yaml" --file "$folder/dump/1.jsonl" --layout megatron:tp=2 --json
grep '"digest"' "$folder/grad" | cmp -s - <(grep '"digest"' "$folder/out") || fail "tp=2 has other gradients"

# spoiled TEXT SED: the dump's second line so changed is refused.
spoiled() {
  sed "2 $2" "$folder/dump/1.jsonl" >"$folder/spoiled.jsonl"
  cmp -s "$folder/spoiled.jsonl" "$folder/dump/1.jsonl" && fail "nothing was changed by $2"
  refused "spoiled.jsonl: line 2: $1" grad "$folder/spoiled.jsonl"
}
spoiled 'kept is null, and by the configuration its tokens were drawn from a cut' 's/"kept": .*\]\]/"kept": null/'
spoiled 'kept must be null, or have' 's/"kept": \[/&[0], /'
spoiled 'kept[0] must be a list of token ids, one at least' 's/"kept": \[\[[^]]*\]/"kept": [[]/'
spoiled 'kept[0]: item 1: ids ascend, from 0 to 15' 's/"kept": \[\[\([0-9]*\)/&, \1/'
spoiled 'kept[0]: item 1: ids ascend, from 0 to 15' 's/"kept": \[\[[^]]*\]/"kept": [[1, 99]/'
spoiled 'kept[0] has no' 's/"kept": \[\[[^]]*\]/"kept": [[3]/'

# ---- A limit, and what is said of it ----
train 1 "$S.top_p=0.999" rl_config.sampling_support_most=3 megatron_training.train_iters=1
printed 'They are kept with each token, at most 3 of them (rl_config.sampling_support_most (override))'
python3 - "$folder" <<'END' || fail "more than 3 ids"
import json, sys
counts = [len(ids) for line in open(sys.argv[1] + '/dump/1.jsonl') for ids in json.loads(line)['kept']]
assert max(counts) == 3, max(counts)
END
run 0 "$TREADLE" train "$folder/grpo.yaml" --plan --ranks 2 --json "$S.top_p=0.9" rl_config.sampling_support_most=3
printed "\"kept_bytes\": $((4 * prompts * 4 * 12 * (3 + 1) * 4))}"
run 0 "$TREADLE" train "$folder/grpo.yaml" --plan --json
printed '"kept_bytes": 0}'

# ---- The whole vocabulary, where the file says so: the same samples, and other log-probabilities ----
train 1 "$S.top_p=0.8" megatron_training.train_iters=1
mv "$folder/dump/1.jsonl" "$folder/kept.jsonl"
train 1 "$S.top_p=0.8" megatron_training.train_iters=1 rl_config.sampling_support=full
said 'rl_config.sampling_support (override) is full: tokens are drawn from what top_p, top_k and min_p leave'
python3 - "$folder/kept.jsonl" "$folder/dump/1.jsonl" <<'END' || fail "full and kept"
import json, sys
kept, full = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
assert [row['ids'] for row in kept] == [row['ids'] for row in full]
assert all(row['kept'] is None for row in full)
assert all(a >= b - 1e-6 for k, f in zip(kept, full) for a, b in zip(k['rollout_log_probs'], f['rollout_log_probs']))
assert any(a > b + 0.01 for k, f in zip(kept, full) for a, b in zip(k['rollout_log_probs'], f['rollout_log_probs']))
END
train 1 megatron_training.train_iters=1 rl_config.sampling_support=full
grep -q warning "$folder/err" && fail "a warning, and nothing is cut"
awk '{ sum += $1 } END { print sum " log-probabilities, and none differs" }' "$folder/tokens"
