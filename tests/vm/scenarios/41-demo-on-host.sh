# The demo on a machine itself: on its device; on a link that is made and removed; refused where neither can be.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 200
# shellcheck source=tests/vm/lib.sh
. /mrshare/tests/vm/lib.sh
unset addr0 addr1 # the demo finds its own

demo=/mrshare/scripts/demo-on-host
network() { rdma link show; ip -brief address show; }
# into FILE COMMAND…: what it writes is kept and logged; its checks are not ours
into() {
    local file=$scratch/$1 status=0
    shift
    "$@" >"$file" 2>&1 || status=$?
    sed -E 's/^(ok|not ok) - /\1: /' "$file" >"$file.log"
    return "$status"
}
as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups prlimit --memlock=1048576 "$@"; }

before=$(network)
check "it runs on the device that is there" into device $demo
equal "and says which" "using RDMA device rxe0 of this machine, address 10.98.0.1" "$(head -n 1 "$scratch/device")"
check "each of its steps is made" grep -q '^ok - a peer that asks for it is refused' "$scratch/device"
status=0
into limit as_nobody $demo || status=$?
equal "who may lock too little is told" "77 no demo on this machine: 64 MiB of memory must be lockable, the limit is 1024 KiB (ulimit -l)" \
    "$status $(tail -n 1 "$scratch/limit")"

# No device any more.
again() { rdma link add rxe0 type rxe netdev va && rdma link add rxe1 type rxe netdev vb; }
clean_up again
rdma link delete rxe0
rdma link delete rxe1
without=$(network)

check "without one it makes a soft-RoCE link" into link $demo
equal "and says so" "there is no RDMA device: using a soft-RoCE link that is made for this and removed afterwards" "$(head -n 1 "$scratch/link")"
check "on which each step is made" grep -q '^ok - a peer that asks for it is refused' "$scratch/link"
equal "the link is removed" "$without" "$(network)"

env --default-signal=INT $demo >"$scratch/cut" 2>&1 &
pid=$!
check "one that is to be interrupted runs" wait_for 20 grep -q '^2\.' "$scratch/cut"
kill -INT "$pid"
status=0
wait "$pid" || status=$?
equal "it ends of the signal" 130 "$status"
equal "the link is removed then, too" "$without" "$(network)"
equal "and so are its processes" "" "$(pgrep -l mrshare || true)"

status=0
into user as_nobody $demo || status=$?
equal "who is not root is told" "77 no demo on this machine: there is no RDMA device, and only root can make a soft-RoCE link" \
    "$status $(tail -n 1 "$scratch/user")"
