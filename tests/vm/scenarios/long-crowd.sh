# The default limits: 1024 peers and the 1025th, 128 half-open ones and the 129th; 10,000 connects and disconnects.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 3000
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

ulimit -Sn "$(ulimit -Hn)"
start_daemon --shmem 0:64M --rdma-listen "$addr0" --keepalive 60
start_provider one --shmid 0 --shm-offset 0 --memfd 4M

start_program crowd crowd hold "$addr0" "$addr1" 1025
wait_for 900 said crowd '^held' || true
matches "of 1025 peers 1024 are served, and the last is told why not" '^held 1024 .*full: mrshared serves 1024 peers at most' \
    "$(grep '^held' "$scratch/crowd.log")"
tell crowd read 0 0 4096
check "each of them reads" wait_for 60 said crowd '^read 1024 '
check "a mapping is made and removed, which all acknowledge" \
    mrshare map --socket "$provider_socket" --shmid 0 --shm-offset 8M --memfd 1M -- true
equal "nobody was dropped for it" 0 "$(grep -c 'dropped' "$daemon_log" || true)"
tell crowd close 1024
is_left() { [[ $(grep -c 'peer .* connected on' "$daemon_log") == $(grep -c 'peer .* disconnected' "$daemon_log") ]]; }
check "all leave" wait_for 120 is_left
end_program crowd

# Half-open ones: each has 5 s, and not more than 128 are at a time.
start_program knocks crowd knock "$addr0" "$addr1" 1000
wait_for 120 said knocks '^knocked' || true
matches "1,000 half-open peers are answered or rejected" '^knocked 1000 .* too many peers are connecting' \
    "$(grep '^knocked' "$scratch/knocks.log")"
read -r _ _ answered rejected _ < <(grep '^knocked' "$scratch/knocks.log")
equal "each of them" 1000 $((answered + rejected))
check "after 5 s anybody is served" wait_for 15 mrshare list --source "$addr1" "$addr0"
end_program knocks

facts() { echo "$(mr_count "$daemon_pid") $(fd_count "$daemon_pid") $(ls "/proc/$daemon_pid/task" | wc -l) $(awk '/^VmPin/ {print $2}' "/proc/$daemon_pid/status")"; }
rss() { awk '/^VmRSS/ {print $2}' "/proc/$daemon_pid/status"; }
sleep 20
before=$(facts) rss_before=$(rss)
crowd churn "$addr0" "$addr1" 10000 >"$scratch/churn.log" || true
matches "10,000 peers come, read the catalog and go" '^churned 10000 0' "$(tail -n 1 "$scratch/churn.log")"
sleep 1
equal "MRs, fds, threads and locked memory are what they were" "$before" "$(facts)"
check "memory has grown by less than 1 MiB" test "$(rss)" -lt $((rss_before + 1024))
