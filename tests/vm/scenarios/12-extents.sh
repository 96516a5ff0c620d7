# A mapping cut into extents reads as one piece; what is not mapped is named.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 300
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

start_daemon --shmem 0:64M --rdma-listen "$addr0" --max-mr-size 1M
start_provider one --shmid 0 --shm-offset 0 --memfd 8M
start_provider two --shmid 0 --shm-offset 8M --memfd 1540K
equal "8 MiB and 1540 KiB make 8 + 2 extents of at most 1 MiB" 10 "$(views "$addr0")"
asked "the first is filled" one '^filled$' fill 3
asked "the second is filled" two '^filled$' fill 4

mrshare read "$addr0" 0:0 9732K >"$scratch/all"
equal "both are read as one" 9965568 "$(stat -c %s "$scratch/all")"
asked "the first has a sum" one '^sum' sum
equal "its bytes are right" "sum $(head -c 8M "$scratch/all" | sha256sum | cut -d' ' -f1)" "$(tail -n 1 "$scratch/one.log")"
for at in 1048575 1048000 2097151 8388607 8388608; do
    check "a read across byte $at is right" \
        cmp <(tail -c +$((at + 1)) "$scratch/all" | head -c 5000) <(mrshare read "$addr0" "0:$at" 5000)
done
head -c 2500000 /dev/urandom >"$scratch/data"
check "a write across extents goes through" mrshare write "$addr0" 0:1000000 "$scratch/data"
check "and is read back" cmp "$scratch/data" <(mrshare read "$addr0" 0:1000000 2500000)

refused "a read beyond the end is refused" mrshare read "$addr0" 0:9M 1M >/dev/null 2>"$scratch/hole.log"
matches "and names the hole" '0x981000' "$(cat "$scratch/hole.log")"
refused "a read of a region that is not there is refused" mrshare read "$addr0" 5:0 16 2>"$scratch/none.log"
