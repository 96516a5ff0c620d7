# Read-only mappings, and memory that the kernel does not pin writable.
# SPDX-License-Identifier: BSD-2-Clause
# Cases 24 and 25.
# limit: 300
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

start_daemon --shmem 0:64M --rdma-listen "$addr0"

truncate -s 1M /dev/shm/file
clean_up rm /dev/shm/file
echo unharmed | dd of=/dev/shm/file conv=notrunc status=none
start_program reader mrshare map --socket "$provider_socket" --shmid 0 --shm-offset 0 --read-only /dev/shm/file
says "a file that is open read-only is mapped" reader '^mapped'
matches "its view says read-only" ' r-- ' "$(mrshare list "$addr0")"

start_program peer lib_peer "$addr0" "$addr1"
says "a peer is connected" peer '^connect ok'
asked "the library refuses the write" peer '^write EACCES .*read-only' write 0 0 harm
asked "and goes on reading" peer '^read ok unharmed$' read 0 0 16
refused "the command refuses the write" mrshare write "$addr0" 0:0 <<<harm

start_program raw raw_peer "$addr0" "$addr1" now
says "a peer on bare verbs is admitted" raw '^welcome 7$|^welcome 3$'
asked "its write is refused by the device" raw '^write remote access error' write "$(rkey "$addr0" 0)" 0 harm
says "and costs it its connection" raw '^disconnected'
equal "no byte has changed" unharmed "$(head -n 1 /dev/shm/file)"
asked "all others go on" peer '^read ok unharmed$' read 0 0 16

mkdir /var/tmp/disk
clean_up rm -r /var/tmp/disk
echo on disk >/var/tmp/disk/file
truncate -s 1M /var/tmp/disk/file
map_disk() { mrshare map --socket "$provider_socket" --shmid 0 --shm-offset 16M "$@" /var/tmp/disk/file -- true; }
refused "a writable map of ext4 is refused" map_disk 2>"$scratch/refusal.log"
matches "the provider is told the ways out" 'memfd.*tmpfs.*read-only' "$(cat "$scratch/refusal.log")"
matches "and so is the log" 'writable pages of ext4.*memfd.*read-only' "$(tail -n 3 "$daemon_log")"
equal "nothing is half published" 1 "$(views "$addr0")"
start_program disk mrshare map --socket "$provider_socket" --shmid 0 --shm-offset 16M --read-only /var/tmp/disk/file
says "a read-only map of ext4 works" disk '^mapped'
asked "and is read" peer '^read ok on disk$' read 0 0x1000000 16
