#!/usr/bin/env bash
# Files beside a model's weights that cannot be read or copied: a link that leads nowhere is not absence (the template, the tokenizer that would be taken instead is another one),
# and what a checkpoint could not be given is found before the first step, not at the first checkpoint.
source "$TREADLE_SOURCE/tests/found/found.bash"
policy=$TREADLE_SOURCE/examples/sequence/policy
cd "$folder"
echo '{"ids": [4, 5, 6], "mask": [0, 1, 1]}' >rows.jsonl
echo '{"prompt": "1,2:9,3", "answer": "3,4,5"}' >prompts.jsonl
model() {
  rm -rf model run-1 made
  cp -r "$policy" model
}
common=(megatron_training.tokenizer_name_or_path= megatron_training.train_iters=1 megatron_training.global_batch_size=1 actor_config.model=model actor_config.save=run-1 --threads 1)
train() {
  "$TREADLE" train "$TREADLE_SOURCE/examples/grpo-demo.yaml" megatron_training.data_path=prompts.jsonl megatron_training.val_path= megatron_training.test_interval=0 \
    actor_config.micro_batch_size=4 actor_config.tensor_model_parallel_size=1 actor_config.pipeline_model_parallel_size=1 rl_config.n_samples_per_prompt=4 "${common[@]}"
}
sft() { "$TREADLE" sft "$TREADLE_SOURCE/examples/sft-policy.yaml" megatron_training.data_path=rows.jsonl actor_config.micro_batch_size=1 "${common[@]}"; }
convert() { "$TREADLE" convert model made --from hf --to megatron; }
all_refuse() { # TEXT: before any work
  for command in train sft convert; do
    refused "$1" $command
    [ ! -e run-1 ] && [ ! -e made/release ] || fail "$command has begun its work"
    rm -rf made
  done
}

for name in chat_template.jinja tokenizer.json special_tokens_map.json generation_config.json README.md; do
  model
  ln -s blobs/that/are/gone "model/$name"
  all_refuse "model/$name: "
done
# The engine alone, where it reads them.
for name in chat_template.jinja tokenizer.json special_tokens_map.json generation_config.json; do
  model
  ln -s blobs/that/are/gone "model/$name"
  refused "model/$name: " "$TREADLE" generate --model model --prompt 1,2:9,3 --chat --max-new-tokens 1
done
# A link that leads somewhere is the file.
model
mv model/tokenizer_config.json blob
ln -s ../blob model/tokenizer_config.json
run 0 sft
cmp blob run-1/global_step_1/actor/huggingface/tokenizer_config.json || fail "a file behind a link is not saved"

model
truncate -s 1073741825 model/data.bin.jsonl
all_refuse 'model/data.bin.jsonl: has 1073741825 bytes, and is to be copied beside the weights'
if [ "$(id -u)" != 0 ]; then # root reads everything
  model
  echo notes >model/notes.txt
  chmod 000 model/notes.txt
  all_refuse 'model/notes.txt: cannot be read'
fi
# Folders, pipes, weights of other formats and hidden files are no companions.
model
mkdir model/onnx
mkfifo model/pipe
ln -s gone model/.cache
ln -s gone model/pytorch_model.bin
run 0 sft
