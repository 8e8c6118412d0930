#!/usr/bin/env bash
# tools/check-trainer-files: files of others that start, one that is refused by name, and overrides of one beside them.
# ctest: timeout=60
set -euo pipefail
python3 -c 'import yaml' 2>/dev/null || { echo "PyYAML is not there: skipped"; exit 0; }
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { cat "$folder/said"; echo "$1"; exit 1; }
cp "$TREADLE_SOURCE"/tests/data/config/*.yaml "$folder"
printf '# base: verl-flattened.yaml\nactor_rollout_ref.actor.kl_loss_coef=0.5\n+algorithm.rollout_correction.rollout_rs=token\ndata.train_batch_size=4096\n' >"$folder/a.overrides"
"$TREADLE_SOURCE/tools/check-trainer-files" "$folder" >"$folder/said" || fail "a file neither starts nor is refused by name"
grep -q '^5 files: 4 start, 1 are refused by name, 0 are neither' "$folder/said" || fail "other counts"
grep -q 'a.overrides  *refused .*: algorithm.rollout_correction.rollout_rs$' "$folder/said" || fail "the key is not named"
grep -q 'refused in 1: algorithm.rollout_correction.rollout_rs' "$folder/said" || fail "the key is not counted"
printf 'actor_config: {model: [}\n' >"$folder/broken.yaml"
"$TREADLE_SOURCE/tools/check-trainer-files" "$folder" >"$folder/said" 2>&1 && fail "a broken file passes"
exit 0
