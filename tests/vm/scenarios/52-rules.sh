# A peer on bare verbs breaks the rules of the protocol: it alone is rejected or dropped, and the log says why.
# SPDX-License-Identifier: BSD-2-Clause
# Cases 30 and 34.
# limit: 300
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

start_daemon --shmem 0:64M --rdma-listen "$addr0" --rdma-listen "$addr1" --keepalive 1 --revoke-timeout 3600
start_provider one --shmid 0 --shm-offset 0 --memfd 4M
asked "the provider writes" one '^put' put 0 untouched
start_program other lib_peer "$addr0" "$addr1"
says "a peer that keeps the rules is connected" other '^connect ok'
other=$(grep -o 'peer [0-9.:]* connected' "$daemon_log" | tail -n 1)
other=${other% connected}
key=$(rkey "$addr0" 0) key1=$(rkey "$addr1" 0)

le() { # le BYTES NUMBER: little-endian, in hexadecimal
    local i
    for ((i = 0; i < $1; i++)); do printf %02x $(($2 >> (8 * i) & 255)); done
}
request() { echo "4d525331$(le 2 "$1")$(le 2 "$2")$(le 4 "${3:-1}")$(printf %088d 0)"; } # LOWEST HIGHEST [FLAGS]
ack() { echo "b0e8b38b1a1ab380$(le 4 "$1")$(le 4 "${3:-0}")$(le 8 "$2")"; }             # SEQUENCE GENERATION [RESERVED]

# rejects WHAT REGEX OPTION…: a connection request that is answered so
rejects() {
    local got
    got=$(timeout 20 raw_peer "$addr0" "$addr1" now "${@:3}" </dev/null) || true
    matches "$1 is rejected" "^rejected $2" "${got%%$'\n'*}"
}
rejects "a request without private data" "1 .*protocol" request=
rejects "one of zeros" "1 .*protocol" request="$(printf %0112d 0)"
rejects "another magic" "1 .*protocol" request="4d525332$(request 1 1 | cut -c9-)"
rejects "a lowest version above the highest" "1 .*protocol" request="$(request 2 1)"
rejects "a newer version" "2 .*version 1.*versions 2 to 9" request="$(request 2 9)"
rejects "an older version" "2 .*version 1.*versions 0 to 0" request="$(request 0 0)"
rejects "an initiator_depth of 0" "5 .*initiator_depth" depth=0

# peer OPTION…: one that is admitted
peer() {
    rm -f "$scratch/peer.log"
    start_program peer raw_peer "$addr0" "$addr1" "$@"
    wait_for 15 said peer '^(welcome|half-open)' || fail "a peer is admitted" welcome "$(tail -n 1 "$scratch/peer.log")"
}
# dropped WHAT REGEX: the peer is, for the reason in the log; nobody else is
dropped() {
    if wait_for 15 said peer '^disconnected' && wait_for 5 logged_since "$2"; then
        pass "$1"
    else
        fail "$1" "disconnected, and a log line with $2" "$(tail -n 1 "$scratch/peer.log"), $(tail -n 2 "$daemon_log")"
    fi
    end_program peer
    mark
    answer=$(wc -l <"$scratch/other.log")
    tell other read 0 0 9
    wait_for 15 longer_than "$scratch/other.log" "$answer" || true
    [[ $(tail -n 1 "$scratch/other.log") == "read ok untouched" ]] ||
        fail "$1: and nobody else is" "read ok untouched" "$(tail -n 1 "$scratch/other.log")"
}
mark() { seen=$(wc -l <"$daemon_log"); }
logged_since() { tail -n +$((seen + 1)) "$daemon_log" | grep -qE -- "$1"; }
mark

# Frames that nobody may send, before any notice.
sends() { # sends WHAT HEX REGEX
    peer never
    tell peer send "$2"
    dropped "$1" "$3"
}
no_ack='dropped: it sent a frame that is no acknowledgement'
sends "an empty frame" "" "$no_ack"
sends "7 bytes" 00000000000000 "$no_ack"
sends "a frame of an unknown type" 0102030405060708 "$no_ack"
sends "an ack that is cut off" "$(ack 1 1 | cut -c1-46)" "$no_ack"
sends "a notice" "2aa093fadae09119$(le 4 1)$(le 4 0)$(le 8 1)$(le 8 64)$(le 4 0)$(le 4 0)" "$no_ack"
sends "a welcome" "f822205fbfb15b7b$(le 4 7)$(le 8 1)$(le 4 1)$(le 8 0)$(le 8 4096)$(le 8 1)61" "$no_ack"
sends "257 bytes" "$(ack 1 1)$(printf %0466d 0)" 'receiving failed|an access that it may not make|queue pair failed'
sends "an ack of a notice that was not sent" "$(ack 0 1)" 'acknowledged notice 0, which does not wait'
sends "one of the notice to come" "$(ack 9 1)" 'acknowledged notice 9, which does not wait'

# noticed: a peer with a notice that waits for its ack; sets sequence and generation
noticed() {
    peer never
    wait_for 10 said peer '^notice'
    read -r _ sequence generation _ < <(grep '^notice' "$scratch/peer.log" | tail -n 1)
}
acks() { # acks WHAT SEQUENCE-DIFFERENCE GENERATION-DIFFERENCE REGEX
    noticed
    tell peer send "$(ack $((sequence + $2)) $((generation + $3)))"
    dropped "$1" "$4"
}
acks "an ack of another sequence" 1 0 'acknowledged notice 2, which does not wait'
acks "one of an older generation" 0 -1 'a generation that notice 1 does not name'
acks "one of a generation that is not there" 0 1 'a generation that notice 1 does not name'
acks "one of the highest generation" 0 0x7fffffffffffff00 'a generation that notice 1 does not name'
noticed
for _ in 1 2 3; do
    tell peer send "$(ack "$sequence" "$generation")"
    sleep 0.3
done
dropped "an ack three times" 'acknowledged notice 1, which does not wait'
noticed
dropped "no ack at all, for three intervals" 'it has not answered for 3 s'

# What is reserved or unknown is ignored.
peer now request="4d525331$(le 2 0)$(le 2 65535)ffffffff$(printf 'f%.0s' {1..88})"
asked "unknown flags, reserved bytes and later versions do no harm" peer '^read ok untouched' read "$key" 0 16
end_program peer
mark
noticed
tell peer send "$(ack "$sequence" "$generation" 0xffffffff)00112233"
sleep 1.5
asked "nor do the reserved field of an ack, and bytes behind it" peer '^(send ok|read ok untouched)' read "$key" 0 16
end_program peer
mark

# Accesses that it has no right to.
accesses() { # accesses WHAT COMMAND…
    peer now
    asked "$1 fails" peer 'remote (access|invalid request|operation) error' "${@:2}"
    dropped "and ends that peer" 'peer .*(disconnected|dropped)'
}
no_key=$((key ^ 0x55))
accesses "a read with a key that is none" read "$no_key" 0 16
accesses "a read that begins before the end and goes beyond it" read "$key" $((4 * 1024 * 1024 - 8)) 16
accesses "a read behind the end" read "$key" $((4 * 1024 * 1024)) 16
accesses "a read at the highest address" read "$key" 0xfffffffffffffff8 16
accesses "a write beyond the end" write "$key" $((4 * 1024 * 1024 - 2)) harm
peer now
catalog=$(awk '/^catalog/ {print $2}' "$scratch/peer.log") size=$(awk '/^catalog/ {print $3}' "$scratch/peer.log")
end_program peer
mark
accesses "a write to the catalog" write "$catalog" 0 harm
accesses "an atomic operation on it" fetch-add "$catalog" 8 1
accesses "a read beyond its end" read "$catalog" "$size" 8
peer now request="$(request 1 1 0)"
equal "who does not ask to write is granted read" "welcome 1" "$(grep '^welcome' "$scratch/peer.log")"
asked "its write fails" peer 'remote (access|invalid request|operation) error' write "$key" 0 harm
dropped "and ends it" 'disconnected'
peer now
tell peer write-imm "$key" 0x200000 x
dropped "a write with immediate data" 'used up a receive by something other than a frame'

# addr1 is the second device: no atomics there.
start_program second raw_peer "$addr1" "$addr0" now
says "on the second device writes are granted, atomics are not" second '^welcome 3$'
asked "an atomic operation there fails" second 'remote (access|invalid request|operation) error' fetch-add "$key1" 0 1
end_program second
mark

# RDMA before the welcome, from a peer that never says that it is ready.
peer now half-open
asked "an access before it was admitted fails" peer 'remote (access|invalid request|operation) error' read "$key" 0 16
end_program peer
check "and the half-open connection ends" wait_for 15 logged_since 'gave up|disconnected'
mark
peer now half-open
check "who is never ready is given up" wait_for 15 logged_since 'gave up: it did not complete the connection within 5 s'
end_program peer
mark

# A peer without receives takes no welcome.
start_program deaf raw_peer "$addr0" "$addr1" now receives=0
check "who posts no receives is dropped" wait_for 40 logged_since 'it does not take a frame: RNR|has not answered for 3 s'
end_program deaf

asked "the peer that keeps the rules was served all the time" other '^read ok untouched' read 0 0 9
equal "over one connection" "" "$(grep -E "$other (dropped|disconnected)" "$daemon_log" || true)"
asked "no byte has changed" one '^got untouched$' get 0
