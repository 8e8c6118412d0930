# For scripts here that source this:
#
#     listed FILE NAME...   FILE, a metrics.jsonl, has these names; and each name that it has is in the first column of
#                           a table of docs/metrics.md. shellcheck shell=bash
listed() {
  local file=$1 names name
  shift
  # The names of a test have the source of its prompts, and the number of samples.
  names=$(grep -o '"[^"]*":' "$file" | sed -E 's/[":]//g; s,^val-core/.*(/reward/[a-z]*@)[0-9]+,val-core/SOURCE\1N,')
  for name in step "$@"; do grep -qxF -- "$name" <<<"$names" || fail "$file has no $name"; done
  for name in $(LC_ALL=C sort -u <<<"$names"); do
    grep -q "^|[^|]*\`\"$name\"\`[^|]*|" "$TREADLE_SOURCE/docs/metrics.md" ||
      fail "docs/metrics.md lacks $name, which $file has"
  done
}
