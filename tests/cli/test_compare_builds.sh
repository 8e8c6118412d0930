#!/usr/bin/env bash
# tools/compare-builds: a build is equal to itself; a planted difference in each part is found, and named; and --bench reads what benches print.
# ctest: label=mpi timeout=300
set -euo pipefail
command -v python3 >/dev/null || { echo "no python3 here: skipped"; exit 77; }
if grep -q '^TREADLE_SANITIZE:[A-Z]*=.' "$TREADLE_BUILD/CMakeCache.txt"; then echo "Python cannot load a library with sanitizers: skipped"; exit 77; fi
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { cat "$folder/out" "$folder/err"; echo "$1"; exit 1; }

# compare STATUS OLD NEW WORDS...
compare() {
  local status=0
  "$TREADLE_SOURCE/tools/compare-builds" "${@:2}" >"$folder/out" 2>"$folder/err" || status=$?
  [ $status = "$1" ] || fail "compare-builds ${*:2}: status $status, not $1"
}
says() { grep -q -- "$1" "$folder/out" "$folder/err" || fail "no '$1'"; }

# planted NAME: a build whose command is standard input.
planted() {
  mkdir -p "$folder/$1"
  local file
  for file in CMakeCache.txt libtreadle.so layout_digest golden_check; do
    if [ -e "$TREADLE_BUILD/$file" ]; then ln -s "$TREADLE_BUILD/$file" "$folder/$1/$file"; fi
  done
  cat >"$folder/$1/treadle"
  chmod +x "$folder/$1/treadle"
}

parts="layouts plans weights rollouts switch conversion"
compare 0 "$TREADLE_BUILD" "$TREADLE_BUILD" --quick --pairs 8 --steps 2
says '^EQUAL$'
for part in $parts; do says "^$part .* 0 different"; done

# A figure of what is printed is another one, and a byte of what is written.
planted other <<END
#!/usr/bin/env bash
set -o pipefail
"$TREADLE" "\$@" | sed -e 's/"moved_bytes": /&1/' -e 's/"shape": \[/&1/' || exit
for file in run/global_step_2/actor/huggingface/model.safetensors dump/1.jsonl mcore/release/mp_rank_00_001/model_optim_rng.pt; do
  [ ! -e "\$file" ] || printf '#' | dd of="\$file" bs=1 seek=2000 conv=notrunc status=none
done
END
compare 1 "$TREADLE_BUILD" "$folder/other" --quick --pairs 8 --steps 2
says '^DIFFERENT$'
for part in $parts; do says "^$part .* [1-9][0-9]* different"; done
says "first difference, OLD and NEW: layout [0-9]*: .*shape"
says "first difference, OLD and NEW: pair .* report: line .*'moved_bytes"
says 'model.safetensors: byte 2000: 0x.. and 0x23 (1 bytes differ'
says 'rollouts: 1.jsonl: byte 2000'
says "'megatron:tp=2' to 'vllm:tp=1' : line .*moved_bytes"
says 'mp_rank_00_001/model_optim_rng.pt: byte 2000'

# Words of a refusal count where they are asked for.
planted refusing <<END
#!/usr/bin/env bash
if [ "\$1" = plan ]; then echo "treadle plan: other words" >&2; exit 2; fi
exec "$TREADLE" "\$@"
END
sed 's/other words/others/' "$folder/refusing/treadle" >"$folder/words"
planted saying <"$folder/words"
compare 1 "$TREADLE_BUILD" "$folder/refusing" --pairs 8 --only plans
says "and 'refused, status 2: treadle plan: other words'"
compare 0 "$folder/saying" "$folder/refusing" --pairs 4 --only plans --json
compare 1 "$folder/saying" "$folder/refusing" --pairs 4 --only plans --json --messages

compare 2 "$TREADLE_BUILD" "$folder"
says 'no build folder, it has no command treadle'
compare 2 "$TREADLE_BUILD" "$TREADLE_BUILD" --only layout
says 'there are layouts, plans, weights, rollouts, switch, conversion'

# Programs that print as the benches do: one that is slower by more than the spread, one that is not, and one that fails.
for name in before after; do
  mkdir "$folder/$name"
  ln -s "$TREADLE" "$folder/$name/treadle"
done
bench() { printf '#!/bin/sh\n%s\n' "$3" >"$folder/$1/$2"; chmod +x "$folder/$1/$2"; }
plan_of() { echo "echo '{\"rows\": [{\"from\": \"hf\", \"rank\": 0, \"cpu_seconds\": $1}, {\"from\": \"hf\", \"rank\": -1, \"cpu_seconds\": 0.5}]}'"; }
bench before bench_plan "$(plan_of 1.00)"
bench after bench_plan "$(plan_of 1.01)"
compare 0 "$folder/before" "$folder/after" --bench --rounds 2
says 'bench_plan *one rank *1.0000 *1.0100 *1.010 *0.000$'
says 'bench_own *left out: no bench_own in old and new'
bench after bench_plan "$(plan_of 1.03)"
compare 1 "$folder/before" "$folder/after" --bench --rounds 2
says '1.030 *0.000  SLOWER'
bench after bench_plan 'exit 1'
compare 1 "$folder/before" "$folder/after" --bench --rounds 2
says 'bench_plan *failed: new: exit status 1'
