"""Records verl's arithmetic sequences: its prompts, and its own answers to them.

  python3 record.py VERL PARQUET_FOLDER

VERL: a checkout of verl with tests/e2e/envs/digit_completion/task.py; PARQUET_FOLDER:
tests/e2e/arithmetic_sequence/data.
Needs numpy and pyarrow. Writes verl.tsv beside this file: file, prompt, answer, in the order of the files.
"""

import importlib.util
import pathlib
import sys

import pyarrow.parquet

spec = importlib.util.spec_from_file_location(
    "task", pathlib.Path(sys.argv[1]) / "tests/e2e/envs/digit_completion/task.py"
)
task = importlib.util.module_from_spec(spec)
spec.loader.exec_module(task)

with open(pathlib.Path(__file__).with_name("verl.tsv"), "w") as out:
    for name in ("train", "test"):
        for row in pyarrow.parquet.read_table(pathlib.Path(sys.argv[2]) / f"{name}.parquet").to_pylist():
            [message] = row["prompt"]
            assert message["role"] == "user"
            prompt = message["content"]
            print(name, prompt, task.generate_ground_truth_response(prompt), sep="\t", file=out)
