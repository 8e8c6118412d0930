# For scripts here that source this: runs under the launcher of MPI, in a folder that goes when the script ends.
#
#     launch           the launcher, for more ranks than there are processors: "${launch[@]}" -n 4 COMMAND...
#     value FILE KEY   what $folder/FILE, a run's JSON, says of it
#     fail WORDS       ends the script. shellcheck shell=bash
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; exit 1; }
value() { sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" "$folder/$1"; }
launch=("$MPIEXEC")
case $("$MPIEXEC" --version 2>/dev/null) in *'Open MPI'* | *OpenRTE*) launch+=(--oversubscribe) ;; esac
