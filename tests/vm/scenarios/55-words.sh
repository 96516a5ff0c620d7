# What cannot be registered is said in words that name the way out, and nothing is left of it.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 120
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

refused "--odp is refused on soft-RoCE" \
    timeout 20 mrshared --provider-socket "$provider_socket" --shmem 0:64M --rdma-listen "$addr0" --odp 2>"$scratch/odp.log"
matches "with the flag to leave out" 'rxe0 is soft-RoCE.*without --odp' "$(cat "$scratch/odp.log")"

start_daemon --shmem 0:512M --rdma-listen "$addr0" --max-mr-size 1M
mrs=$(mr_count "$daemon_pid") fds=$(fd_count "$daemon_pid")
map() { mrshare map --socket "$provider_socket" --shmid 0 --shm-offset 0 "$@" -- true; }

# A file with holes on a file system that is full: a fault would be a SIGBUS.
mkdir /tmp/small
clean_up rmdir /tmp/small
mount -t tmpfs -o size=1M small /tmp/small
clean_up umount /tmp/small
truncate -s 4M /tmp/small/sparse
refused "a sparse file on a full tmpfs is refused" map /tmp/small/sparse 2>"$scratch/full.log"
matches "in words" 'file system or the pool of huge pages is full' "$(cat "$scratch/full.log" "$daemon_log")"
refused "for reading as well" map --read-only /tmp/small/sparse 2>>"$scratch/full.log"
rm /tmp/small/sparse
head -c 1M /dev/zero >/tmp/small/dense
check "what fits is mapped" map /tmp/small/dense
rm /tmp/small/dense

# 64 huge pages of 2 MiB there are.
truncate -s 256M /dev/hugepages/large
clean_up rm -f /dev/hugepages/large
refused "more huge pages than there are are refused" map /dev/hugepages/large 2>"$scratch/huge.log"
matches "with the name of the knob" 'vm.nr_hugepages' "$(cat "$scratch/huge.log" "$daemon_log")"
truncate -s 64M /dev/hugepages/large
check "fewer are mapped" map /dev/hugepages/large

wait_for 5 has_views 0 "$addr0"
equal "no MR is left" "$mrs" "$(mr_count "$daemon_pid")"
equal "no file is open" "$fds" "$(fd_count "$daemon_pid")"
