# The daemon ends with peers and providers connected; it comes back; a second one is refused.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 300
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

start_daemon --shmem 0:64M --rdma-listen "$addr0"
start_provider one --shmid 0 --shm-offset 0 --memfd 4M
start_program live lib_peer "$addr0" "$addr1"
start_program never raw_peer "$addr0" "$addr1" never
says "a peer is connected" live '^connect ok'
says "another, that never acknowledges, too" never '^welcome'
asked "the first reads" live '^read ok' read 0 0 16

status=0
mrshared --provider-socket "$provider_socket" --shmem 0:1M --no-rdma 2>"$scratch/second.log" || status=$?
equal "a second daemon on the same socket is refused" 1 "$status"
asked "the first is unharmed" live '^read ok' read 0 0 16

kill "$daemon_pid"
status=0
wait "$daemon_pid" || status=$?
equal "SIGTERM ends it with exit status 0" 0 "$status"
check "its socket is gone" test ! -e "$provider_socket"
says "the peer that never acknowledged is disconnected" never '^disconnected'
asked "the library says so" live '^read (ECONNRESET|ECONNREFUSED|EHOSTUNREACH|ETIMEDOUT|ENXIO)' read 0 0 16
says "the provider is told" one 'daemon has gone'

start_daemon --shmem 0:64M --rdma-listen "$addr0"
start_provider two --shmid 0 --shm-offset 0 --memfd 4M
equal "a new daemon publishes again" 1 "$(views "$addr0")"
kill -9 "$daemon_pid"
wait "$daemon_pid" 2>/dev/null || true
start_daemon --shmem 0:64M --rdma-listen "$addr0"
equal "and so does one after kill -9" 0 "$(views "$addr0")"
