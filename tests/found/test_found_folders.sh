#!/usr/bin/env bash
# One folder, one answer: `family check` found a tied lm_head with other values to be "all as the family says", and every other command refused
# it. A folder with safetensors that are not read, or of another type than config.json says, was taken without a word.
. "$(dirname "$0")/found.bash"

"$TREADLE" make-model "$folder/model" --layers 1 --hidden 64 --vocab 264 >"$folder/made"
run 0 "$TREADLE" inspect "$folder/model"
[ ! -s "$folder/err" ] || { cat "$folder/err"; fail "a word about a plain model"; }

# a head that is stored once more, with other values, though the config ties it
cp -r "$folder/model" "$folder/tied"
python3 - "$folder/tied" <<'END'
import json, struct, sys

folder = sys.argv[1]
config = json.load(open(f"{folder}/config.json"))
config["tie_word_embeddings"] = True
json.dump(config, open(f"{folder}/config.json", "w"))
data = open(f"{folder}/model.safetensors", "rb").read()
length = struct.unpack("<Q", data[:8])[0]
header, values = json.loads(data[8:8 + length]), data[8 + length:]
embed = header["model.embed_tokens.weight"]
begin, end = embed["data_offsets"]
if "lm_head.weight" not in header:
    header["lm_head.weight"] = dict(embed, data_offsets=[len(values), len(values) + end - begin])
    values += bytes(b ^ 1 for b in values[begin:end])
text = json.dumps(header).encode()
open(f"{folder}/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + values)
END
for command in 'inspect' 'family check'; do
  refused 'lm_head.weight is tied to model.embed_tokens.weight by the config, but is stored with other values' "$TREADLE" $command "$folder/tied"
done
refused 'lm_head.weight is tied' "$TREADLE" convert "$folder/tied" "$folder/out" --from hf --to megatron:tp=1

# another type than the files have
cp -r "$folder/model" "$folder/typed"
sed -i 's/"\(torch_\)\?dtype": *"[a-z0-9]*"/"dtype": "float16"/' "$folder/typed/config.json"
for command in 'inspect' 'family check'; do
  run 0 "$TREADLE" $command "$folder/typed"
  said 'dtype is fp16, and the files have '
done

# files beside those that are read
cp -r "$folder/model" "$folder/more"
cp "$folder/more/model.safetensors" "$folder/more/model-00001-of-00001.safetensors"
echo '{"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}}' >"$folder/more/model.safetensors.index.json"
for command in 'inspect' 'family check'; do
  run 0 "$TREADLE" $command "$folder/more"
  said 'model-00001-of-00001.safetensors is not read: model.safetensors has precedence, as in transformers'
done
python3 - "$folder/more" <<'END'
import json, struct, sys

data = open(f"{sys.argv[1]}/model.safetensors", "rb").read()
names = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
index = {"weight_map": {name: "model-00001-of-00001.safetensors" for name in names if name != "__metadata__"}}
json.dump(index, open(f"{sys.argv[1]}/model.safetensors.index.json", "w"))
END
mv "$folder/more/model.safetensors" "$folder/more/consolidated.safetensors"
for command in 'inspect' 'family check'; do
  run 0 "$TREADLE" $command "$folder/more"
  said 'consolidated.safetensors is not read: the index does not name it'
done
