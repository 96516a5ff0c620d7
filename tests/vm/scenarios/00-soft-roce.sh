# The lab itself: two soft-RoCE devices that reach each other over a wire that can be cut.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 200
# shellcheck source=tests/vm/lib.sh
. /mrshare/tests/vm/lib.sh

for device in rxe0 rxe1; do
    matches "$device is up" "state ACTIVE" "$(rdma link show "$device/1")"
done
matches "memory may be pinned without limit" unlimited "$(ulimit -l)"
equal "there are free huge pages" 64 "$(awk '/HugePages_Free/ {print $2}' /proc/meminfo)"

echo 'a line' >/var/tmp/disk
equal "/var/tmp is on ext4" "ext2/ext3" "$(stat -fc %T /var/tmp/disk)"
rm /var/tmp/disk

listening() { rdma resource show cm_id | grep -q "state LISTEN.*comm $1"; }

ping_pong() { # ping_pong COUNT: rping from rxe0 to rxe1
    timeout 20 rping -s -a "$addr1" -C "$1" >"$scratch/rping-server.log" 2>&1 &
    local server=$! status=0
    wait_for 5 listening rping
    timeout 5 rping -c -I "$addr0" -a "$addr1" -C "$1" || status=$?
    stop "$server"
    return "$status"
}
check "rping reaches rxe1 from rxe0" ping_pong 10

read_bandwidth() {
    timeout 30 ib_read_bw -R -n 50 -s 65536 -F >"$scratch/server.log" 2>&1 &
    local server=$!
    clean_up stop "$server"
    wait_for 5 listening ib_read_bw
    timeout 25 ib_read_bw -R -n 50 -s 65536 -F --bind_source_ip "$addr0" "$addr1" >"$scratch/client.log"
    wait "$server"
}
check "64 KiB READs go through" read_bandwidth

tc qdisc add dev vb root netem loss 100%
clean_up tc qdisc del dev vb root
equal "nothing passes a cut wire in 5 s" 124 "$(ping_pong 1 2>/dev/null >&2; echo $?)"
tc qdisc change dev vb root netem loss 0%
# The first server may be met by the request that was cut off, whose client is gone.
check "a mended wire carries again" wait_for 1 ping_pong 1
