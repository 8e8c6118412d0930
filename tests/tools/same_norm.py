"""same_norm.py GRAD METRICS: is the norm that `treadle grad --json` has printed that of a step in metrics.jsonl, as a
number? The two print the same number in other digits now and then."""

import json
import sys

with open(sys.argv[1]) as file:
    norm = json.load(file)["grad_norm"]
with open(sys.argv[2]) as file:
    steps = [step["actor/grad_norm"] for step in map(json.loads, file) if "actor/grad_norm" in step]
if norm not in steps:
    sys.exit(f"the gradients of the dump have norm {norm}, those of the run {steps}")
