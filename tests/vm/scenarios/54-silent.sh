# A slow, a stopped and a vanished peer: each is dropped by its limit, and the others notice nothing.
# SPDX-License-Identifier: BSD-2-Clause
# Cases 30 and 31.
# limit: 200
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

start_daemon --shmem 0:64M --rdma-listen "$addr0" --rdma-listen "$addr1" --keepalive 1 --revoke-timeout 0.5
start_provider one --shmid 0 --shm-offset 0 --memfd 4M
asked "the provider writes" one '^put' put 0 hello
# On rxe1 alone, so that the wire may be cut.
start_program good lib_peer "$addr1" "$addr1"
says "a peer is connected" good '^connect ok'
good=$(grep -o 'peer [0-9.:]* connected' "$daemon_log" | tail -n 1)
good=${good% connected}
start_program told raw_peer "$addr1" "$addr1" now
says "and one that shows its notices" told '^welcome'
start_program slow raw_peer "$addr1" "$addr1" 2000
says "one that is slow" slow '^welcome'
start_program stopped lib_peer "$addr0" "$addr1"
says "one to be stopped" stopped '^connect ok'
start_program vanished lib_peer "$addr0" "$addr1"
says "one to be cut off" vanished '^connect ok'
asked "which reads" vanished '^read ok hello' read 0 0 5

# The good ones, meanwhile: every read and every change is timed.
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }
slowest=0 unmapped=0
works() {
    local lines start took
    lines=$(wc -l <"$scratch/good.log")
    start=$(now_ms)
    tell good read 0 0 5
    wait_for 15 longer_than "$scratch/good.log" "$lines" || true
    took=$(($(now_ms) - start))
    ((took <= slowest)) || slowest=$took
    [[ $(tail -n 1 "$scratch/good.log") == "read ok hello" ]]
}
dropped() { grep -cE -- "$1" "$daemon_log" || true; }

kill -STOP "${program_pid[stopped]}"
tc qdisc add dev vb root netem loss 100%
clean_up tc qdisc del dev vb root
start=$(now_ms) failed=0
until (($(dropped 'has not answered|does not take a frame') >= 2)) || (($(now_ms) - start > 30000)); do
    works || failed=$((failed + 1))
    sleep 0.2
done
echo "# both were dropped within $(($(now_ms) - start)) ms; the slowest read of another took $slowest ms"
equal "the stopped one and the one that was cut off are dropped" 2 "$(dropped 'has not answered|does not take a frame')"
equal "no read of another failed meanwhile" 0 "$failed"
check "nor took longer than 2 s" test "$slowest" -lt 2000
says "the slow one lives on: it is slow, not gone" slow '^ack'
equal "it was not dropped" 0 "$(dropped 'did not acknowledge')"

# What is removed is removed in time; who is slower is dropped.
notices=$(grep -c '^notice' "$scratch/told.log")
start=$(now_ms)
mrshare map --socket "$provider_socket" --shmid 0 --shm-offset 8M --memfd 1M -- true
unmapped=$(($(now_ms) - start))
echo "# mapped and removed within $unmapped ms"
check "a removal does not wait for the slow one" test "$unmapped" -lt 4000
says "which is dropped for it" slow '^disconnected'
says "the other was told at once" told "^notice"
check "of each change" test "$(grep -c '^notice' "$scratch/told.log")" -ge $((notices + 1))
check "and the good one reads on" works
equal "over one connection" "" "$(grep -E "$good (dropped|disconnected)" "$daemon_log" || true)"
kill -CONT "${program_pid[stopped]}"
tc qdisc del dev vb root
asked "the stopped one, woken, finds itself disconnected or has connected anew" stopped \
    '^read (ECONNRESET|ENOTCONN|ETIMEDOUT|ok hello)' read 0 0 5
check "with the wire mended, rxe0 is served again" wait_for 20 mrshare list --source "$addr1" "$addr0"
