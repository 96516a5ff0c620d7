# The main job: three kinds of memory, two devices, two peers, and everybody sees the same bytes.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 600
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

start_daemon --shmem 0:256M --shmem 7:64M --rdma-listen "$addr0" --rdma-listen "$addr1"
equal "nothing is published at first" "0 0" "$(views "$addr0") $(views "$addr1")"
before=$(mr_count "$daemon_pid")

truncate -s 64M /dev/shm/file /dev/hugepages/file
clean_up rm /dev/shm/file /dev/hugepages/file
start_provider memfd --shmid 0 --shm-offset 0 --memfd 64M
start_provider tmpfs --shmid 0 --shm-offset 128M /dev/shm/file
start_provider huge --shmid 7 --shm-offset 0 /dev/hugepages/file
equal "each device publishes three views" "3 3" "$(views "$addr0") $(views "$addr1")"
equal "each device has an MR a mapping" $((before + 6)) "$(mr_count "$daemon_pid")"

declare -A place=([memfd]=0:0 [tmpfs]=0:128M [huge]=7:0)
seed=1
for name in "${!place[@]}"; do
    asked "$name is filled" "$name" '^filled$' fill "$((seed++))"
    asked "$name has a sum" "$name" '^sum [0-9a-f]{64}$' sum
    sum=$(grep ^sum "$scratch/$name.log" | tail -n 1 | cut -d' ' -f2)
    for ends in "$addr0 $addr1" "$addr1 $addr0"; do
        read -r to from <<<"$ends"
        got=$(mrshare read --source "$from" "$to" "${place[$name]}" 64M | sha256sum | cut -d' ' -f1)
        equal "a peer of $to reads what $name holds" "$sum" "$got"
    done
done

start_program peer0 lib_peer "$addr0" "$addr1"
start_program peer1 lib_peer "$addr1" "$addr0"
says "peer0 is connected" peer0 '^connect ok'
says "peer1 is connected" peer1 '^connect ok'
asked "peer0 writes into memfd" peer0 '^write ok' write 0 4096 hello from peer0
asked "memfd's provider sees it" memfd '^got hello from peer0$' get 4096
asked "peer1 sees it" peer1 '^read ok hello from peer0$' read 0 4096 32
asked "peer1 writes into the huge pages" peer1 '^write ok' write 7 2097152 hello from peer1
asked "their provider sees it" huge '^got hello from peer1$' get 2097152
asked "peer0 sees it" peer0 '^read ok hello from peer1$' read 7 2097152 32
asked "tmpfs's provider writes" tmpfs '^put$' put 8192 hello from the provider
asked "peer0 sees it" peer0 '^read ok hello from the provider$' read 0 0x8002000 32
asked "peer1 sees it" peer1 '^read ok hello from the provider$' read 0 0x8002000 32

head -c 3000000 /dev/urandom >"$scratch/data"
check "a peer writes 3,000,000 bytes at an odd offset" mrshare write "$addr0" 0:12345 "$scratch/data"
check "the other reads them back" cmp "$scratch/data" <(mrshare read "$addr1" 0:12345 3000000)
