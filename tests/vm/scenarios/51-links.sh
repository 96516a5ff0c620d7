# A link that goes down and up, an address that is taken away and given back, addresses of both families.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 250
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

logged() { grep -qE -- "$1" "$daemon_log"; }
is_served() { [[ $(timeout 10 mrshare read "$@" 0:0 5 2>/dev/null) == hello ]]; }
v6_0=fd00:98::1 v6_1=fd00:98::2
ip addr add "$v6_0/64" dev va nodad
clean_up ip addr del "$v6_0/64" dev va
ip addr add "$v6_1/64" dev vb nodad
clean_up ip addr del "$v6_1/64" dev vb

start_daemon --shmem 0:64M --rdma-listen 0.0.0.0 --rdma-listen "[::]:7472" --rdma-listen "[$v6_0]:7473" --keepalive 60
start_provider one --shmid 0 --shm-offset 0 --memfd 4M
asked "the provider writes" one '^put' put 0 hello
check "IPv4 on rxe0" is_served "$addr0"
check "IPv4 on rxe1" is_served "$addr1"
check "IPv6 by a wildcard on rxe0" is_served "[$v6_0]:7472"
check "IPv6 by a wildcard on rxe1" is_served "[$v6_1]:7472"
check "IPv6 by its address" is_served "[$v6_0]:7473"

# A short loss of the link. (On soft-RoCE nothing may be sent meanwhile: a packet that finds no route breaks its queue
# pair, that of the connection manager too, which the kernel never mends.)
start_program short lib_peer "$addr0" "$addr1"
says "a peer is connected over the wire" short '^connect ok'
asked "and reads" short '^read ok hello' read 0 0 5
ip link set va down
clean_up ip link set va up
check "the port is seen to be down" wait_for 5 logged 'rxe0: port 1 is down'
ip link set va up
ip addr show dev va | grep -q "$v6_0" || ip addr add "$v6_0/64" dev va nodad
check "the port is seen to be up" wait_for 5 logged 'rxe0: port 1 is up'
asked "the peer reads on" short '^read ok hello' read 0 0 5
check "others connect" is_served "$addr0"
check "by IPv6 too" is_served "[$v6_0]:7473"
end_program short

ip addr del "$addr0/24" dev va
sleep 1
refused "without its address rxe0 is not reached" is_served "$addr0" --source "$addr1"
check "rxe1 is" is_served "$addr1"
ip addr add "$addr0/24" dev va
check "with its address it is, again" wait_for 1 is_served "$addr0"

# By its own address alone, not by a wildcard.
stop "$daemon_pid"
end_program one
rm -f "$daemon_log"
start_daemon --shmem 0:64M --rdma-listen "$addr0"
start_provider one --shmid 0 --shm-offset 0 --memfd 4M
asked "the provider writes" one '^put' put 0 hello
check "IPv4 on rxe0" is_served "$addr0"
ip addr del "$addr0/24" dev va
sleep 1
ip addr add "$addr0/24" dev va
check "a listener survives its address" wait_for 1 is_served "$addr0"
ip addr del "$addr0/24" dev va
rdma link delete rxe0
sleep 2
rdma link add rxe0 type rxe netdev va
sleep 2
ip addr add "$addr0/24" dev va
check "and its device and address" wait_for 1 is_served "$addr0"
remake() { rdma link delete rxe0; rdma link delete rxe1; rdma link add rxe0 type rxe netdev va; rdma link add rxe1 type rxe netdev vb; }
clean_up remake
