# 1,000 maps and unmaps with a peer connected: nothing grows.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 600
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

start_daemon --shmem 0:64M --rdma-listen "$addr0" --rdma-listen "$addr1"
start_program peer lib_peer "$addr0" "$addr1"
says "a peer is connected" peer '^connect ok'

pairs() { python3 /mrshare/tests/vm/pairs.py "$provider_socket" "$1"; }
facts() { echo "$(mr_count "$daemon_pid") $(fd_count "$daemon_pid") $(wc -l <"/proc/$daemon_pid/maps") $(awk '/^VmPin/ {print $2}' "/proc/$daemon_pid/status")"; }
rss() { awk '/^VmRSS/ {print $2}' "/proc/$daemon_pid/status"; }
check "100 pairs to warm up" pairs 100
sleep 1
before=$(facts) rss_before=$(rss)
check "1,000 pairs" pairs 1000
sleep 1
equal "MRs, fds, maps and locked memory are what they were" "$before" "$(facts)"
check "memory has grown by less than 1 MiB" test "$(rss)" -lt $((rss_before + 1024))
asked "the peer is still served" peer '^list ok 0$' list
