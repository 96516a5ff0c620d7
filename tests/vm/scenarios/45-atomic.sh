# `mrshare atomic`: fetch-and-add and compare-and-swap on a word, and what is in the way of them.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 300
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

start_daemon --shmem 0:64M --rdma-listen "$addr0" --rdma-listen "$addr1" --allow "$addr1" --allow "$addr0,ro"
start_provider one --shmid 0 --shm-offset 0 --memfd 1M
truncate -s 1M /dev/shm/file
clean_up rm /dev/shm/file
start_program reader mrshare map --socket "$provider_socket" --shmid 0 --shm-offset 16M --read-only /dev/shm/file
says "a read-only mapping is there" reader '^mapped'

atomic() { mrshare atomic --source "$addr1" "$addr0" "$@"; }
word() { mrshare read --source "$addr1" "$addr0" 0:0x1008 8 | od -An -td8 | tr -d ' '; }
equal "adding says what was there" 0 "$(atomic 0:0x1008 fetch-and-add 0x10)"
equal "and again" 16 "$(atomic 0:0x1008 fetch-and-add -- -17)"
equal "the word is a number of the host's" -1 "$(word)"
equal "of 64 bits" 18446744073709551615 "$(atomic 0:0x1008 fetch-and-add 1)"
swap() { # its output and exit status
    local status=0
    atomic 0:0x1008 compare-and-swap "$@" || status=$?
    echo "status $status"
}
equal "swapping says what was there" $'0\nstatus 0' "$(swap 0 7)"
equal "and what was there instead, changing nothing" $'7\nstatus 3' "$(swap 0 8)"
equal "so it is still there" 7 "$(word)"

add_many() { for _ in 1 2 3; do atomic 0:0x1010 fetch-and-add 1; done; }
add_many >"$scratch/first" &
add_many >"$scratch/second"
wait $!
equal "no two that add at once see the same" "$(seq 0 5)" "$(sort -n "$scratch/first" "$scratch/second")"

fails() { # fails WHAT REGEX COMMAND…: with 1, and one line that matches
    local what=$1 regex=$2 status=0
    shift 2
    "$@" >"$scratch/out" 2>"$scratch/error" || status=$?
    matches "$what" "^1 mrshare: $regex" "$status $(cat "$scratch/out" "$scratch/error")"
}
there='10\.98\.0\.1: '
fails "a word elsewhere than at a multiple of 8 is refused" 'region 0: .* multiple of 8, not 0x1004$' atomic 0:0x1004 fetch-and-add 1
fails "one that is not mapped is named" "${there}region 0: nothing is mapped from 0x800000 " atomic 0:8M fetch-and-add 1
fails "one that is mapped read-only is refused" "${there}region 0: the mapping at 0x1000000 is not for atomics$" atomic 0:16M fetch-and-add 1
fails "a peer that may only read may not use atomics" "${there}the daemon does not let this peer use atomics" \
    mrshare atomic --source "$addr0" "$addr0" 0:0x1008 fetch-and-add 1
fails "nor may one on another device of the daemon" '10\.98\.0\.2: the daemon does not let this peer use atomics: its first device' \
    mrshare atomic --source "$addr1" "$addr1" 0:0x1008 fetch-and-add 1
equal "none of them changed a byte" 7 "$(word)"
end_program one
fails "what was removed is not there any more" "${there}region 0: nothing is mapped from 0x1008 " atomic 0:0x1008 fetch-and-add 1
stop "$daemon_pid"
fails "nor is a daemon that has gone" "$there" mrshare atomic --timeout 2 --source "$addr1" "$addr0" 0:0x1008 fetch-and-add 1
