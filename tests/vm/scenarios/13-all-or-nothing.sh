# All or nothing over all devices: what one device refuses is not published on the other.
# SPDX-License-Identifier: BSD-2-Clause
# Case 26.
# limit: 300
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

# As an ordinary user, whose limit of locked memory holds. It is lowered while the daemon runs, so that the kernel is
# the one who refuses, in the middle: after the first device, before the second.
chmod a+rwx "$scratch"
chmod a+rw /dev/infiniband/*
user_daemon() { # user_daemon FLAGS…
    setpriv --reuid 65534 --regid 65534 --clear-groups mrshared --provider-socket "$provider_socket" "$@" >>"$daemon_log" 2>&1 &
    daemon_pid=$!
    clean_up stop "$daemon_pid"
    wait_for 10 daemon_listens "$daemon_pid" "$@"
}
user_daemon --shmem 0:256M --rdma-listen "$addr0" --rdma-listen "$addr1"
equal "the devices are reached" "0 0" "$(views "$addr0") $(views "$addr1")" # also makes room for peers
pinned() { awk '/^VmPin/ {print $2}' "/proc/$daemon_pid/status"; }
base=$(pinned) mrs=$(mr_count "$daemon_pid")

prlimit --pid "$daemon_pid" --memlock=$(((base + 96 * 1024) * 1024))
map() { mrshare map --socket "$provider_socket" --shmid 0 --shm-offset 0 --memfd "$1" -- true; }
refused "64 MiB on two devices, where 96 MiB may be locked, is refused" map 64M 2>"$scratch/refusal.log"
matches "in words" 'memory' "$(cat "$scratch/refusal.log")"
equal "nothing is published on either device" "0 0" "$(views "$addr0") $(views "$addr1")"
equal "no MR is left" "$mrs" "$(mr_count "$daemon_pid")"
equal "no memory stays locked" "$base" "$(pinned)"
check "the next smaller map succeeds" map 32M
stop "$daemon_pid"

# Where the limit is known beforehand, the daemon says so before anything is locked.
rm -f "$daemon_log"
ulimit -Sl 131072
user_daemon --shmem 0:256M --rdma-listen "$addr0" --max-extents 1024
refused "256 MiB are refused by a limit of 128 MiB" map 256M 2>"$scratch/refusal2.log"
matches "the log has the limit and the line for the unit file" 'LimitMEMLOCK' "$(grep refused "$daemon_log")"
check "the next smaller map succeeds" map 64M
