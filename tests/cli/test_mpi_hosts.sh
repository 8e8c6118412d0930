#!/usr/bin/env bash
# treadle under an MPI launcher whose ranks are on two hosts, which are network namespaces: the same command and answers as on one, without
# an address. Rank 0 finds one, and tells it by MPI.
# ctest: label=mpi
set -euo pipefail
cd "${TREADLE_SOURCE:-$(dirname "$0")/../..}"
source tools/two-hosts
unset RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE PMIX_RANK
lack=$(hosts_lack)
for command in unshare hostname; do command -v $command >/dev/null || lack="there is no '$command'"; done
[[ -n $lack ]] || unshare --uts true 2>/dev/null || lack="this system does not let root make namespaces of host names"
if [[ -n $lack ]]; then
  echo "no hosts can be made: $lack"
  exit 77
fi
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
export HOSTS=$$ folder
finish() {
  hosts_remove
  rm -rf "$folder"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP
fail() {
  echo "$1"
  head -50 "$folder/said" "$folder/why"
  exit 1
}

# What a launcher takes for ssh: "host1 COMMAND". Launchers tell hosts apart by their names.
cat >"$folder/on" <<END
#!/usr/bin/env bash
source "$PWD/tools/two-hosts"
while [[ \$1 == -* ]]; do shift; done
export host=\$1
shift
exec ip netns exec "\$(hosts_name "\${host#host}")" unshare --uts sh -c 'hostname "\$host" && exec sh -c "\$*"' sh "\$@"
END
chmod +x "$folder/on"
case $("$MPIEXEC" --version 2>/dev/null) in
*'Open MPI'* | *OpenRTE*)
  launch=("$MPIEXEC" --oversubscribe --mca plm_rsh_agent "$folder/on" --mca btl "self,vader,tcp" --mca oob_tcp_if_include 10.77.0.0/24
    --mca btl_tcp_if_include 10.77.0.0/24 --host host0:2,host1:2)
  alone=("$MPIEXEC" --oversubscribe)
  loopback=("${alone[@]}" --mca btl self,tcp --mca btl_tcp_if_include lo) # shared memory takes processes of one number for one
  ;;
*)
  launch=("$MPIEXEC" -launcher ssh -launcher-exec "$folder/on" -iface cable -hosts host0:2,host1:2)
  alone=("$MPIEXEC")
  loopback=(env UCX_TLS=self,tcp UCX_NET_DEVICES=lo "${alone[@]}")
  ;;
esac
run() { # STATUS COMMAND...: of 4 ranks, from host 0. STATUS any: not 0, as launchers have their own for ranks that die
  local wanted=$1 status=0 start=$SECONDS
  shift
  (hosts_run 0 unshare --uts sh -c 'hostname host0 && exec "$@"' sh timeout --kill-after=5 100 "${launch[@]}" -n 4 "$@") \
    >"$folder/said" 2>"$folder/why" </dev/null || status=$?
  case $wanted in
  any) ((status != 0 && SECONDS - start < 90)) ;;
  *) ((status == wanted)) ;;
  esac || fail "$* ended with $status, not $wanted"
}
value() { sed -n 's/^  "'"$1"'": "\?\([^",]*\)"\?,\?$/\1/p' "$folder/said"; }
once() { [[ $(grep -c -- "$1" "$folder/why") == 1 ]] || fail "it does not say once: $1"; }

hosts_make || fail "no hosts"
"$TREADLE" make-model "$folder/model" --layers 4 --hidden 256 --vocab 1000 >/dev/null
"$TREADLE" make-model "$folder/other" --layers 2 --hidden 256 --vocab 1000 >/dev/null
switch=("$TREADLE" switch --train "megatron:tp=2,pp=2" --infer "vllm:tp=2" --check)

# The same command and answers, printed once.
"${alone[@]}" -n 4 "${switch[@]}" --model "$folder/model" --cycles 2 --json >"$folder/said" 2>"$folder/why" || fail "not on one host"
[[ $(value check) == pass ]] || fail "not on one host"
digest=$(value digest)
run 0 "${switch[@]}" --model "$folder/model" --cycles 2 --json
[[ $(value check) == pass && $(value nodes) == 2 && $(value node_ratio) == 1 ]] || fail "not what it should be"
[[ $(value digest) == "$digest" ]] || fail "another digest than on one host: $digest"
[[ $(grep -c '^{' "$folder/said") == 1 ]] || fail "it is not said once"
[[ $(value node_moved_bytes) -gt 0 && $(value net) == tcp ]] || fail "nothing went between the hosts"

# An address that is named is taken.
run 0 "${switch[@]}" --model "$folder/model" --cycles 0 --json --meet 10.77.0.1:7000
[[ $(value check) == pass && $(value nodes) == 2 && $(value digest) == "$digest" ]] || fail "not by --meet"

# treadle_group_mpi: all ranks, and halves of them that have ranks on both hosts.
run 0 "$TREADLE_BUILD/tests/test_group_mpi"

# A wrong word, another model on one rank, a rank that dies, a command for one machine: all ranks end, and what is wrong is said once.
run 2 "${switch[@]}" --model "$folder/model" --cap much
once "treadle switch: --cap: 'much' is not a size"
cat >"$folder/differ" <<'END'
#!/usr/bin/env bash
case ${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}} in 3) model=$folder/other ;; *) model=$folder/model ;; esac
exec "$@" --model "$model"
END
chmod +x "$folder/differ"
run 2 "$folder/differ" "${switch[@]}" --cycles 1
once '^treadle switch: .*model'
run any "${switch[@]}" --model "$folder/model" --cycles 1 --fault kill:rank=3,wave=0
run 2 "$TREADLE" convert "$folder/model" "$folder/out" --from hf --to vllm:tp=2
once 'the 4 ranks are on several nodes, and convert works on one'
[[ ! -e $folder/out ]] || fail "convert wrote something"

# Rank 0's machine sends to far ones from an address that the other host does not reach, until it does. (A default route would do, too, but
# then names are asked for along it, and waited for.)
ip -n "$(hosts_name 0)" link add far type veth peer name end
for name in far end; do ip -n "$(hosts_name 0)" link set $name up; done
ip -n "$(hosts_name 0)" address add 10.78.0.1/24 dev far
ip -n "$(hosts_name 0)" route add 192.0.2.0/24 via 10.78.0.2
run 1 "${switch[@]}" --model "$folder/model" --cycles 1 --timeout 2
once '^treadle switch: ranks of several nodes, at 10.78.0.1:[0-9]* of rank 0 (--meet ADDRESS:PORT names another one): .*2, 3'
run 0 "${switch[@]}" --model "$folder/model" --cycles 0 --meet 10.77.0.1:7000
ip -n "$(hosts_name 1)" route add 10.78.0.0/24 via 10.77.0.1
run 0 "${switch[@]}" --model "$folder/model" --cycles 0
hosts_remove

# A machine whose only network is its loopback. Two of the ranks are in containers (process namespaces), and so on other nodes.
cat >"$folder/apart" <<'END'
#!/usr/bin/env bash
case ${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}} in 2 | 3) exec unshare --pid --fork --mount-proc "$@" ;; esac
exec "$@"
END
chmod +x "$folder/apart"
status=0
unshare --net sh -c 'ip link set lo up && exec "$@"' sh timeout --kill-after=5 100 "${loopback[@]}" -n 4 "$folder/apart" "${switch[@]}" \
  --model "$folder/model" --cycles 1 >"$folder/said" 2>"$folder/why" </dev/null || status=$?
[[ $status == 2 ]] || fail "without an address the command ended with $status, not 2"
once 'other nodes than rank 0, whose machine has no address by which others reach it: give one (--meet ADDRESS:PORT)'
[[ ! -s $folder/said ]] || fail "something was printed"
echo good
