#!/usr/bin/env bash
# Data in another format than JSON lines: told by the first bytes and not by the name, refused by each command that reads data, before anything
# else of it is read, with a line that makes JSON lines of it.
source "$TREADLE_SOURCE/tests/found/found.bash"
sequence=$TREADLE_SOURCE/examples/sequence model=$TREADLE_SOURCE/examples/sequence/policy
cd "$folder"
printf 'PAR1\x15\x04\x15\x00PAR1' >table.jsonl
cp table.jsonl 'a table.parquet'
echo '{"prompt": "1,2:9,3", "answer": "3,4,5", "response": "3,4,5"}' >good.parquet
echo '{"text": "1,2:9,3"}' >text.parquet

train() {
  "$TREADLE" train "$TREADLE_SOURCE/examples/grpo-demo.yaml" "megatron_training.tokenizer_name_or_path=$sequence" "actor_config.model=$model" \
    actor_config.tensor_model_parallel_size=1 actor_config.pipeline_model_parallel_size=1 "actor_config.save=$folder/run" "$@"
}
sft() {
  "$TREADLE" sft "$TREADLE_SOURCE/examples/sft-policy.yaml" "megatron_training.tokenizer_name_or_path=$sequence" "actor_config.model=$model" \
    "actor_config.save=$folder/run" "$@"
}
is_table() { refused 'is a parquet file, and JSON lines are wanted' "$@"; }
is_table train megatron_training.data_path=table.jsonl megatron_training.val_path=good.parquet
is_table train megatron_training.data_path=good.parquet megatron_training.val_path=table.jsonl
is_table train megatron_training.data_path=good.parquet,table.jsonl megatron_training.val_path= megatron_training.test_interval=0
is_table sft megatron_training.data_path=table.jsonl
is_table sft megatron_training.data_path=good.parquet megatron_training.val_path=table.jsonl
is_table "$TREADLE" eval "$model" --data table.jsonl --reward math
for command in generate score; do is_table "$TREADLE" $command --model "$model" --file table.jsonl; done
is_table "$TREADLE" tokenize --model "$model" --file table.jsonl
is_table "$TREADLE" grad "$model" --file table.jsonl --out grads
[ ! -e run ] || fail "a folder was made for a run that is refused"

# The name tells nothing.
run 0 "$TREADLE" tokenize --model "$model" --file text.parquet
refused "sys.argv[1]).to_pylist()), sep=\"\\n\")' 'a table.parquet' > rows.jsonl" "$TREADLE" tokenize --model "$model" --file 'a table.parquet'
cp table.jsonl rows.jsonl
refused "rows.jsonl > lines.jsonl" "$TREADLE" tokenize --model "$model" --file rows.jsonl

# The other formats, and what is not a text at all. The lines are Python, and those that need no package make what they say.
is() { # BYTES WORDS
  printf "$1" >other.jsonl
  refused "other.jsonl: $2" "$TREADLE" tokenize --model "$model" --file other.jsonl
}
is 'PARE\x00' 'is an encrypted parquet file'
is 'ARROW1\x00\x00' 'is an Arrow file'
is 'FEA1\x00' 'is a Feather file'
is '\xff\xff\xff\xff\x10\x00' 'is an Arrow stream'
is 'ORC\x0a' 'is an ORC file'
is '\x28\xb5\x2f\xfd\x00' 'is compressed by zstd'
is 'PK\x03\x04\x14' 'is a zip archive'
is '\xff\xfe{\x00' 'is a text in UTF-16'
is '\x00\x01' 'is not text: it begins with the bytes 00 01,'
is '\x89HDF\x0d\x0a' 'is not text'
is '\x80\x04\x95' 'is not text'
if command -v python3 >/dev/null; then
  line() { sed -n 's/.*this makes them: //p' err; }
  is PAR1 'is a parquet file'
  program=$(line | cut -d"'" -f2) python3 -c 'import os; compile(os.environ["program"], "line", "exec")' || fail "no Python: $(line)"
  for module in gzip bz2 lzma; do
    python3 -c "import $module" 2>/dev/null || continue
    python3 -c "import $module, sys; $module.open('packed.jsonl', 'wb').write(open('good.parquet', 'rb').read())"
    refused 'is compressed by' "$TREADLE" tokenize --model "$model" --file packed.jsonl
    bash -c "$(line)" && cmp rows.jsonl good.parquet || fail "$(line)"
  done
  python3 -c 'open("wide.jsonl", "w", encoding="utf-16").write(open("good.parquet").read())'
  refused 'is a text in UTF-16' "$TREADLE" tokenize --model "$model" --file wide.jsonl
  bash -c "$(line)" && cmp rows.jsonl good.parquet || fail "$(line)"
fi
