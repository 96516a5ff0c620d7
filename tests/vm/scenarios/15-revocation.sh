# Revocation: who acknowledges stays, who is late or stopped is dropped, and the provider gets its promise.
# SPDX-License-Identifier: BSD-2-Clause
# Cases 23, 30 and 32.
# limit: 400
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

start_daemon --shmem 0:256M --rdma-listen "$addr0" --rdma-listen "$addr1" --revoke-timeout 1
start_provider stays --shmid 0 --shm-offset 128M --memfd 4M
asked "the one that stays writes a line" stays '^put' put 0 still here

start_program live lib_peer "$addr0" "$addr1"
start_program other lib_peer "$addr1" "$addr0"
start_program late raw_peer "$addr0" "$addr1" 3000
start_program never raw_peer "$addr1" "$addr0" never
says "the live peer is connected" live '^connect ok'
says "the other one is connected" other '^connect ok'
says "the late one is admitted" late '^welcome'
says "the one that never acknowledges is admitted" never '^welcome'

# While everybody acknowledges in time, a removal does not wait for the timeout.
end_program late
end_program never
start_provider goes --shmid 0 --shm-offset 0 --memfd 4M
asked "the live peer reads it" live '^read ok' read 0 0 16
end_program goes
wait_for 5 has_views 1 "$addr0"
matches "a removal that all acknowledge leaves nobody dropped" '^$' "$(grep -i 'dropped' "$daemon_log" || true)"

start_program late raw_peer "$addr0" "$addr1" 3000
start_program never raw_peer "$addr1" "$addr0" never
start_program stopped lib_peer "$addr0" "$addr1"
says "the late one is admitted again" late '^welcome'
says "the one that never acknowledges too" never '^welcome'
says "the one to be stopped is connected" stopped '^connect ok'
start_provider goes --shmid 0 --shm-offset 0 --memfd 4M
asked "the provider writes" goes '^put' put 0 mine
says "the late peer hears of it" late '^notice'
says "and acknowledges, late" late '^ack'
key=$(rkey "$addr0" 0)
asked "the late peer reads by its key" late '^read ok mine' read "$key" 0 16
kill -STOP "${program_pid[stopped]}"

end_program goes
check "the views are gone within the timeout" wait_for 5 has_views 1 "$addr0"
says "the late peer was dropped" late '^disconnected'
says "the one that never acknowledges was dropped" never '^disconnected'
asked "the live peer is still served" live '^read ok still here$' read 0 0x8000000 16
asked "so is the one on the other device" other '^read ok still here$' read 0 0x8000000 16
asked "and knows that the mapping is gone" live '^read ENXIO' read 0 0 16
kill -CONT "${program_pid[stopped]}"
asked "the stopped one, woken, finds itself disconnected or has connected anew" stopped \
    '^read (ECONNRESET|ETIMEDOUT|ok still here)' read 0 0x8000000 16
# The one that never acknowledges may have been found silent before.
equal "three were dropped for it, by the log" 3 "$(grep -cE 'dropped: it (did not acknowledge|has not answered)' "$daemon_log")"
is_last_unmap() { tail -n +"$1" "$daemon_log" | grep -q 'unmapped region 0 \[0, '; }
last_drop=$(grep -n 'dropped: it did not acknowledge' "$daemon_log" | tail -n 1 | cut -d: -f1)
check "and the mapping ended only after that" wait_for 5 is_last_unmap "$last_drop"

# A key that is gone: the access fails and ends that peer alone.
start_program thief raw_peer "$addr0" "$addr1" now
says "a peer is admitted" thief '^welcome'
# The end of the connection may be heard of before that of the access.
asked "a withdrawn key reads nothing" thief '^(read remote access error|disconnected)' read "$key" 0 16
says "and costs the peer its connection" thief '^disconnected'
asked "nobody else" live '^read ok still here$' read 0 0x8000000 16

# Memory that its owner cuts off or empties while a peer reads.
file=/dev/shm/mrshare-15
clean_up rm -f "$file"
truncate -s 4M "$file"
start_provider careless --shmid 0 --shm-offset 0 "$file"
wait_for 5 has_views 2 "$addr0"
answers() { (($(grep -c '^read ok' "$scratch/other.log") >= $1)); }
before=$(grep -c '^read ok' "$scratch/other.log")
for ((i = 0; i < 100; i++)); do
    tell other read 0 0 65536
    ((i == 30)) && fallocate -p -o 0 -l 1M "$file"
    ((i == 60)) && truncate -s 0 "$file"
done
check "a peer reads on while a hole is punched, and while the file is truncated" wait_for 30 answers $((before + 100))
asked "the others are served" live '^read ok still here$' read 0 0x8000000 16
end_program careless
check "and the mapping is removed as any other" wait_for 5 has_views 1 "$addr0"
