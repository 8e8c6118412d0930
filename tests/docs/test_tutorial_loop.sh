#!/usr/bin/env bash
# The program of docs/tutorial-loop.md grows, compiles and runs as the page says; its score rises, and four ranks make the
# weights of one. What the changes make of it is the whole program that the page ends with.
# ctest: label=mpi
set -euo pipefail
. "$TREADLE_SOURCE/tests/docs/follow.sh"
page=$TREADLE_SOURCE/docs/tutorial-loop.md
installed
follow "$page"
awk '/^## The whole program/ { on = 1 } !on { next } /^```c$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$page" >"$folder/whole.c"
diff "$folder/whole.c" "$folder/empty/loop.c" || fail "the whole program is another one"
[ "$(wc -l <"$folder/whole.c")" -lt 120 ] || fail "a program of 120 lines or more"
# The run of 60 steps: means of 20 at each end.
grep -A 59 '^step 1:' "$folder/said" | grep '^step ' >"$folder/steps"
awk '$2 == "1:" { run++ } run == 2 { score[++n] = $4 }
  END { for (i = 1; i <= 20; i++) { first += score[i] / 20; last += score[n - 20 + i] / 20 }
        if (n != 60 || last < first + 0.05) { print n " steps, " first " to " last; exit 1 } }' "$folder/steps" ||
  fail "the score does not rise"
