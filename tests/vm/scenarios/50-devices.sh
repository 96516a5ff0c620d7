# Devices that are not there at the start, that go under load and come back, again and again.
# SPDX-License-Identifier: BSD-2-Clause
# Case 33.
# limit: 300
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

remove() { rdma link delete "rxe$1"; }
make() { rdma link add "rxe$1" type rxe netdev "$([[ $1 == 0 ]] && echo va || echo vb)"; }
make_both() { remove 0; remove 1; make 0; make 1; } 2>/dev/null
logged() { grep -qE -- "$1" "$daemon_log"; }
logged_times() { [[ $(grep -cE -- "$2" "$daemon_log") -ge $1 ]]; }

# None at the start: both kinds of listeners.
clean_up make_both
remove 0
remove 1
mrshared --provider-socket "$provider_socket" --shmem 0:64M --rdma-listen "$addr0" --rdma-listen 0.0.0.0:7472 >>"$daemon_log" 2>&1 &
daemon_pid=$!
clean_up stop "$daemon_pid"
check "without any device the daemon starts" wait_for 10 logged 'ready'
check "and says how to make one" logged 'no RDMA device.*rdma link add'
start_provider one --shmid 0 --shm-offset 0 --memfd 4M
asked "a provider maps, and writes" one '^put' put 0 early
start_provider two --shmid 0 --shm-offset 8M --memfd 4M
make 0
check "a device that comes is published on" wait_for 10 logged 'rxe0 is published'
check "with all that was mapped" wait_for 5 has_views 2 "$addr0"
check "through the wildcard as well" has_views 2 "$addr0:7472"
start_program atomic raw_peer "$addr0" "$addr0" now
says "the first device grants atomics" atomic '^welcome 7'
equal "a peer reads what was written before" early "$(mrshare read "$addr0" 0:0 5)"
end_program two
check "a removal is a removal" wait_for 5 has_views 1 "$addr0"
make 1
start_provider two --shmid 0 --shm-offset 8M --memfd 4M

# A second daemon's worth of devices: both are there, one goes under load.
stop "$daemon_pid"
end_program one
end_program two
end_program atomic
rm -f "$daemon_log"
start_daemon --shmem 0:64M --rdma-listen "$addr0" --rdma-listen "$addr1"
start_provider one --shmid 0 --shm-offset 0 --memfd 16M
asked "the provider writes" one '^put' put 0 hello
start_program other lib_peer "$addr1" "$addr1"
says "a peer is connected on rxe1" other '^connect ok'
other=$(grep -o 'peer [0-9.:]* connected' "$daemon_log" | tail -n 1)
other=${other% connected}
# All MRs: one whose thread has ended is not told apart by its process.
facts() { echo "$(rdma resource show mr | wc -l) $(fd_count "$daemon_pid") $(awk '/^VmPin/ {print $2}' "/proc/$daemon_pid/status")"; }
gone() { (($(grep -c 'disconnected: device rxe0 is gone' "$daemon_log") == round)); }
for ((round = 1; round <= ${rounds:=2}; round++)); do
    start_program flood raw_peer "$addr0" "$addr0" now
    says "round $round: a peer is admitted on rxe0" flood '^welcome 7'
    tell flood flood "$(rkey "$addr0" 0)" 0x100000 "$(head -c 3000 /dev/zero | tr '\0' x)"
    sleep 0.5
    start=${EPOCHREALTIME/./}
    check "round $round: rxe0 is removed under load" timeout 20 rdma link delete rxe0
    echo "# removed within $(((${EPOCHREALTIME/./} - start) / 1000)) ms"
    check "round $round: its peer is disconnected" wait_for 10 gone
    end_program flood
    rm "$scratch/flood.log"
    asked "round $round: the peer on rxe1 is still served" other '^read ok hello$' read 0 0 16
    asked "round $round: the provider is, too" one '^got hello$' get 0
    if ((round == 1)); then
        start_provider meanwhile --shmid 0 --shm-offset 32M --memfd 4M
        check "what is mapped meanwhile is published on rxe1" wait_for 5 has_views 2 "$addr1"
    fi
    make 0
    check "round $round: rxe0 is back" wait_for 15 logged_times "$round" 'rxe0 is published'
    equal "round $round: with all mappings" 2 "$(views "$addr0")"
    equal "round $round: a peer reads there" hello "$(mrshare read "$addr0" 0:0 5)"
    if ((round == 1)); then
        sleep 2
        facts_before=$(facts)
    fi
done
are_facts() { [[ $(facts) == "$facts_before" ]]; }
wait_for 5 are_facts || true
equal "MRs, files and locked memory are what they were after the first round" "$facts_before" "$(facts)"
equal "the peer on rxe1 had one connection all the time" "" "$(grep -E "$other (dropped|disconnected)" "$daemon_log" || true)"
