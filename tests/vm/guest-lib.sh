# What the test VMs' init and service share: two devices with a wire, scenarios in turn, what they leave behind.
# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# Everything a scenario writes goes to the host through a virtio port, between a line "@begin NAME
# LIMIT" and a line "@end NAME STATUS SECONDS"; the last line is "@done". The console is the kernel's.
#
# Who sources this defines state, which prints all that a scenario might leave behind, a line each, and sweep, which
# tidies up after one that did.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8
export scratch=/tmp/scratch # emptied after each scenario; its *.log are shown

power_off() {
    sync
    echo o >/proc/sysrq-trigger
    sleep 60
}
trap power_off EXIT

# Two devices with a wire between them: rxe0 on va (10.98.0.1) and rxe1 on vb (10.98.0.2).
network_up() {
    rdma link delete rxe0 && rdma link delete rxe1
    ip link delete va
    ip link add va type veth peer name vb
    sysctl -qw net.ipv4.conf.{all,default,va,vb}.accept_local=1 \
               net.ipv4.conf.{all,default,va,vb}.rp_filter=0 net.ipv4.conf.all.arp_ignore=2
    ip addr add 10.98.0.1/24 dev va
    ip addr add 10.98.0.2/24 dev vb
    ip link set lo up
    ip link set va up
    ip link set vb up
    rdma link add rxe0 type rxe netdev va
    rdma link add rxe1 type rxe netdev vb
} 2>/dev/null

# A counted check that nothing is there that was not there at the start. The kernel takes its time
# over queue pairs, so it may become true within some seconds.
unchanged() {
    local what=$1 end=$((SECONDS + 5)) now
    while now=$(state); [[ $now != "$pristine" ]]; do
        if ((SECONDS > end)); then
            echo "not ok - $what: wanted nothing left behind, got the following difference"
            diff <(echo "$pristine") <(echo "$now") | grep '^[<>]' | sed 's/^</# gone:/; s/^>/# left:/'
            return 1
        fi
        sleep 0.1
    done
    echo "ok - $what"
}

run_scenario() {
    local name=$1 limit=$2 script=$3 status start=$SECONDS log
    echo "@begin $name $limit"
    dmesg --clear
    unchanged "$name starts clean" || sweep
    mkdir -p "$scratch"
    (cd "$scratch" && exec timeout -k 5 "$limit" bash "$script") </dev/null
    status=$?
    for log in "$scratch"/*.log; do
        [[ -s $log ]] && sed "s,^,# ${log##*/}: ," "$log"
    done
    rm -rf "$scratch"
    unchanged "$name leaves nothing behind" || sweep
    dmesg --notime --level=emerg,alert,crit,err,warn | sed 's/^/# kernel: /'
    echo "@end $name $status $((SECONDS - start))"
}

devices_up() {
    ldconfig
    modprobe -a rdma_rxe rdma_ucm ib_uverbs virtio_console
    network_up
}

run_plan() {
    local name limit script
    exec 3>/dev/vport*p1
    pristine=$(state)
    while read -r name limit script; do
        run_scenario "$name" "$limit" "$script" >&3 2>&1
    done </mrshare/plan
    echo "@done" >&3
    sleep 120 # the host reads on, and ends the VM when it reads that
}
