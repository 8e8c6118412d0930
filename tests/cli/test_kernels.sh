#!/usr/bin/env bash
# TREADLE_KERNELS limits the kernels of every process of a test (tests/tools/preload/kernels.c), also of ranks that a launcher starts; without it the
# processor's best are taken.
# ctest: label=mpi label=kernels
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }
grep -q '^TREADLE_SANITIZE:[A-Z]*=.' "$TREADLE_BUILD/CMakeCache.txt" && { echo "libraries with sanitizers cannot be loaded first: skipped"; exit 77; }
launch=("$MPIEXEC" -n 2)
case $("$MPIEXEC" --version 2>/dev/null) in *'Open MPI'* | *OpenRTE*) launch+=(--oversubscribe) ;; esac
echo '{"prompt_token_ids": [1, 2, 3], "max_tokens": 2}' >"$folder/prompts.jsonl"

unlimited() { env -u TREADLE_KERNELS -u LD_PRELOAD "$@"; }
limited() { env LD_PRELOAD="$TREADLE_BUILD/tests/libkernels.so" "$@"; }
usable() { sed -n 's/.*{"name": "\([a-z0-9]*\)", .*"usable": true, "lacks".*/\1/p' | tr '\n' ' '; }
taken() { sed -n 's/^ *"kernels": "\([a-z0-9]*\)".*/\1/p'; }
generate=("$TREADLE" generate --model "$TREADLE_SOURCE/examples/sequence/policy" --file "$folder/prompts.jsonl" --out "$folder/answers" --json)

here=$(unlimited "$TREADLE" doctor --json | usable)
[ "${here%% *}" = plain ] || fail "doctor lists the kernels $here"
expected=
for set in plain avx2 avx512 amx; do
  case " $here" in *" $set "*) expected+="$set " ;; esac
  got=$(limited TREADLE_KERNELS=$set "$TREADLE" doctor --json | usable)
  [ "$got" = "$expected" ] || fail "limited to $set: $got, not $expected"
  best=$(set -- $expected; shift $(($# - 1)); echo "$1")
  [ "$best" != amx ] || continue # not for weights of fp32
  got=$(limited TREADLE_KERNELS=$set "${generate[@]}" --layout vllm:tp=1,dtype=fp32 | taken)
  [ "$got" = "$best" ] || fail "limited to $set: generate takes $got, not $best"
  got=$(limited TREADLE_KERNELS=$set "${launch[@]}" "${generate[@]}" --layout vllm:tp=2,dtype=fp32 | taken)
  [ "$got" = "$best" ] || fail "limited to $set: ranks take $got, not $best"
done
[ "$expected" = "$here" ] || fail "kernels here: $here, limited to each in turn: $expected"
if limited TREADLE_KERNELS=best "$TREADLE" doctor >/dev/null 2>"$folder/err"; then fail "a set of no kernels is taken"; fi
grep -q "TREADLE_KERNELS is 'best', and must be plain, avx2, avx512 or amx" "$folder/err" || { cat "$folder/err"; fail "no word of it"; }
