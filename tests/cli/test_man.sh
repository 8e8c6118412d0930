#!/usr/bin/env bash
# Each command has a man page, with every option and example of its help text; the pages are sound roff, and are installed.
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
pages=$TREADLE_BUILD/man

rows=$(grep -oE '^ +\.name = "[a-z-]+"' "$TREADLE_SOURCE/src/cli/main.c" | cut -d'"' -f2)
listed=$("$TREADLE" help | awk '/^commands:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }')
count=0
for command in $listed $rows; do
  [ "$command" = help ] && continue
  page=$pages/treadle-$command.1
  [ -s "$page" ] || { echo "treadle $command has no man page"; exit 1; }
  for section in NAME SYNOPSIS DESCRIPTION OPTIONS EXAMPLES; do
    grep -q "^\.SH $section\$" "$page" || { echo "$page has no $section"; exit 1; }
  done
  # Words of the page and of the help text, without marks and in one line.
  sed -e '/^\.TH/d' -e 's/^\.[A-Z]* *//' -e 's/\\-/-/g; s/\\&//g' -e "s/\\\\(aq/'/g" -e 's/\\e/\\/g' "$page" |
    tr -s ' \n' '  ' >"$folder/page"
  "$TREADLE" help "$command" | tail -n +4 >"$folder/help"
  while read -r line; do
    line=$(tr -s ' ' <<<"$line")
    [ -z "$line" ] || [[ $line =~ ^[a-z]+:$ ]] || grep -qF -- "$line" "$folder/page" ||
      { echo "treadle-$command.1 lacks: $line"; exit 1; }
  done <"$folder/help"
  count=$((count + 1))
done
[ "$count" -ge 8 ]
[ -s "$pages/treadle.1" ]
if command -v groff >/dev/null; then
  for page in "$pages"/*.1; do
    groff -man -ww -Tutf8 -z "$page" 2>"$folder/said" || true
    [ ! -s "$folder/said" ] || { cat "$folder/said"; exit 1; }
  done
fi
cmake --install "$TREADLE_BUILD" --prefix "$folder/installed" >/dev/null
[ -n "$(find "$folder/installed" -name treadle-plan.1)" ] || { echo "no man page is installed"; exit 1; }
