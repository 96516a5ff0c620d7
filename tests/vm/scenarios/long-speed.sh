# How fast the library is, beside perftest: numbers for people, no limits.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 300
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

# floor NAME COMMAND…: what perftest measures over the same wire
floor() {
    local name=$1
    shift
    "$@" -d rxe0 >/dev/null 2>&1 &
    wait_for 5 listens 18515
    "$@" -d rxe1 "$addr0" 2>&1 | awk -v name="$name" '$1 ~ /^[0-9]+$/ { print "# perftest " name ": " $0 }'
    wait
}
listens() { ss -Htln "sport = :$1" | grep -q .; }

floor "64 KiB read, MiB/s" ib_read_bw -F -s 65536 -n 300
floor "64 KiB write, MiB/s" ib_write_bw -F -s 65536 -n 300
floor "4 KiB read, us" ib_read_lat -F -s 4096 -n 1000
floor "4 KiB read, MiB/s" ib_read_bw -F -s 4096 -n 2000
start_daemon --shmem 0:64M --rdma-listen "$addr0"
start_provider memory --shmid 0 --shm-offset 0 --memfd 64M
lib_bench "$addr0" "$addr1" >bench.log && pass "the bench runs" || fail "the bench runs" success failure
