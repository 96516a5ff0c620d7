# Case 29: 64 peers at once, one more than may be, 500 connects and disconnects: served, told, flat.
# SPDX-License-Identifier: BSD-2-Clause
# By the default limits, and 10,000 times: long-crowd.
# limit: 600
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

start_daemon --shmem 0:64M --rdma-listen "$addr0" --rdma-listen "$addr1" --max-peers 65
start_provider one --shmid 0 --shm-offset 0 --memfd 4M
asked "the provider writes" one '^put' put 0 hello

start_program crowd crowd hold "$addr0" "$addr1" 66
wait_for 600 said crowd '^held' || true
matches "of 66 peers 65 are served, and the last is told why not" '^held 65 .*full: mrshared serves 65 peers at most \(--max-peers\)' \
    "$(grep '^held' "$scratch/crowd.log")"
tell crowd close 1
check "when one has left the next may come" wait_for 10 mrshare list --source "$addr1" "$addr0"
asked "each of 64 reads" crowd '^read 64 ' read 0 0 4096

now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }
start=$(now_ms)
check "a mapping is made and removed, which all acknowledge" \
    mrshare map --socket "$provider_socket" --shmid 0 --shm-offset 8M --memfd 1M -- true
echo "# within $(($(now_ms) - start)) ms"
equal "nobody was dropped for it" 0 "$(grep -c 'dropped' "$daemon_log" || true)"
end_program crowd
is_left() { [[ $(grep -c 'peer .* connected on' "$daemon_log") == $(grep -c 'peer .* disconnected' "$daemon_log") ]]; }
check "all leave" wait_for 20 is_left

# Half-open ones, which count, and have 5 s.
start_program knocks crowd knock "$addr0" "$addr1" 100
wait_for 600 said knocks '^knocked' || true
matches "of 100 half-open peers 65 are answered at a time" '^knocked 100 (6[5-9]|[7-9][0-9]) [0-9]+ full' "$(grep '^knocked' "$scratch/knocks.log")"
check "after 5 s anybody is served" wait_for 15 mrshare list --source "$addr1" "$addr0"
end_program knocks

facts() { echo "$(mr_count "$daemon_pid") $(fd_count "$daemon_pid") $(ls "/proc/$daemon_pid/task" | wc -l) $(awk '/^VmPin/ {print $2}' "/proc/$daemon_pid/status")"; }
rss() { awk '/^VmRSS/ {print $2}' "/proc/$daemon_pid/status"; }
timeout 400 crowd churn "$addr0" "$addr1" 100 >"$scratch/warm.log"
sleep 1
before=$(facts) rss_before=$(rss)
timeout 1200 crowd churn "$addr0" "$addr1" 400 >"$scratch/churn.log" || true
matches "400 peers come, read the catalog and go" '^churned 400 0' "$(tail -n 1 "$scratch/churn.log")"
sleep 1
equal "MRs, fds, threads and locked memory are what they were" "$before" "$(facts)"
check "memory has grown by less than 512 KiB" test "$(rss)" -lt $((rss_before + 512))
