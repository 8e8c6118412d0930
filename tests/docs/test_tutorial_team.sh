#!/usr/bin/env bash
# The commands of docs/tutorial-team.md run as the page says; the loss falls, and both runs make the policy better.
# ctest: label=mpi
set -euo pipefail
. "$TREADLE_SOURCE/tests/docs/follow.sh"
installed
follow "$TREADLE_SOURCE/docs/tutorial-team.md"
sed -n 's/.*mean@4 \([0-9.]*\), best.*/\1/p' "$folder/said" >"$folder/scores"
awk '{ score[NR] = $1 } END { if (NR != 3 || score[2] < score[1] + 0.04 || score[3] < score[2] + 0.02) exit 1 }' "$folder/scores" ||
  { cat "$folder/scores"; fail "the policy does not get better"; }
[ -s "$folder/empty/rl/report.html" ] || fail "no report"
grep -qx '7,2,6,1' "$folder/said" || fail "another answer"
