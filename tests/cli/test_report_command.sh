#!/usr/bin/env bash
# treadle report: the page of a real run, of a run that was killed, of one whose texts are hostile; what is missing, and what is broken.
# ctest: timeout=120
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }
run=$folder/run
"$TREADLE" data sequence --out "$folder/data" --seed 1 >/dev/null
head -4 "$folder/data/test.jsonl" >"$folder/few.jsonl"
"$TREADLE" train "$TREADLE_SOURCE/examples/grpo-demo.yaml" "megatron_training.tokenizer_name_or_path=$TREADLE_SOURCE/examples/sequence" \
  "actor_config.model=$TREADLE_SOURCE/examples/sequence/policy" "megatron_training.data_path=$folder/data/train.jsonl" \
  "megatron_training.val_path=$folder/few.jsonl" megatron_training.train_iters=3 megatron_training.test_interval=1 \
  megatron_training.global_batch_size=4 actor_config.tensor_model_parallel_size=1 actor_config.pipeline_model_parallel_size=1 \
  rl_config.n_samples_per_prompt=4 rl_config.val_n=2 rl_config.use_kl_loss=true "actor_config.save=$run" --json --threads 1 >"$folder/figures" 2>"$folder/err" || { cat "$folder/err"; fail "no run"; }
"$TREADLE" report "$run" --json >"$folder/out"
page=$run/report.html
value() { sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" "$folder/$1"; }
for key in reward_first reward_last logprob_tokens logprob_differing peak_predicted_bytes; do
  [ "$(value out $key)" = "$(value figures $key)" ] || fail "$key is $(value out $key), and the run says $(value figures $key)"
done
for words in '<figcaption>Reward' '<figcaption>KL' '<figcaption>Entropy' 'Tokens of a response' 'Seconds of a step' 'Device memory of rank 0' 'The switch: ' \
  '<h2>Completions' '<summary>config.yaml' '<title>reference</title>' 'class="bound"'; do
  grep -q "$words" "$page" || fail "the page has no '$words'"
done
if grep -qE '(src|href)="|<script|@import' "$page"; then fail "the page needs another file"; fi
if command -v python3 >/dev/null; then
  python3 - "$page" <<'END' || fail "tags are not balanced"
import html.parser, sys
class Check(html.parser.HTMLParser):
    def __init__(self): super().__init__(); self.open = []
    def handle_starttag(self, tag, attrs):
        if tag not in ("meta",): self.open.append(tag)
    def handle_startendtag(self, tag, attrs): pass
    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag: sys.exit(1)
c = Check(); c.feed(open(sys.argv[1], encoding="utf-8").read()); sys.exit(len(c.open) > 0)
END
fi

# A line that a kill has torn; texts that want to be obeyed; a figure that is not a number.
printf '{"step": 4, "critic/rewards/mean": null}\n{"step": 5, "criti' >>"$run/metrics.jsonl"
printf '{"step": 4, "prompt": "</pre><script>alert(1)</script>", "completion": "\\u0007&\\"", "score": 1}\n' >>"$run/samples.jsonl"
"$TREADLE" report "$run" --out "$folder/page.html" >"$folder/out" || fail "a torn line is not passed over"
if grep -q '<script' "$folder/page.html"; then fail "a text is obeyed"; fi
grep -q '&#60;script&#62;' "$folder/page.html" || fail "a text is not shown"
grep -q '\\x07&#38;&#34;' "$folder/page.html" || fail "a control character is not shown as what it is"
rm "$run/memory.json" "$run/switch.json" "$run/samples.jsonl" "$run/config.yaml"
"$TREADLE" report "$run" >/dev/null || fail "what is missing is not left out"

refused() {
  local status=0
  "$TREADLE" report "$2" >"$folder/out" 2>"$folder/err" || status=$?
  [ $status = 2 ] || fail "status $status: $1"
  grep -q "$1" "$folder/err" || { cat "$folder/err"; fail "no '$1'"; }
}
refused 'has no metrics.jsonl' "$folder/data"
cp "$run/metrics.jsonl" "$folder/kept"
printf '{"step": 1}\nnonsense\n' >"$run/metrics.jsonl"
refused 'metrics.jsonl: line 2' "$run"
printf '{"step": "x"}\n' >"$run/metrics.jsonl"
refused 'line 1: step is not a whole number' "$run"
cp "$folder/kept" "$run/metrics.jsonl"
# No step yet: what there is is drawn, and no number is made up.
for lines in '' '{"step": 0, "val-core/sequence/reward/mean@1": 0.5}\n' '{"step": 0, "val-co'; do
  printf "$lines" >"$run/metrics.jsonl"
  "$TREADLE" report "$run" --out "$folder/page.html" >"$folder/out" 2>"$folder/err" || { cat "$folder/err"; fail "no page of '$lines'"; }
  [ "$(cat "$folder/out")" = "no steps yet, and no rewards: $folder/page.html" ] || { cat "$folder/out"; fail "no word of steps of '$lines'"; }
  if grep -qw 'nan' "$folder/page.html"; then fail "the page of '$lines' has nan"; fi
done
printf '{"step": 0, "val-core/sequence/reward/mean@1": 0.5}\n' >"$run/metrics.jsonl"
"$TREADLE" report "$run" --out "$folder/page.html" >"$folder/out"
grep -q '<figcaption>Reward' "$folder/page.html" || fail "the test before the first step is not drawn"
refused 'there is no such folder' "$folder/nowhere"
cp "$folder/kept" "$run/metrics.jsonl"
echo '[' >"$run/switch.json"
refused 'switch.json: line' "$run"
