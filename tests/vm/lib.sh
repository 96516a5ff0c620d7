# What scenarios are written with: checks, bounded waits, clean-up, a daemon to test.
# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# A scenario is a bash script that sources this file, calls checks and returns. It runs in the VM with
# $scratch as its folder; files named $scratch/*.log are shown when it ends. Its time limit, if 120 s
# do not do, stands in its head as "# limit: SECONDS".
#
# shellcheck disable=SC2034 # variables for scenarios
set -euo pipefail
: "${scratch:?}"

: "${addr0=10.98.0.1}" # rxe0
: "${addr1=10.98.0.2}" # rxe1

checks=0
pass() { checks=$((checks + 1)); echo "ok - $1"; }
fail() { checks=$((checks + 1)); echo "not ok - $1: wanted $2, got $3"; }

# check WHAT COMMAND…: the command succeeds
check() {
    local what=$1 status=0
    shift
    "$@" || status=$?
    if ((status == 0)); then pass "$what"; else fail "$what" "success of: $*" "exit status $status"; fi
}

# refused WHAT COMMAND…: the command fails, and by its own decision, not by a signal or a time limit
refused() {
    local what=$1 status=0
    shift
    "$@" || status=$?
    if ((status > 0 && status < 124)); then pass "$what"; else fail "$what" "failure of: $*" "exit status $status"; fi
}

# equal WHAT WANTED GOT
equal() { if [[ $2 == "$3" ]]; then pass "$1"; else fail "$1" "$2" "$3"; fi; }

# matches WHAT REGEX TEXT
matches() { if [[ $3 =~ $2 ]]; then pass "$1"; else fail "$1" "a match of $2" "$3"; fi; }

# wait_for SECONDS COMMAND…: until the command succeeds; fails when it has not in that time
wait_for() {
    local end=$(($1 * 10))
    shift
    until "$@"; do
        ((end-- > 0)) || return 1
        sleep 0.1
    done
}

# clean_up COMMAND…: to be run when the scenario ends, the last one first
clean_ups=()
clean_up() { clean_ups+=("$(printf '%q ' "$@")"); }

# The closing line, which says how many checks there were, comes only from a scenario that ran through.
end_scenario() {
    local status=$? i
    trap - EXIT
    set +e
    for ((i = ${#clean_ups[@]} - 1; i >= 0; i--)); do eval "${clean_ups[i]}"; done
    if ((status == 0)); then echo "1..$checks"; fi
    exit "$status"
}
trap 'echo "# line $LINENO of ${BASH_SOURCE[0]##*/}: $BASH_COMMAND: exit status $?"' ERR
trap end_scenario EXIT
trap 'exit 143' TERM

# stop PID: ends a background process of ours and waits for it
stop() { kill "$1" 2>/dev/null || return 0; wait "$1" || true; }

# start_daemon FLAGS…: mrshared with a provider socket and FLAGS, once it listens; sets daemon_pid.
# For a second one set provider_socket and daemon_log first.
provider_socket=$scratch/provider.sock
daemon_log=$scratch/mrshared.log
start_daemon() {
    mrshared --provider-socket "$provider_socket" "$@" >>"$daemon_log" 2>&1 &
    daemon_pid=$!
    clean_up stop "$daemon_pid"
    wait_for 10 daemon_listens "$daemon_pid" "$@" || {
        fail "mrshared starts" "listening sockets within 10 s" "$(tail -n 1 "$daemon_log")"
        exit 1
    }
}
daemon_listens() {
    local pid=$1
    shift
    ss -Hxl src "$provider_socket" | grep -q . || return
    [[ $* != *--rdma-listen* ]] || rdma resource show cm_id | grep -q "state LISTEN .*pid $pid "
}

# mr_count [PID]: registered MRs, of all processes or of one. The kernel names the thread that registered,
# which may have ended since: those without a thread are counted for whoever is asked for.
mr_count() {
    local thread process count=0
    while read -r thread; do
        process=$(awk '/^Tgid:/ {print $2}' "/proc/$thread/status" 2>/dev/null) || true
        [[ ${1:-} && $process && $process != "$1" ]] || count=$((count + 1))
    done < <(rdma resource show mr | sed -n 's/.* pid \([0-9]*\) .*/\1/p')
    echo "$count"
}

# qp_count: queue pairs of all devices and processes
qp_count() { rdma resource show qp | grep -c lqpn; }

# fd_count PID
fd_count() { find "/proc/$1/fd" -mindepth 1 | wc -l; }
