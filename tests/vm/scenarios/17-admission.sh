# Who may connect: networks, rights, the number of peers.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 300
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

start_daemon --shmem 0:64M --rdma-listen "$addr0" --allow "$addr1,ro" --allow 10.98.0.0/24 --max-peers 2
start_provider one --shmid 0 --shm-offset 0 --memfd 4M
asked "the provider writes" one '^put' put 0 public

start_program reader lib_peer "$addr0" "$addr1"
says "a peer is connected" reader '^connect ok'
asked "a read-only network reads" reader '^read ok public$' read 0 0 16
asked "but is not granted writes" reader '^write EACCES' write 0 0 mine
key=$(rkey "$addr0" 0)
start_program raw raw_peer "$addr0" "$addr1" now
says "nor is a peer on bare verbs" raw '^welcome 1$'
asked "whose write the queue pair refuses" raw '^write remote (access|invalid request) error' write "$key" 0 mine
says "which ends it" raw '^disconnected'
asked "nothing was written" one '^got public$' get 0

start_program second lib_peer "$addr0" "$addr1"
says "a second peer is connected" second '^connect ok'
refused "a third is rejected" mrshare list --source "$addr1" "$addr0" 2>"$scratch/full.log"
matches "with the reason" 'full|--max-peers' "$(cat "$scratch/full.log")"
end_program second
check "when one has left, the next is admitted" wait_for 5 mrshare list --source "$addr1" "$addr0"
