#!/usr/bin/env bash
# tools/run-tests: a test that fails twice fails the gate, one that fails once is FLAKY, and one that a sanitizer has ended is not tried again.
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { cat "$folder/out"; echo "$1"; exit 1; }

# tests NAME COMMAND ...: the tests of a build.
tests() {
  rm -rf "$folder/build" "$folder/been"
  mkdir -p "$folder/build" "$folder/been"
  while (($#)); do
    printf 'add_test([=[%s]=] bash -c [=[%s]=])\n' "$1" "$2" >>"$folder/build/CTestTestfile.cmake"
    shift 2
  done
}
# gate STATUS
gate() {
  local status=0
  "$TREADLE_SOURCE/tools/run-tests" --test-dir "$folder/build" "${@:2}" >"$folder/out" 2>&1 || status=$?
  [ $status = "$1" ] || fail "status $status, not $1"
}
says() { grep -qxE -- "$1" "$folder/out" || fail "no line '$1'"; }
lacks() { if grep -qE -- "$1" "$folder/out"; then fail "there is '$1'"; fi; }
once='mkdir '$folder'/been/$0 2>/dev/null || exit 0;' # passes the second time

tests good 'exit 0' bad 'echo of bad; exit 1'
gate 1
says 'FAILED bad, twice'
lacks FLAKY
grep -q 'of bad' "$folder/out" || fail "what a failed test has printed is not shown"
says ' +[0-9.]+ s  good'

tests good 'exit 0' 'odd.name+' "${once//\$0/odd} exit 1"
gate 0
says 'FLAKY odd\.name\+'

# One flaky test saves no other.
tests flaky "${once//\$0/a} exit 1" bad 'exit 3' good true
gate 1 -j 3
says 'FLAKY flaky'
says 'FAILED bad, twice'

# What a sanitizer has seen need not come again; nor need it be seen where a test hides the output of what it runs.
for words in 'echo ==1==ERROR: AddressSanitizer: heap-use-after-free; exit 1' 'echo a.c:1:2: runtime error: shift exponent; exit 1' \
  'echo WARNING: ThreadSanitizer: data race; exit 66' 'echo status 134, not 2: treadle; exit 1' 'kill -ABRT $$' 'kill -SEGV $$'; do
  tests good true seen "${once//\$0/seen} $words"
  gate 1
  lacks FLAKY
  says 'FAILED seen; it is not tried again.*'
done
# An assertion of cmocka that fails leaks what its test held: that is tried again. A leak without one is not, nor one beside something else.
leak='echo ==1==ERROR: LeakSanitizer: detected memory leaks; echo SUMMARY: AddressSanitizer: 72 byte\(s\) leaked in 1 allocation\(s\).;'
assertion='echo "[  FAILED  ] test_it";'
tests good true leaks "${once//\$0/leaks} $assertion $leak exit 1"
gate 0
says 'FLAKY leaks'
for words in "$leak" "$assertion $leak echo ==1==ERROR: AddressSanitizer: heap-use-after-free;" \
  "$assertion echo ==1==LeakSanitizer has encountered a fatal error;" "$assertion $leak kill -SEGV \$\$;"; do
  tests good true seen "${once//\$0/seen} $words exit 1"
  gate 1
  lacks FLAKY
  says 'FAILED seen; it is not tried again.*'
done
# The words of another test are not its own.
tests other 'echo AddressSanitizer; exit 0' flaky "${once//\$0/b} exit 1" bad 'echo LeakSanitizer; exit 1'
gate 1
says 'FLAKY flaky'
says 'FAILED bad; it is not tried again.*'

# A program that is not there, a test that hangs, no test at all, no build: none of them passes.
tests good true
echo "add_test(gone \"$folder/nowhere\")" >>"$folder/build/CTestTestfile.cmake"
gate 1
tests hangs 'sleep 60'
echo 'set_tests_properties(hangs PROPERTIES TIMEOUT 1)' >>"$folder/build/CTestTestfile.cmake"
gate 1
says 'FAILED hangs, twice'
tests good true
gate 1 -R nothing
rm -rf "$folder/build"
gate 2
