#!/usr/bin/env bash
# examples/sequence_rewards.py gives tokens what verl's own reward function gave them (tests/data/sequence/rewards.tsv), and examples/ppo-sequence.yaml
# is a run with it, from random weights.
# ctest: timeout=120
set -euo pipefail
command -v python3 >/dev/null || { echo "no python3 here: skipped"; exit 77; }
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
cd "$TREADLE_SOURCE"

python3 - tests/data/sequence/rewards.tsv <<'END'
import json, subprocess, sys
rows = [line.rstrip("\n").split("\t") for line in open(sys.argv[1])]
samples = [
    {"id": str(i), "prompt": prompt, "answer": answer, "ids": ["SEPU0123456789,:".index(letter) for letter in response]}
    for i, (prompt, answer, response, _) in enumerate(rows)
]
said = subprocess.run(
    ["python3", "examples/sequence_rewards.py"], input="".join(json.dumps(s) + "\n" for s in samples), capture_output=True, text=True, check=True
).stdout.splitlines()
assert len(rows) == 200 and len(said) == 200, len(said)
for row, sample, line in zip(rows, samples, said):
    answer, rewards = json.loads(line), [float(text) for text in row[3].split()]
    assert answer["id"] == sample["id"] and len(answer["scores"]) == len(rewards), (row, answer)
    assert all(abs(a - b) < 1e-6 for a, b in zip(answer["scores"], rewards)), (row, answer)
END

awk -F'\t' '$1 == "train" { printf "{\"prompt\": \"%s\", \"answer\": \"%s\"}\n", $2, $3 }' tests/data/sequence/verl.tsv >"$folder/train.jsonl"
[ "$(wc -l <"$folder/train.jsonl")" = 800 ] || { echo "not 800 prompts"; exit 1; }
"$TREADLE" train examples/ppo-sequence.yaml "megatron_training.data_path=$folder/train.jsonl" "actor_config.save=$folder/run" \
  megatron_training.train_iters=2 megatron_training.global_batch_size=40 rl_config.mini_batch_size=10 actor_config.micro_batch_size=10 \
  "rl_config.dump_rollouts=$folder/dump" --threads 1 >"$folder/out" 2>&1 || { cat "$folder/out"; exit 1; }
python3 - "$folder/dump" <<'END'
import json, runpy, sys
rewards_of = runpy.run_path("examples/sequence_rewards.py")["rewards_of"]
answers = dict(line.rstrip("\n").split("\t")[1:] for line in open("tests/data/sequence/verl.tsv"))
scored = 0
for step in (1, 2):
    for line in open(f"{sys.argv[1]}/{step}.jsonl"):
        row = json.loads(line)
        prompt = "".join("SEPU0123456789,:"[i] for i in row["prompt_ids"])
        assert prompt.endswith("S") and len(row["ids"]) <= 32, row
        score = sum(rewards_of(row["ids"], answers[prompt[:-1]]))
        assert abs(row["score"] - score) < 1e-9, (row, score)
        scored += 1
assert scored == 80, scored
END
