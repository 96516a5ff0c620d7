# A provider or peer that is killed: what it had of the daemon goes, and everybody else stays.
# SPDX-License-Identifier: BSD-2-Clause
# Case 18.
# limit: 300
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

start_daemon --shmem 0:256M --rdma-listen "$addr0" --rdma-listen "$addr1"
start_provider stays --shmid 0 --shm-offset 128M --memfd 4M
asked "the one that stays writes a line" stays '^put' put 0 still here
start_program peer lib_peer "$addr0" "$addr1"
says "a peer is connected" peer '^connect ok'
equal "the other device is reached too" 1 "$(views "$addr1")" # also makes room for its peers
mrs=$(mr_count "$daemon_pid") fds=$(fd_count "$daemon_pid")
asked "a peer sees one view" peer '^list ok 1$' list

start_provider victim --shmid 0 --shm-offset 0 --memfd 64M
asked "and two when another provider maps" peer '^list ok 2$' list
asked "whose memory it reads" peer '^read ok' read 0 0 16
kill_provider victim
check "both devices show one view again" wait_for 5 has_views 1 "$addr0"
equal "the other too" 1 "$(views "$addr1")"
asked "the peer's next list shows it" peer '^list ok 1$' list
asked "its next read names the hole" peer '^read ENXIO' read 0 0 16
asked "what stays is read" peer '^read ok still here$' read 0 0x8000000 16
same() { [[ $(mr_count "$daemon_pid") == "$mrs" && $(fd_count "$daemon_pid") == "$fds" ]]; }
check "MRs and fds are what they were" wait_for 5 same
start_provider again --shmid 0 --shm-offset 0 --memfd 64M
pass "the range is free for the next one"

# Its own objects are the kernel's, which tells the daemon.
start_program killed lib_peer "$addr0" "$addr1"
says "one more peer is connected" killed '^connect ok'
fds=$(fd_count "$daemon_pid") mrs=$(mr_count "$daemon_pid") qps=$(qp_count)
kill -9 "${program_pid[killed]}"
is_gone() { (($(qp_count) == qps - 2)); } # its own and the daemon's
check "a peer that is killed is gone from the device" wait_for 5 is_gone
check "and MRs and fds are what they were" wait_for 5 same
asked "the other peer is served" peer '^read ok still here$' read 0 0x8000000 16
