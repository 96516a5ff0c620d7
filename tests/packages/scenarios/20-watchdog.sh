# A daemon that hangs is ended by the watchdog, and comes back.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 300
# shellcheck source=tests/packages/lib.sh
. /mrshare/tests/packages/lib.sh

install_packages old
flags "--shmem 0:64M --rdma-listen $addr0"
equal "a hung daemon has 5 s to dump core" 5s "$(property mrshared.service TimeoutAbortUSec)"
drop_in mrshared.service WatchdogSec=4
check "it starts" systemctl start mrshared.service
daemon_pid=$(property mrshared.service MainPID)
sleep 6
equal "a loop that turns feeds the watchdog" "$daemon_pid" "$(property mrshared.service MainPID)"

kill -STOP "$daemon_pid"
restarted() { has_property mrshared.service NRestarts 1 && has_property mrshared.service ActiveState active; }
check "one that does not is ended, and started anew" wait_for 40 restarted
logged "the journal says why" mrshared.service 'Watchdog timeout'
start_provider memfd --shmid 0 --shm-offset 0 --memfd 4M
equal "and it serves" 1 "$(views "$addr0")"
end_program memfd
