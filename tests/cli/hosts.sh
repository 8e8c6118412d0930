# For scripts here that source this: two hosts (tools/two-hosts), or status 77 with a word where there can be none; a folder; and processes by their ids, pids,
# which end with the script, as do hosts and folder. shellcheck shell=bash
cd "${TREADLE_SOURCE:-$(dirname "$0")/../..}"
source tools/two-hosts
unset RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE PMIX_RANK
lack=$(hosts_lack)
if [[ -n $lack ]]; then
  echo "no hosts can be made: $lack"
  exit 77
fi
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
pids=()
finish() {
  local pid
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  hosts_remove
  rm -rf "$folder"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP
