#!/usr/bin/env bash
# tools/check-references, tools/check-words, tools/check-functions, tools/check-once and tools/check-doors find what they are for: mistakes planted in a
# copy of the tree.
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fresh() { # a tree without mistakes
  rm -rf "$work/tree"
  mkdir -p "$work/tree/tools" "$work/tree/docs/decisions" "$work/tree/src/core/io" "$work/tree/tests/core/io" "$work/tree/tests/oracle" \
           "$work/tree/include"
  cat > "$work/tree/src/core/io/look.h" <<'END'
/* Looks; look.c says how. docs/rules.md 1.2 and docs/page.md, "What it is". */
typedef struct treadle_file_box { int size; } treadle_file_box;
END
  cat > "$work/tree/src/core/io/look.c" <<'END'
/* see io/look.h, decision 0001 */
static int seven(int a, int b, int c, int d, const char *text, int (*e)(int, int), int g /* , int h */) {
  return a + b + c + d + (text ? 1 : ',') + e(1, 2) + g;
}
#define EIGHT(a, b, c, d, e, f, g, h) a
END
  echo '/* 1.2: what rank r has; T9 */' > "$work/tree/tests/oracle/oracle.c"
  printf '# Rules\n\n## 1. A\n\n### 1.2 B\n\n| T9 | x |\n' > "$work/tree/docs/rules.md"
  printf '# Page\n\n## What it is\n\nRead [rules](rules.md#12-b), `io/look`, `treadle_file_box`.\n' > "$work/tree/docs/page.md"
  printf '/* Two\n * lines. */\nint look(int a,\n         int b);\nenum {\n  LOOK, /* one */\n  SEE   /* two */\n};\nint at; /* place */\n' \
    > "$work/tree/include/seen.h"
  echo '# A decision' > "$work/tree/docs/decisions/0001-a.md"
  printf '# Glossary\n\n| word | meaning |\n|---|---|\n| **file**, **box** | x |\n\n## To be renamed\n' > "$work/tree/docs/glossary.md"
}
fails() { # CHECK TEXT: it fails, and says so
  if tools/"$1" "$work/tree" > "$work/said"; then echo "$1 did not find: $2"; exit 1; fi
  if ! grep -qF -- "$2" "$work/said"; then echo "$1 did not say: $2"; cat "$work/said"; exit 1; fi
}
plant() { # FILE LINE CHECK TEXT
  fresh
  echo "$2" >> "$work/tree/$1"
  fails "$3" "$4"
}

fresh
tools/check-references "$work/tree"
tools/check-words "$work/tree"
tools/check-functions "$work/tree"
tools/check-once "$work/tree"

plant src/core/io/look.c '/* see gone.c */' check-references 'gone.c: no such file'
plant src/core/io/look.c '/* see plan/look.h */' check-references 'plan/look.h: no such file'
plant src/core/io/look.c '/* docs/rules.md 1.2 and 1.3 */' check-references 'docs/rules.md 1.3: no such section'
plant src/core/io/look.c '/* docs/page.md section 2 */' check-references 'docs/page.md: has no numbered sections'
plant src/core/io/look.c '/* docs/page.md, "What it was" */' check-references 'no such heading'
plant src/core/io/look.c '/* decision 0002 */' check-references 'decision 0002: no such page'
plant src/core/io/look.c '/* T16 */' check-references 'T16: no such case'
plant tests/oracle/oracle.c '/* 1.4: more */' check-references 'docs/rules.md 1.4: no such section'
plant docs/page.md 'See `io/gone`.' check-references 'io/gone: no such file or folder'
plant docs/page.md 'Call `treadle_file_gone`.' check-references 'treadle_file_gone: nothing of that name'
plant docs/page.md '[x](rules.md#13-c)' check-references 'no such heading'
plant src/core/io/look.h 'typedef struct treadle_file_kind { int a; } treadle_file_kind;' check-words 'does not have: kind'
plant docs/glossary.md '| `treadle_gone` | x | `treadle_come` |' check-words 'no type treadle_gone is left'
plant src/core/io/look.c '/* a word is no number */' check-words 'src/core/io/look.c:6: "is no X": say "is not a X"'
plant src/core/io/look.c '  REFUSE("the rank is no' check-words '"is no X"'
plant docs/page.md 'At the begin of a file.' check-words '"the begin": say "the start"'
plant docs/page.md 'The first so many bytes.' check-words '"so many"'
plant docs/page.md 'It is gone on with.' check-words 'say "continues"'
plant docs/page.md 'Files that are there.' check-words '"that are there"'
plant docs/page.md 'Who is hung up on.' check-words '"disconnected"'
fresh
printf 'There is no rank 9. Here there\nis no rank 9. It is no longer one, is no more than\nat the beginning, is not a rank.\n' >> "$work/tree/docs/page.md"
tools/check-words "$work/tree"
plant src/core/io/look.h 'int look(int a, int b, int c, int d, int e, int f, int g, int h);' check-functions 'look takes 8 arguments'
plant src/core/io/look.c $'static void\nlook(int a, int b, int c,\n  int d, int e, int f, int g, char *h[]) {\n}' check-functions 'look takes 8 arguments'
plant src/core/io/look.h 'struct ops { int (*look)(int a, int b, int c, int d, int e, int f, int g, int h); };' check-functions 'look takes 8'
plant src/core/io/look.c 'char *look(const char *at) { return (char *)(uintptr_t)at; }' check-functions 'by way of an integer'
plant include/look.h "int look; /* $(printf '%0120d' 0) */" check-words '136 columns: at most 120'
plant include/look.h $'struct look {\n  const char\n      *at; /* where */\n};' check-words 'include/look.h:3: a declaration is broken'
plant include/look.h $'int look(int a,\n         int b); /* else -1 */' check-words 'include/look.h:2: a declaration is broken'
plant include/look.h $'int look; /* where it is,\n             and what */' check-words 'include/look.h:1: a comment of several lines'
plant tests/look.py "# $(printf '%0119d' 0)" check-words 'tests/look.py:1: 121 columns: at most 120'
fresh
printf '# %0117d\303\251\n' 0 > "$work/tree/tests/look.py" # 120 columns, 121 bytes
tools/check-words "$work/tree"
fresh
sed -i 's/^| [*][*]file/| **box** | another |\n&/' "$work/tree/docs/glossary.md"
fails check-words 'the word "box" has two meanings'
passage=$(for i in {1..12}; do echo "  sum += part(rank, $i) * look(\"text $i\");"; done)
again() { # TEXT: the passage stands in look.c, and the text in another file
  fresh
  echo "$passage" >> "$work/tree/src/core/io/look.c"
  echo "$1" > "$work/tree/src/core/io/see.c"
}
again "$(sed '1,4s/rank/peer/' <<<"$passage")"
fails check-once 'src/core/io/look.c:6-17 stands again at src/core/io/see.c:1-12'
again "$(sed -e 's|$| /* here */|; G' -e '6i }' -e '8i #include "io/look.h"' -e '9s/^ */\t/' <<<"$passage")"
fails check-once 'src/core/io/look.c:6-17 stands again at src/core/io/see.c:1-25'
again "$(sed '1,5s/rank/peer/' <<<"$passage")" # too few lines are equal
tools/check-once "$work/tree"
again "$(sed '6s/rank/rank + 1/' <<<"$passage")" # one has another shape
tools/check-once "$work/tree"
again "$(sed 1d <<<"$passage")"
tools/check-once "$work/tree"
again "/* A table of sums. */
$passage"
tools/check-once "$work/tree"
again "$passage"
sed -e "/^exceptions='/,/^'/d" -e "s|^\[\[ .*|exceptions='src/core/io/look.c src/core/io/see.c both look'|" tools/check-once > "$work/tree/tools/check-once"
bash "$work/tree/tools/check-once"
echo 'int see;' > "$work/tree/src/core/io/see.c"
if bash "$work/tree/tools/check-once" > "$work/said"; then echo "check-once takes an exception that is not needed"; exit 1; fi
grep -qF 'src/core/io/look.c src/core/io/see.c share no passage: delete the line' "$work/said"

whole() { # FILE TEXT: sources as they are, with the text at the end of a file
  rm -rf "$work/tree/src"
  cp -r src "$work/tree/src"
  printf '%s\n' "$2" >> "$work/tree/$1"
}
members() { for i in $(seq "$1"); do echo "  int member_$i; /* one, and one */"; done; }
whole src/engine/train/state.c '/* nothing */'
tools/check-doors "$work/tree"
whole src/engine/train/state.c $'static int look(int a,\n                const treadle_trainer *t) {\n  return a;\n}'
fails check-doors 'functions that take the whole trainer'
whole src/core/switch/switch.c $'static int look(treadle_switch *s) {\n  return 0;\n}'
fails check-doors 'functions that take the whole switch'
whole src/engine/train/trainer.h "$(seq 250)"
fails check-doors 'lines of src/engine/train/trainer.h'
whole src/loop/rl/loop_open.c $'static int look(int a,\n                const treadle_rl *rl) {\n  return a;\n}'
fails check-doors 'functions that take the whole run'
whole src/loop/rl/loop_open.c $'static int look(const treadle_rl_task *task) {\n  return 0;\n}'
tools/check-doors "$work/tree"
whole src/loop/rl/loop.h "$(seq 180)"
fails check-doors 'lines of src/loop/rl/loop.h'
whole src/engine/train/back.h "typedef struct look {
$(members 38)
  char *a, (*b)(int, int); /* 39 */
  struct { int c, d; } e;  /* 40 */
  void (*f)(int, int);
} look;"
tools/check-doors "$work/tree"
whole src/engine/train/back.h "typedef struct look {
$(members 39)
  char *a[2], b;
} look;"
fails check-doors 'src/engine/train/back.h: struct look: 41 members; at most 40'
whole src/engine/nn/look.c "$(seq 20000)"
fails check-doors 'src/engine/nn: '
echo "what was planted was found"

tools/draw-waves | cmp - docs/waves.svg # the picture is what its script draws
