# The whole chain: what a peer writes by RDMA a Linux guest in QEMU reads from its disk, and the other way round.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 480
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

# Two chains: one with the addresses of QEMU's process in the queue's ring, one with those of the guest
# (--gpa-addresses).
chains="plain gpa"
declare -A address=([plain]=$addr0 [gpa]=$addr1) flags=([plain]='' [gpa]=--gpa-addresses)

# The file system takes the first half of the region; lines are exchanged in the second.
half=$((64 << 20))
mkdir "$scratch/files"
echo "made by mke2fs, carried by RDMA" >"$scratch/files/first"
mke2fs -q -t ext4 -b 4096 -d "$scratch/files" "$scratch/disk" 64M
check "kernel and initramfs are made" python3 /mrshare/tests/qemu/initramfs.py / "/boot/vmlinuz-$(uname -r)" "$scratch"

# before_deadline COMMAND…: waits until it succeeds, but not until the scenario's limit, which ends it without a word.
# Not with wait_for: guests need the processors more than it does.
deadline=420
before_deadline() {
    until "$@"; do
        ((SECONDS < deadline)) || return
        sleep 0.5
    done
}

# With the SVM of the VM's emulated processor a guest boots in half a minute; without it takes many. One guest at a
# time and on one processor: with two at once the VM's kernel died.
modprobe kvm_amd 2>/dev/null || modprobe kvm_intel 2>/dev/null || echo "# no KVM"

# start_guest NAME SOCKET
start_guest() {
    start_program "$1" taskset -c 1 qemu-system-x86_64 -nodefaults -no-user-config -display none -nic none \
        -object memory-backend-memfd,id=ram,size=256M,share=on \
        -machine q35,memory-backend=ram -accel kvm -accel tcg -cpu max -m 256M \
        -kernel "$scratch/vmlinux" -initrd "$scratch/initrd" \
        -append "console=ttyS0 mitigations=off nokaslr rodata=off cryptomgr.notests no_timer_check" \
        -serial "file:$scratch/$1-console.log" -chardev stdio,id=agent,signal=off -serial chardev:agent \
        -chardev "socket,id=vhost,path=$2" \
        -device vhost-user-test-device-pci,chardev=vhost,virtio-id=27,num_vqs=1,vq_size=64,config_size=16
}

# told WHAT NAME WANTED COMMAND: a counted check that the guest's command succeeds and says what is wanted
told() {
    local what=$1 name=$2 wanted=$3 lines got
    shift 3
    lines=$(wc -l <"$scratch/$name.log")
    tell "$name" "$@"
    before_deadline has_ended "$name" "$lines" || true
    got=$(tail -n "+$((lines + 1))" "$scratch/$name.log" | tr -d '\0' | sed '/^$/d')
    equal "$what" "${wanted:+$wanted$'\n'}@end 0" "$got"
}

# boots WHAT NAME: a counted check that the guest has booted; where it has not, the end of its console is shown
boots() {
    before_deadline booted_or_ended "$2" || true
    if said "$2" '^@ready'; then
        pass "$1"
        echo "# after $SECONDS s"
    else
        fail "$1" "a guest that is ready within $deadline s" \
            "at $SECONDS s, as its last words: $(tail -qn 5 "$scratch/$2-console.log" "$scratch/$2.log" | tr -d '\0\r' | tr '\n' ';')"
        exit 1
    fi
}
booted_or_ended() {
    said "$1" '^@ready' || ! kill -0 "${program_pid[$1]}" 2>/dev/null || grep -q 'Kernel panic' "$scratch/$1-console.log"
}

has_ended() { tail -n "+$(($2 + 1))" "$scratch/$1.log" | grep -qa '^@end '; }

# text_by_peer CHAIN OFFSET: the line that a peer reads there
text_by_peer() { mrshare read "${address[$1]}" "0:$2" 64 | head -n 1; }

# read_disk CHAIN: a peer's copy of the file system
read_disk() { mrshare read "${address[$1]}" 0:0 "$half" >"$scratch/$1.disk"; }

for chain in $chains; do
    # shellcheck disable=SC2034 # lib.sh writes to daemon_log
    provider_socket=$scratch/$chain.provider daemon_log=$scratch/$chain-daemon.log
    # shellcheck disable=SC2086 # no flag is no word
    start_daemon --shmem 0:128M --rdma-listen "${address[$chain]}" --socket-path "$scratch/$chain.vhost" ${flags[$chain]}
    start_provider "$chain-provider" --shmid 0 --shm-offset 0 --memfd 128M
    check "$chain: a peer writes a whole file system" mrshare write "${address[$chain]}" 0:0 "$scratch/disk"
    check "$chain: and a line, before the guest boots" mrshare write "${address[$chain]}" "0:$half" <<<"a peer wrote this"
    guest=$chain-guest
    start_guest "$guest" "$scratch/$chain.vhost"
    boots "$chain: a Linux guest boots in QEMU" "$guest"
    told "$chain: the guest reads what a peer wrote before it booted" "$guest" "a peer wrote this" \
        "dd if=/dev/pmem0 bs=4096 skip=$((half / 4096)) count=1 2>/dev/null | head -n 1"
    told "$chain: it writes a line and syncs" "$guest" "" \
        "echo the guest wrote this | dd of=/dev/pmem0 bs=4096 seek=$((half / 4096 + 1)) conv=notrunc,fsync 2>/dev/null"
    equal "$chain: a peer reads exactly that" "the guest wrote this" "$(text_by_peer "$chain" $((half + 4096)))"
    check "$chain: a peer writes while the guest runs" \
        mrshare write "${address[$chain]}" "0:$((half + 8192))" <<<"and this a moment ago"
    told "$chain: the guest reads that as well" "$guest" "and this a moment ago" \
        "dd if=/dev/pmem0 bs=4096 skip=$((half / 4096 + 2)) count=1 2>/dev/null | head -n 1"

    told "$chain: the guest mounts the file system with DAX" "$guest" "yes" \
        "load ext4 && mount -t ext4 -o dax /dev/pmem0 /mnt && grep ' /mnt ' /proc/mounts | grep -q dax=always && echo yes"
    told "$chain: it reads a file there" "$guest" "made by mke2fs, carried by RDMA" "cat /mnt/first"
    told "$chain: it writes one, and unmounts" "$guest" "" "echo made by the guest >/mnt/second && sync && umount /mnt"

    check "$chain: a peer reads the file system" read_disk "$chain"
    check "$chain: which is clean" e2fsck -fn "$scratch/$chain.disk"
    equal "$chain: and has the guest's file" "made by the guest" "$(debugfs -R "cat second" "$scratch/$chain.disk" 2>/dev/null)"
    host=$(find "/proc/${program_pid[$chain-provider]}/fd" -lname '*memfd:*' | head -n 1)
    check "$chain: the provider's own bytes are the same" cmp -n "$half" "$host" "$scratch/$chain.disk"
    check "$chain: and clean" e2fsck -fn "$host"
    end_program "$guest"
done
