#!/usr/bin/env bash
# A reward command that writes and does not answer ends the run after verifier_timeout; and what has left the command's session and lost its parent
# ends with the run, however that ends.
# ctest: timeout=120
. "$(dirname "$0")/found.bash"
command -v setsid >/dev/null || { echo "no setsid here: skipped"; exit 77; }
"$TREADLE" data sequence --out "$folder/data" --seed 1 >/dev/null
cat >"$folder/grpo.yaml" <<END_YAML
megatron_training:
  tokenizer_name_or_path: $TREADLE_SOURCE/examples/sequence
  data_path: $folder/data/train.jsonl
  train_iters: 1
  global_batch_size: 4
actor_config:
  model: $TREADLE_SOURCE/examples/sequence/policy
  save: $folder/run
generate_config:
  sampling_config: {max_tokens: 4}
rl_config:
  n_samples_per_prompt: 2
  max_prompt_length: 10
  verifier_function: [command]
  verifier_timeout: 1
END_YAML
train=("$TREADLE" train "$folder/grpo.yaml" --threads 1)
over="': answered nothing for 1 s, with [1-9][0-9]* samples to answer"

# Empty lines; a line that never ends; a flood; a line of blanks is not JSON.
for written in '\n' ' '; do
  run 1 "${train[@]}" "rl_config.verifier_command=while :; do printf '$written'; sleep 0.05; done"
  grep -q "$over" "$folder/err" || { cat "$folder/err"; fail "no word of the time: '$written'"; }
done
run 1 "${train[@]}" "rl_config.verifier_command=yes ''"
grep -q "$over" "$folder/err" || { cat "$folder/err"; fail "no word of the time: a flood of empty lines"; }
run 1 "${train[@]}" "rl_config.verifier_command=while :; do echo ' '; sleep 0.05; done"
said "it is not a JSON object"
# Each answer begins the time anew: eight take longer than it.
cat >"$folder/slow" <<'END_SH'
while read -r line; do
  id=${line#*: ?}
  sleep 0.6
  echo "{\"id\": \"${id%%\"*}\", \"score\": 0.5}"
done
END_SH
run 0 "${train[@]}" "rl_config.verifier_command=sh $folder/slow" rl_config.verifier_timeout=4
rm -r "$folder/run"

# Daemons: each writes its number once it is in a session of its own and its parent has ended.
cat >"$folder/daemons" <<'END_SH'
for i in 1 2; do
  (setsid env -i sh -c 'trap "" TERM HUP INT; echo $$ >>"$0"; while :; do sleep 1000; done' "$folder/pids" </dev/null >/dev/null 2>&1 &)
done
while [ "$(wc -l <"$folder/pids" 2>/dev/null)" != 2 ]; do sleep 0.01; done
[ "$then" != ends ] || exit 3
while read -r line; do
  [ "$then" != hangs ] || { echo >"$folder/hangs"; sleep 1000; }
  id=${line#*: ?}
  echo "{\"id\": \"${id%%\"*}\", \"score\": 0.5}"
done
END_SH
export folder then
left() {
  [ "$(wc -l <"$folder/pids")" = 2 ] || fail "there were no daemons"
  while read -r pid; do
    for ((i = 0; i < 500; i++)); do
      grep -q '^State:.*[^ZX] (' "/proc/$pid/status" 2>/dev/null || continue 2
      sleep 0.01
    done
    kill -9 "$pid"
    fail "$then: a daemon of the command is left"
  done <"$folder/pids"
  rm "$folder/pids"
}
daemons=("${train[@]}" "rl_config.verifier_command=sh $folder/daemons" rl_config.verifier_timeout=60)
then=answers
run 0 "${daemons[@]}"
rm -r "$folder/run"
left
then=ends
run 1 "${daemons[@]}"
left
then=hangs
for signal in KILL INT; do
  rm -f "$folder/hangs"
  "${daemons[@]}" >"$folder/out" 2>"$folder/err" &
  process=$!
  while [ ! -e "$folder/hangs" ]; do
    kill -0 $process 2>/dev/null || { cat "$folder/err"; fail "the run ended"; }
    sleep 0.01
  done
  kill -$signal $process
  wait $process 2>/dev/null || true
  left
done
