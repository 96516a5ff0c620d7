# What libmrshare's operations do over a real wire: many at once, atomics, cancel and time limits, fork, event loops.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 300
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

start_daemon --shmem 0:16M --rdma-listen "$addr0"
start_provider memory --shmid 0 --shm-offset 0 --memfd 8M

check "threads have many operations outstanding at once" timeout 60 lib_ops "$addr0" "$addr1" many
check "blocking calls of several threads" timeout 60 lib_ops "$addr0" "$addr1" blocking thread
check "the same without the library's thread" timeout 60 lib_ops "$addr0" "$addr1" blocking loop
check "operations are cancelled and late" timeout 60 lib_ops "$addr0" "$addr1" limits
check "a forked child only fails" timeout 60 lib_ops "$addr0" "$addr1" child

equal "a counter is at 0" "counter 0" "$(lib_ops "$addr0" "$addr1" counter clear | grep ^counter)"
start_program first timeout 60 lib_ops "$addr0" "$addr1" add 500
start_program second timeout 60 lib_ops "$addr0" "$addr1" add 500
says "one peer adds to the counter" first '^ok$'
says "another one does at the same time" second '^ok$'
equal "nothing was lost" "counter 1100" "$(lib_ops "$addr0" "$addr1" counter | grep ^counter)"

start_program loop timeout 60 lib_ops "$addr0" "$addr1" loop
says "an event loop of its own connects, reads, writes" loop '^watching$'
start_provider more --shmid 0 --shm-offset 8M --memfd 4M
says "and has the news, and goes on" loop '^ok$'
