#!/usr/bin/env bash
# treadle report with a trace: tracks of ranks by role, what is too thin to be seen apart is one box, no more ranks than a page can show; what Perfetto gets; lines that
# are cut, of wrong types, that end before they start, with numbers and names of any size are refused by file, line and rule, and nothing is written.
# ctest: stage=asan
source "$TREADLE_SOURCE/tests/found/found.bash"
run_folder=$folder/run page=$folder/run/report.html trace=$folder/run/trace.jsonl json=$folder/trace.json
mkdir "$run_folder"
echo '{"step": 1, "critic/rewards/mean": 0.25}' >"$run_folder/metrics.jsonl"
report() { run 0 timeout 60 "$TREADLE" report "$run_folder" "$@"; }
has() { grep -qF -- "$1" "$page" || fail "the page has no '$1'"; }
lacks() { if grep -qF -- "$1" "$page"; then fail "the page has '$1'"; fi; }
# call RANK ROLE METHOD STEP START END [MORE]
call() { printf '{"rank":%s,"role":"%s","method":"%s","step":%s,"start":%s,"end":%s%s}\n' "$1" "$2" "$3" "$4" "$5" "$6" "${7:-}"; }

# Without a trace there is no figure of it, and none is made up; with an empty one neither.
report
lacks 'Who worked when'
run 2 "$TREADLE" report "$run_folder" --trace "$json"
said 'has no trace.jsonl'
[ ! -e "$json" ] || fail "a trace was made of nothing"
: >"$trace"
report --trace "$json"
lacks 'Who worked when'

# Two roles, two ranks, three of five steps.
for step in 1 2 3 4 5; do
  for rank in 0 1; do call $rank ActorRollout generate_sequences $step $((10 * step)) $((10 * step + 4)) ',"bytes_before":1048576,"bytes_after":2097152'; done
  call 1 Critic update_critic $step $((10 * step + 4)).5 $((10 * step + 9))
done >"$trace"
report --trace "$json"
has '<figcaption>Who worked when, steps 3 to 5</figcaption>'
[ "$(grep -c '<div class="track"><span>rank' "$page")" = 3 ] || fail "there are not three tracks"
has '<div class="role">ActorRollout</div>'
has '<i style="left:0.000%;width:13.793%;background:#d98032" title="generate_sequences, step 3: 4 s, from 0.0000 s on; 1.00 MiB on the device before, 2.00 MiB after">generate_sequences</i>'
has '<i style="left:15.517%;width:15.517%;background:#7a8f3c" title="update_critic, step 3: 4.5 s, from 4.5000 s on">'
has '<s style="left:34.48%">4</s>'
has '<tr><td>ActorRollout</td><td>generate_sequences</td><td>2</td><td>1</td><td>4</td><td>1.00 MiB</td><td>2.00 MiB</td></tr>'
has '<tr><td>Critic</td><td>update_critic</td><td>1</td><td>1</td><td>4.5</td><td>?</td><td>?</td></tr>'
if grep -qE '(src|href)="|<script|@import|url\(' "$page"; then fail "the page needs another file"; fi
if command -v python3 >/dev/null; then
  python3 - "$trace" "$json" "$page" <<'END' || fail "Perfetto would not get what the trace has"
import html.parser, json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
made = json.load(open(sys.argv[2]))
events = made["traceEvents"]
# Names come before what they name; pid, tid and times are numbers, and no thread is 0, nor the main one of its process.
named, calls, seen = {}, [], set()
for e in events:
    assert type(e["pid"]) is int and type(e["tid"]) is int and e["tid"] > 0 and e["pid"] != e["tid"], e
    if e["ph"] == "M":
        assert "ts" not in e and (e["pid"], e["tid"]) not in seen or e["name"].endswith("sort_index"), e
        key = (e["name"], e["pid"]) + ((e["tid"],) if e["name"].startswith("thread") else ())
        assert key not in named, key
        named[key] = e["args"].get("name", e["args"].get("sort_index"))
        continue
    assert e["ph"] == "X" and e["ts"] >= 0 and e["dur"] >= 0, e
    seen.add((e["pid"], e["tid"]))
    rank = named["thread_name", e["pid"], e["tid"]]
    role = named["process_name", e["pid"]]
    assert role == e["cat"] and named["thread_sort_index", e["pid"], e["tid"]] == int(rank.split()[1])
    call = {"rank": int(rank.split()[1]), "role": role, "method": e["name"], "start": e["ts"] / 1e6, "end": (e["ts"] + e["dur"]) / 1e6, **e["args"]}
    calls.append(call)
assert calls == lines, (calls[0], lines[0])
class Check(html.parser.HTMLParser):
    def __init__(self): super().__init__(); self.open = []
    def handle_starttag(self, tag, attrs):
        if tag not in ("meta",): self.open.append(tag)
    def handle_startendtag(self, tag, attrs): pass
    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag: sys.exit(1)
c = Check(); c.feed(open(sys.argv[3], encoding="utf-8").read()); sys.exit(len(c.open) > 0)
END
fi
report --trace "$json" --json
printed "\"trace\": \"$json\""

# Many short calls are one box that says how many; ranks beyond those that a page has room for are counted; texts are shown and not obeyed.
{
  call 0 Critic update_critic 1 0 100
  for ((i = 0; i < 50; i++)); do call 0 Critic rest_critic 1 $((100 + i)).0 $((100 + i)).5; done
  call 0 Critic update_critic 1 150 100000
  for ((i = 0; i < 40; i++)); do call $i '<b>&' '\"><script>' 1 1 2; done
} >"$trace"
report --trace "$json"
has 'rest_critic, 50 calls, step 1'
has '<p class="more">and 8 ranks more</p>'
has '<div class="role">&#60;b&#62;&#38;</div>'
lacks '<script'
# All at one moment; and as late as a number may be.
call 0 Critic rest_critic 0 7 7 >"$trace"
report
has '<figcaption>Who worked when, step 0</figcaption>'
call 65535 Critic rest_critic 9007199254740992 0 1e9 ',"bytes_before":4611686018427387904,"bytes_after":0' >"$trace"
report --trace "$json"
lacks nan
lacks 'inf '
# A last line that a kill has torn is passed over.
{ call 0 Critic rest_critic 1 1 2; printf '{"rank":0,"ro'; } >"$trace"
report
has '<figcaption>Who worked when, step 1</figcaption>'

refused() {
  { call 0 Critic rest_critic 1 1 2; printf '%s\n' "$2"; } >"$trace"
  rm -f "$page" "$json"
  run 2 "$TREADLE" report "$run_folder" --trace "$json"
  said "$trace: line 2"
  said "$1"
  [ ! -e "$page" ] && [ ! -e "$json" ] || fail "something is written of '$2'"
}
good='"rank":0,"role":"r","method":"m","step":1,"start":1'
refused 'is not an object' '[]'
refused 'line 2' '{"rank":0,"ro'
refused "has no 'end'" "{$good}"
refused 'its end, 0.500000, is before its start, 1.000000' "{$good,\"end\":0.5}"
refused "'end' is not a number of seconds from 0 to 1000000000" "{$good,\"end\":\"2\"}"
refused "'end' is not a number of seconds" "{$good,\"end\":-1}"
refused "'end' is not a number of seconds" "{$good,\"end\":1e10}"
refused "'end' is not a number of seconds from 0 to 1000000000 (line 2: NaN)" "{$good,\"end\":NaN}"
refused "'end' is not a number of seconds" "{$good,\"end\":123456789012345678901234567890}"
refused "'bytes_before' is not a whole number" "{$good,\"end\":2,\"bytes_before\":-1}"
refused "'bytes_after' is not a whole number" "{$good,\"end\":2,\"bytes_after\":1.5}"
refused "'rank' is not a whole number from 0 to 65535" '{"rank":65536,"role":"r","method":"m","step":1,"start":1,"end":2}'
refused "'rank' is not a whole number" '{"rank":null,"role":"r","method":"m","step":1,"start":1,"end":2}'
refused "'step' is not a whole number" '{"rank":0,"role":"r","method":"m","step":99999999999999999999,"start":1,"end":2}'
refused "'role' is not a text of 1 to 64 characters" '{"rank":0,"role":"","method":"m","step":1,"start":1,"end":2}'
refused "'role' is not a text" '{"rank":0,"role":"a\u0000b","method":"m","step":1,"start":1,"end":2}'
refused "'method' is not a text" "{\"rank\":0,\"role\":\"r\",\"method\":\"$(printf 'm%.0s' {1..65})\",\"step\":1,\"start\":1,\"end\":2}"
for ((i = 0; i < 300; i++)); do call 0 Critic "m$i" 1 1 2; done >"$trace"
run 2 "$TREADLE" report "$run_folder"
said "line 257: 'method' is another one than those of all lines before, which have 256"
call 0 Critic rest_critic 1 1 2 >"$trace"
run 2 "$TREADLE" report "$run_folder" --out "$json" --trace "$json"
said 'is where the page goes'
run 2 "$TREADLE" report "$run_folder" --trace "$folder/none/trace.json"
said 'none/trace.json'
