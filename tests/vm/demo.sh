# The main job in plain words: memory of one process, read and written by another over real verbs.
# SPDX-License-Identifier: BSD-2-Clause
# In the VM, or on a machine of its own (scripts/demo-on-host), which says where.
# shellcheck source=tests/vm/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

: "${device0=rxe0}"
peer=(${addr1:+--source "$addr1"})

step() { printf '\n%s\n' "$*"; }
show() { sed 's/^/    /' "$@"; }

cat >"$scratch/provider.py" <<'END'
import mmap, os, time
memory = mmap.mmap(int(os.environ["MRSHARE_FD"]), 0)
text = b"Hello from the memory of process %d" % os.getpid()
memory[: len(text)] = text
print(text.decode(), flush=True)
while not memory[4096]:
    time.sleep(0.05)
print(memory[4096:].split(b"\0")[0].decode(), flush=True)
while not os.path.exists("leave"):
    time.sleep(0.05)
END

has_lines() { (($(wc -l <"$2") >= $1)); }
views() { mrshare list "${peer[@]}" "$addr0" >"$scratch/views" && grep -q " $device0\$" "$scratch/views"; }
registration() { rdma resource show mr | grep "mrlen $((16 << 20)) " >"$scratch/registration"; }
no_registration() { ! registration; }
no_views() { mrshare list "${peer[@]}" "$addr0" >"$scratch/views" && ! grep -q " $device0\$" "$scratch/views"; }

step "1. A daemon owns the RDMA device $device0 ($addr0) and offers a shared memory region of 64 MiB."
start_daemon --shmem 0:64M --rdma-listen "$addr0"
pass "mrshared runs as process $daemon_pid"
check "it publishes no views yet" no_views

step "2. A provider maps 16 MiB of its own memory, a memfd, into region 0 and writes a line into it."
mrshare map --socket "$provider_socket" --shmid 0 --shm-offset 0 --memfd 16M \
    -- python3 "$scratch/provider.py" >"$scratch/provider" &
provider=$!
clean_up stop "$provider"
check "the provider has written its line" wait_for 10 has_lines 2 "$scratch/provider"
show "$scratch/provider"
text=$(sed -n 2p "$scratch/provider")
check "the daemon has registered it with the device; the kernel's list of memory regions says:" \
    registration
show "$scratch/registration"
check "the views that peers need to reach it are published:" views
show "$scratch/views"

step "3. A peer reads the line: one-sided, no copy, the provider takes no part."
read_text=$(mrshare read "${peer[@]}" "$addr0" 0:0 ${#text})
equal "the peer read ${#text} bytes: \"$read_text\"" "$text" "$read_text"
began=$(date +%s%N)
mrshare read "${peer[@]}" "$addr0" 0:0 16M >"$scratch/copy"
took=$((($(date +%s%N) - began) / 1000000))
equal "it read all 16 MiB in $took ms" $((16 << 20)) "$(stat -c %s "$scratch/copy")"

step "4. The peer writes a line 4096 bytes further on."
answer="Hello from a peer, written at $(date +%T)"
check "${#answer} bytes were written" mrshare write "${peer[@]}" "$addr0" 0:4096 <<<"$answer"
check "the provider noticed a change in its memory" wait_for 10 has_lines 3 "$scratch/provider"
seen=$(sed -n 3p "$scratch/provider")
equal "the provider sees: \"$seen\"" "$answer" "$seen"

step "5. The provider ends, and with it its memory."
touch "$scratch/leave"
status=0
wait "$provider" || status=$?
equal "the provider left with exit status $status" 0 "$status"
check "the views are gone" wait_for 5 no_views
check "the memory is no longer registered" no_registration
refused "a peer that asks for it is refused, and told why:" mrshare read "${peer[@]}" "$addr0" 0:0 16 2>"$scratch/refusal"
show "$scratch/refusal"

echo
