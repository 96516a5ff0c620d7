# What libmrshare does when memory goes under its reads, when it is dropped, when wire or daemon do not answer.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 300
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

start_daemon --shmem 0:16M --rdma-listen "$addr0" --revoke-timeout 1
start_provider stays --shmid 0 --shm-offset 8M --memfd 4M
start_provider goes --shmid 0 --shm-offset 0 --memfd 4M

# Memory goes and comes under load: that is refused, nothing else is disturbed.
start_program load lib_ops "$addr0" "$addr1" load
says "a peer reads from both mappings without a pause" load '^loading$'
for _ in 1 2 3; do
    end_program goes
    start_provider goes --shmid 0 --shm-offset 0 --memfd 4M
done
tell load enough
says "and goes on when one of them goes and comes" load '^ok$'
matches "nobody was dropped for it" '^$' "$(grep -i 'dropped' "$daemon_log" || true)"
matches "some reads found it gone" 'not there [1-9]|removed [1-9]' "$(cat "$scratch/load.log")"

# One that does not acknowledge is dropped, and connects anew when it goes on.
start_program sleeps lib_ops "$addr0" "$addr1" load
says "a peer reads again" sleeps '^loading$'
kill -STOP "${program_pid[sleeps]}"
end_program goes
is_dropped() { grep -q 'dropped' "$daemon_log"; }
check "it is stopped and dropped" wait_for 20 is_dropped
connects() { grep -c 'peer .* connected on' "$daemon_log"; }
more_connects() { (($(connects) > $1)); }
before=$(connects)
kill -CONT "${program_pid[sleeps]}"
check "woken, it connects anew" wait_for 15 more_connects "$before"
sleep 1
tell sleeps enough
says "and reads what there is" sleeps '^ok$'

# A wire that is cut, and mended.
start_program wire lib_ops "$addr0" "$addr1" cut
says "a peer is connected" wire '^connected$'
tc qdisc add dev vb root netem loss 100%
clean_up tc qdisc del dev vb root
tell wire on
says "with the wire cut its calls end by their time limit" wire '^cut$'
tc qdisc del dev vb root
clean_ups=("${clean_ups[@]/tc qdisc del dev vb root /true}")
tell wire on
says "and when it is back they connect anew" wire '^ok$'

# A daemon that does not answer.
kill -STOP "$daemon_pid"
clean_up kill -CONT "$daemon_pid"
check "a connect ends by its time limit" timeout 20 lib_ops "$addr0" "$addr1" connect thread
check "also without the library's thread" timeout 20 lib_ops "$addr0" "$addr1" connect loop
kill -CONT "$daemon_pid"
