#!/usr/bin/env bash
# treadle switch --meet: ranks without a launcher, each in a terminal of its own; what is refused; what knocks at the port meanwhile.
# ctest: label=mpi
set -euo pipefail
folder=$(mktemp -d /tmp/treadle-test-XXXXXX)
trap 'rm -rf "$folder"' EXIT
unset RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE PMIX_RANK
host=127.$((1 + $$ / 256 % 250)).$(($$ % 256)).251
"$TREADLE" make-model "$folder/model" --layers 2 --hidden 256 --vocab 128 >/dev/null
switch=("$TREADLE" switch --model "$folder/model" --check --cycles 1 --page-size 4KiB --cap 1MiB)
two=("${switch[@]}" --train megatron:tp=2 --infer vllm:tp=1)
four=("${switch[@]}" --train megatron:tp=2,pp=2 --infer vllm:tp=2)

fail() {
  echo "$1"
  head -50 "$folder"/said.* "$folder"/why.*
  exit 1
}
start() { # RANK COMMAND...
  local rank=$1
  shift
  "$@" --rank "$rank" >"$folder/said.$rank" 2>"$folder/why.$rank" &
  ranks[rank]=$!
}
ends() { # RANK STATUS
  local status=0
  wait "${ranks[$1]}" || status=$?
  [ "$status" = "$2" ] || fail "rank $1 ended with $status, not $2"
}
says() { grep -q -- "$2" "$folder/why.$1" || fail "rank $1 does not say: $2"; }

# As under mpirun: rank 0 prints, and the others print nothing. Names of IPv6 and hosts are addresses, too.
meet=(--meet "$host:7001" --job one --ranks 2)
start 1 "${two[@]}" "${meet[@]}"
sleep 0.3
start 0 "${two[@]}" "${meet[@]}"
ends 0 0
ends 1 0
[ "$(tail -1 "$folder/said.0")" = PASS ] || fail "no PASS"
grep -q 'on 2 ranks' "$folder/said.0" || fail "not 2 ranks"
cat "$folder/said.1" "$folder/why.0" "$folder/why.1" >"$folder/rest"
[ ! -s "$folder/rest" ] || fail "more was said"
if [ -n "${MPIEXEC:-}" ]; then
  same() { sed 's/[0-9.]\+ *\([num]\?s\|[KMGT]\?i\?B\(\/s\)\?\)\b//g; s/[0-9.]\+//g; s/[ -]\+/ /g' "$1" | grep -v ^digest; } # without figures
  "$MPIEXEC" -n 2 "${two[@]}" >"$folder/mpi"
  diff <(same "$folder/said.0") <(same "$folder/mpi") || fail "other output than under MPI"
  diff <(grep digest "$folder/said.0") <(grep digest "$folder/mpi") || fail "another digest"
fi
for address in localhost:$((20000 + $$ % 10000)) "[::1]:$((20000 + $$ % 10000))"; do
  case $address in "[::1]"*) [ -e /proc/net/if_inet6 ] || continue ;; esac
  for rank in 1 0; do start $rank "${two[@]}" --meet "$address" --job one --ranks 2; done
  ends 0 0
  ends 1 0
done

# Four, among strangers: silence, half a hello, anything, lengths of 2^63.
meet=(--meet "$host:7002" --job four --ranks 4 --nodes 1 --timeout 20)
start 0 "${four[@]}" "${meet[@]}"
for try in $(seq 100); do
  (exec 3<>"/dev/tcp/$host/7002") 2>"$folder/tried" && break
  sleep 0.05
done
strangers=()
for kind in 1 2 3 4 5 6 7 8 9 10; do
  (
    exec 3<>"/dev/tcp/$host/7002"
    case $((kind % 4)) in
    0) sleep 1 ;;
    1) head -c 5000 /dev/urandom >&3 || true ;;
    2) printf '1srt\1\0\0\0' >&3 ;;
    3) printf '1srt\1\0\0\0AAAAAAAA\1\0\0\0\0\0\0\0\0\0\0\0\377\377\377\377\0\0\0\0\0\0\0\200%032d' 0 >&3 ;;
    esac
    sleep 1
  ) 2>/dev/null &
  strangers+=($!)
done
for rank in 3 1 2; do start $rank "${four[@]}" "${meet[@]}"; done
for rank in 0 1 2 3; do ends $rank 0; done
[ "$(tail -1 "$folder/said.0")" = PASS ] || fail "no PASS of four"
for stranger in "${strangers[@]}"; do wait "$stranger" || true; done

# Two of three: the third is named by all.
begin=$(date +%s)
for rank in 0 1; do start $rank "${switch[@]}" --train megatron:dp=3 --infer vllm:tp=1 --meet "$host:7003" --job x --ranks 3 --timeout 1; done
ends 0 1
ends 1 1
says 0 "store $host:7003: rank 2 did not come in time"
says 1 "rank 2 did not come in time"
[ $(($(date +%s) - begin)) -le 3 ] || fail "too late"

# Twice rank 1: the second is refused, and the others meet.
for rank in 0 1; do start $rank "${four[@]}" --meet "$host:7004" --job x --ranks 4 --timeout 20; done
sleep 0.5
status=0
"${four[@]}" --meet "$host:7004" --job x --ranks 4 --rank 1 >"$folder/said.9" 2>"$folder/why.9" || status=$?
[ $status = 2 ] || fail "rank 1 twice: $status"
says 9 "this process wants to be rank 1, which another process is already"
status=0
"${four[@]}" --meet "$host:7004" --job y --ranks 4 --rank 2 >"$folder/said.9" 2>"$folder/why.9" || status=$?
[ $status = 2 ] || fail "another job: $status"
says 9 "is of another job"
status=0
"${four[@]}" --meet "$host:7004" --job x --ranks 5 --rank 2 >"$folder/said.9" 2>"$folder/why.9" || status=$?
[ $status = 2 ] || fail "5 ranks: $status"
says 9 "wants a store of 5 ranks; rank 0 has one of 4"
status=0
"${four[@]}" --meet "$host:7004" --job x --ranks 4 --rank 0 >"$folder/said.9" 2>"$folder/why.9" || status=$?
[ $status = 2 ] || fail "rank 0 twice: $status"
says 9 "the port is in use on this machine"
for rank in 2 3; do start $rank "${four[@]}" --meet "$host:7004" --job x --ranks 4 --timeout 20; done
for rank in 0 1 2 3; do ends $rank 0; done

# Nodes: what goes between them needs UCX.
if [[ $(PATH=$PATH:/usr/sbin:/sbin ldconfig -p) == *libucp.so.0* ]]; then
  for rank in 0 1 2 3; do start $rank "${four[@]}" --meet "$host:7005" --job x --ranks 4 --nodes 2 --timeout 20; done
  for rank in 0 1 2 3; do ends $rank 0; done
  grep -q '"nodes": 2' "$folder/said.0" || grep -q 'between nodes, to infer' "$folder/said.0" || fail "no word of nodes"
fi
for rank in 0 1; do start $rank "${two[@]}" --meet "$host:7006" --job x --ranks 2 --nodes $((rank + 1)) --timeout 20; done
for rank in 0 1; do
  ends $rank 2
  says $rank "rank 1 has a number of nodes of 2, and rank 0 has 1"
done

refused() { # WORDS OPTIONS...
  local words=$1 status=0
  shift
  "${two[@]}" "$@" >"$folder/said.9" 2>"$folder/why.9" || status=$?
  [ $status = 2 ] || fail "$*: $status"
  says 9 "$words"
}
at=(--meet "$host:7007")
refused "--meet ADDRESS:PORT needs --ranks N, too" "${at[@]}" --job x --rank 0
refused "needs --job NAME, too" "${at[@]}" --rank 0 --ranks 2
refused "needs --rank R, too" "${at[@]}" --job x --ranks 2
refused "--job NAME needs --meet ADDRESS:PORT, too" --job x --rank 0 --ranks 2
refused "--rank is 2, and --ranks 2: ranks count from 0" "${at[@]}" --job x --rank 2 --ranks 2
refused "--ranks is '0'" "${at[@]}" --job x --rank 0 --ranks 0
refused "a store has 1 to 1024 ranks" "${at[@]}" --job x --rank 0 --ranks 1025
refused "the address '$host' has no port" --meet "$host" --job x --rank 0 --ranks 2
refused "has no port from 1 to 65535" --meet "$host:70000" --job x --rank 0 --ranks 2
refused "192.0.2.7:7000: this is not an address of this machine" --meet 192.0.2.7:7000 --job x --rank 0 --ranks 2
refused "the address '0.0.0.0:7000' is not one address of one machine" --meet 0.0.0.0:7000 --job x --rank 0 --ranks 2
refused "a job's name has 1 to 200 bytes" "${at[@]}" --job "$(printf 'j%.0s' $(seq 201))" --rank 0 --ranks 2
refused "--job is empty" "${at[@]}" --job "" --rank 0 --ranks 2
refused "--nodes is 'two', and must be a whole number from 1, sizes with commas between them, or auto" --nodes two "${at[@]}" --job x --rank 0 --ranks 2
refused "--nodes is 3, and 2 ranks cannot be divided evenly" --nodes 3 "${at[@]}" --job x --rank 0 --ranks 2
refused "cannot be divided evenly among that many" --nodes 2 # one rank
refused "tp=2" --nodes auto
echo good
