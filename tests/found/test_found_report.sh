#!/usr/bin/env bash
# treadle report: a step without a figure is a gap and no zero; what has one step is seen; no panel is empty; each line that is drawn has its
# swatch; numbers of any size end; a run of treadle sft has its loss; rewards are means of a tenth of the steps.
source "$TREADLE_SOURCE/tests/found/found.bash"
run_folder=$folder/run page=$folder/run/report.html
mkdir "$run_folder"
report() { run 0 timeout 60 "$TREADLE" report "$run_folder" "$@"; }
has() { grep -qF -- "$1" "$page" || fail "the page has no '$1'"; }
lacks() { if grep -qF -- "$1" "$page"; then fail "the page has '$1'"; fi; }
# Each SVG shows something besides its grid.
seen() {
  awk '/<svg/ { name = before; shown = 0 } /<circle|<path|<polygon/ { shown = 1 } /<\/svg>/ && !shown { print name; bad = 1 } { before = $0 } END { exit bad }' "$page" ||
    fail "a panel is empty"
}

# The test before the first step has no seconds: these begin at step 1, which the axis does, too.
{
  echo '{"step": 0, "val-core/s/reward/mean@1": 0.5}'
  echo '{"step": 1, "critic/rewards/mean": 0.25, "critic/rewards/min": 0, "critic/rewards/max": 1, "timing_s/gen": 1}'
  echo '{"step": 2, "critic/rewards/mean": 0.75, "critic/rewards/min": 0, "critic/rewards/max": 1, "timing_s/gen": 3}'
} >"$run_folder/metrics.jsonl"
report
has '<path fill="#d98032" d="M64.0 119.3L612.0 10.0L612.0 174.0L64.0 174.0Z"><title>generate'
seen
# A gap is a gap in an area as in a line, and a step between two gaps is a bar, and a dot.
{
  echo '{"step": 1, "timing_s/gen": 4, "actor/entropy": 1}'
  echo '{"step": 2, "timing_s/gen": 4, "actor/entropy": 1}'
  echo '{"step": 3}'
  echo '{"step": 4, "timing_s/gen": 2, "actor/entropy": 2}'
  echo '{"step": 5}'
} >"$run_folder/metrics.jsonl"
report
has 'd="M64.0 10.0L246.7 10.0L246.7 174.0L64.0 174.0ZM609.0 92.0h6L615.0 174.0h-6Z"'
has '<circle fill="#3b6fb6" cx="612.0" cy="10.0" r="2.5"/>'
seen
# One step is in the middle, and a figure that is zero in all steps is drawn as a line, but no area of no height.
echo '{"step": 7, "timing_s/gen": 0, "actor/ppo_kl": 0, "response_length/mean": 3, "response_length/min": 1, "response_length/max": 5}' >"$run_folder/metrics.jsonl"
report
has 'd="M335.0 10.0h6L341.0 174.0h-6Z"><title>least to most'
has '<circle fill="#3b6fb6" cx="338.0" cy="174.0" r="2.5"/>'
lacks 'Seconds of a step'
seen

# All stages of a run with a critic are drawn, the last one too.
stages='gen old_log_prob reward ref values adv update_critic update_actor'
{
  printf '{"step": 1'
  for stage in $stages; do printf ', "timing_s/%s": 1' "$stage"; done
  echo '}'
} >"$run_folder/metrics.jsonl"
report
[ "$(grep -c '<path fill="#[0-9a-f]*" d=' "$page")" = 8 ] || fail "not all stages of a step are drawn"
has '<title>update</title>'
echo '{"step": 7, "timing_s/gen": 0, "actor/ppo_kl": 0, "response_length/mean": 3, "response_length/min": 1, "response_length/max": 5}' >"$run_folder/metrics.jsonl"

# What is drawn across the memory has a swatch; what is not has none. A table of nothing is left out.
memory() { printf '{"rank": 0, "predicted_bytes": %s, "budget_bytes": %s, "classes": ["params"], "points": [%s]}' "$@" >"$run_folder/memory.json"; }
point='{"seconds": 0, "stage": "generate", "bytes": [4096]}'
memory 8192 16384 "$point"
echo '{"train": "hf", "infer": "hf", "moved_bytes": 0, "lower_bound_bytes": 0, "inbound": [[0, 0], [0, 0]]}' >"$run_folder/switch.json"
report
has '<line class="bound"'
has '<i class="dashes foreseen"></i>foreseen'
has '<line class="limit"'
has '<i class="dashes limited"></i>what a rank may use'
lacks '<table class="traffic">'
seen
memory 8192 0 "$point"
report
has '<i class="dashes foreseen">'
lacks '<i class="dashes limited">'
memory 0 0 '{"seconds": 0, "stage": "generate", "bytes": [0]}'
report
lacks 'Device memory of rank 0'

# Beside numbers this large a tick is not a step, and their distance is not a number.
for lines in '{"step": 1, "actor/entropy": 1e17}' '{"step": 1, "actor/entropy": 1e17}\n{"step": 2, "actor/entropy": 1.0000000000000002e17}' \
  '{"step": 1, "actor/entropy": 1e308}\n{"step": 2, "actor/entropy": -1e308}' '{"step": 9223372036854775806, "actor/entropy": 1}\n{"step": 9223372036854775807, "actor/entropy": 2}'; do
  printf "$lines\n" >"$run_folder/metrics.jsonl"
  report
  lacks nan
  lacks 'inf '
  seen
done

# Supervised training has a loss and no reward.
printf '{"step": 1, "train/loss": 3, "train/grad_norm": 2}\n{"step": 2, "train/loss": 2, "train/grad_norm": 2, "val/loss": 2}\n' >"$run_folder/metrics.jsonl"
report
printed "2 steps, no rewards: $page"
has '<figcaption>Loss'
has '<figcaption>Norm of the gradients'
seen

# A tenth of the steps at each end, and one at least: of 25 two, of 9 one.
for steps in 25 9; do
  for ((step = 1; step <= steps; step++)); do echo "{\"step\": $step, \"critic/rewards/mean\": $step}"; done >"$run_folder/metrics.jsonl"
  report
  if [ $steps = 25 ]; then printed 'reward 1.5000 to 24.5000'; has '(means of 2 steps)'; else printed 'reward 1.0000 to 9.0000'; has '(means of 1 step)'; fi
done
