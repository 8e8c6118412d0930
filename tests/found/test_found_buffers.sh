#!/usr/bin/env bash
# A checkpoint without the correction biases of routers, which a state dict of parameters alone does not have, was refused
# without a word of why they may be missing.
. "$(dirname "$0")/found.bash"

cp "$TREADLE_SOURCE"/tests/golden/models/dsv3-yarn/{config.json,model.safetensors} "$folder"
run 0 "$TREADLE" inspect "$folder"
gate=model.layers.2.mlp.gate.e_score_correction
LC_ALL=C sed -i "s/${gate}_bias/${gate}_bits/" "$folder/model.safetensors"
refused "; ${gate}_bias is a buffer, which a state dict of parameters alone does not have; 1 left over: " \
  "$TREADLE" inspect "$folder"
