#!/usr/bin/env bash
# A generator stops at the end tokens of tokenizer and generation_config (config.json's where that has none), whoever asks it: generate, train,
# eval. An end token beyond the vocabulary is refused. Which token a model says first is asked, and then made the tokenizer's end.
# ctest: timeout=120
. "$(dirname "$0")/found.bash"
model=$folder/model
run 0 "$TREADLE" make-model "$model" --layers 1 --hidden 64 --vocab 64
# end JSON [TOKEN]: what config.json and generation_config.json say ("": nothing), and the id of the tokenizer's end token
python3 - "$model" <<'END'
import json, sys
vocab = {chr(0x4e00 + i): i for i in range(64)}
json.dump({"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": vocab, "merges": []}},
          open(sys.argv[1] + "/tokenizer.json", "w"))
END
cp "$model/config.json" "$folder/config.json"
# ends CONFIG GENERATION TOKENIZER: ids, "none" for none
ends() {
  python3 - "$folder" "$@" <<'END'
import json, os, sys
folder, config, generation, tokenizer = sys.argv[1:]
made = json.load(open(folder + "/config.json"))
made.pop("eos_token_id", None)
if config != "none": made["eos_token_id"] = json.loads(config)
json.dump(made, open(folder + "/model/config.json", "w"))
path = folder + "/model/generation_config.json"
if os.path.exists(path): os.remove(path)
if generation != "none": json.dump({"eos_token_id": json.loads(generation)}, open(path, "w"))
one = {} if tokenizer == "none" else {"eos_token": chr(0x4e00 + int(tokenizer))}
one["chat_template"] = "{% for m in messages %}{{ m.content }}{% endfor %}"
json.dump(one, open(folder + "/model/tokenizer_config.json", "w"))
END
}
prompt=$(python3 -c 'print(chr(0x4e00 + 5) + chr(0x4e00 + 6))')
generate() { rm -f "$folder/answers"; run 0 "$TREADLE" generate --model "$model" --prompt "$prompt" --temperature 0 --max-new-tokens 6 --out "$folder/answers" "$@"; }
ids() { sed 's/.*"token_ids": \[\([^]]*\)\].*/\1/' "$folder/answers"; }
# stops WHY: after the first token; goes on: six
stops() { [ "$(ids)" = "$first" ] || fail "$1: does not stop at $first: $(ids)"; grep -q '"finish_reason": "stop"' "$folder/answers" || fail "$1: no stop"; }
goes_on() { [ "$(ids)" = "$all" ] || fail "$1: $(ids), not $all"; }

ends none none none
generate
all=$(ids) first=${all%%,*}
other=63
[ "$first" != 63 ] || other=62
ends none none "$first"; generate; stops "the tokenizer's, alone"
ends "$other" "[$other, 61]" "$first"; generate; stops "the tokenizer's, and other ones"
ends "$other" "[$other, $first]" none; generate; stops "generation_config's"
ends "$first" none "$other"; generate; stops "config's, where there is no generation_config"
ends "$first" "$other" none; generate; goes_on "config's, where generation_config has one"
ends "$first" none "$first"; generate --ignore-eos; goes_on "--ignore-eos"
ends none none 99
refused "has the id 64, and the model of $model/config.json has a vocabulary of 64" "$TREADLE" generate --model "$model" --prompt "$prompt" --max-new-tokens 1
ends none 64 none
refused 'generation_config.json: eos_token_id 64 is not in the vocabulary of 64' "$TREADLE" generate --model "$model" --prompt "$prompt" --max-new-tokens 1

cat >"$folder/run.yaml" <<END
megatron_training: {data_path: $folder/rows.jsonl, train_iters: 1, global_batch_size: 1}
actor_config: {model: $model, save: $folder/run, lr: 0, micro_batch_size: 1}
generate_config: {sampling_config: {max_tokens: 6}}
rl_config: {n_samples_per_prompt: 2, max_prompt_length: 10, verifier_function: ["length:target=3"], dump_rollouts: $folder/dump}
END
echo "{\"prompt\": \"$prompt\", \"answer\": \"a\", \"response\": \"$prompt\"}" >"$folder/rows.jsonl"
train() { rm -rf "$folder/run" "$folder/dump"; run "${1:-0}" "$TREADLE" train "$folder/run.yaml" --threads 1; }
sample() { head -1 "$folder/dump/1.jsonl" | sed 's/.*"ids": \[\([^]]*\)\].*/\1/'; }
ends none none none
train
all=$(sample) first=${all%%,*}
ends "$other" "$other" "$first"
train
[ "$(sample)" = "$first" ] || fail "train does not stop at the tokenizer's end token, $first: $(sample)"
ends none none 99
train 2
said "has the id 64, and the model of $model/config.json has a vocabulary of 64"
refused "has the id 64, and the model of $model/config.json has a vocabulary of 64" "$TREADLE" eval "$model" --data "$folder/rows.jsonl" --reward length:target=3
cat >"$folder/sft.yaml" <<END
megatron_training: {data_path: $folder/rows.jsonl, train_iters: 1, global_batch_size: 1}
actor_config: {model: $model, save: $folder/sft, micro_batch_size: 1}
END
refused "has the id 64, and the model of $model/config.json has a vocabulary of 64" "$TREADLE" sft "$folder/sft.yaml"
