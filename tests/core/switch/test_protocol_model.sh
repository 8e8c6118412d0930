#!/usr/bin/env bash
# The model of the switch's protocol holds, and mistakes planted in it are found. Skipped without spin.
# ctest: stage=nightly label=model timeout=900
set -euo pipefail
exec "$TREADLE_SOURCE/tools/check-model"
