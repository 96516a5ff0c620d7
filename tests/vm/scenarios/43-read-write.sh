# `mrshare list`, `read` and `write`: JSON, files, half of a file, memory that is replaced meanwhile, the progress line.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 400
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

start_daemon --shmem 0:64M --shmem 3:64M --rdma-listen "$addr0" --allow "$addr1" --allow "$addr0,ro"
source=(--source "$addr1")
start_provider one --shmid 0 --shm-offset 0 --memfd 9M
truncate -s 1M /dev/shm/file
clean_up rm /dev/shm/file
start_program reader mrshare map --socket "$provider_socket" --shmid 3 --shm-offset 4K --read-only /dev/shm/file
says "a read-only mapping is there" reader '^mapped'
asked "the provider fills its memory" one '^filled$' fill 7
asked "and has a sum" one '^sum [0-9a-f]{64}$' sum
sum=$(grep ^sum "$scratch/one.log" | cut -d' ' -f2)
sum_of() { sha256sum "$@" | cut -d' ' -f1; }

# What is listed, as JSON that the library's own reader of views takes.
mrshare list --json "${source[@]}" "$addr0" >"$scratch/json"
equal "the list is one line" 1 "$(wc -l <"$scratch/json")"
equal "of JSON, with the views in order" \
    "['read'] [(0, 0, 9437184, 1, ['read', 'write', 'atomic'], 'rxe0'), (3, 4096, 1048576, 2, ['read'], 'rxe0')]" \
    "$(python3 -c '
import json, sys
top = json.load(sys.stdin)
print(top["granted"], [(v["shmid"], v["shm_offset"], v["size"], v["mapping_id"], v["access"], v["device_name"]) for v in top["views"]])
assert top["generation"] > 0 and all(v["rkey"] > 0 and v["addr"] == v["shm_offset"] for v in top["views"])' <"$scratch/json")"

# Files.
cd "$scratch"
check "a read goes into a file" mrshare read -o whole "${source[@]}" "$addr0" 0:0 9M
equal "all of it" "$sum" "$(sum_of whole)"
equal "and leaves nothing else" "whole" "$(echo whole*)"
equal "- is standard output" "$sum" "$(mrshare read --output - "${source[@]}" "$addr0" 0:0 9M | sum_of)"
refused "a part that is not mapped fails" mrshare read -o whole "${source[@]}" "$addr0" 0:8M 2M 2>error
matches "in words" '10.98.0.1: region 0: nothing is mapped from 0x900000 to 0xa00000' "$(cat error)"
equal "a read that fails at once leaves the file alone" "$sum" "$(sum_of whole)"
refused "a write to what is read-only fails" mrshare write "${source[@]}" "$addr0" 3:4K whole 2>error
matches "in words" 'region 3: .*read-only' "$(cat error)"
refused "so does one by a peer that may only read" mrshare write --source "$addr0" "$addr0" 0:0 whole 2>error
matches "in words" 'does not let this peer write' "$(cat error)"
refused "a file that is not there is not written" mrshare write "${source[@]}" "$addr0" 0:0 nothing 2>error
equal "in words" "mrshare: nothing: No such file or directory" "$(cat error)"

# Half of a file, and the rest.
refused "a read ends when there is no more room" \
    env --ignore-signal=XFSZ prlimit --fsize=6000000 mrshare read -o half "${source[@]}" "$addr0" 0:0 9M 2>error
equal "in words" "mrshare: half: File too large" "$(cat error)"
equal "with a part of the file" 6000000 "$(stat -c %s half)"
check "and word of what it is a part of" grep -q '"daemon":"10.98.0.1","daemon_id":"[0-9a-f]\{32\}","shmid":0,"offset":0,"len":9437184,"views":\[{' half.mrshare-part
cp half again; cp half.mrshare-part again.mrshare-part
refused "it is no part of anything else" mrshare read --continue -o half "${source[@]}" "$addr0" 0:0 8M 2>error
matches "in words" 'half: it cannot be continued: .*half.mrshare-part' "$(cat error)"
dd if=/dev/zero of=half bs=1 count=4 conv=notrunc status=none # shows what is read again: not these
check "it is continued" mrshare read --continue -o half "${source[@]}" "$addr0" 0:0 9M
equal "what was there was kept" "$(head -c 4 /dev/zero | sum_of)" "$(head -c 4 half | sum_of)"
equal "and the rest is right" "$(tail -c +5 whole | sum_of)" "$(tail -c +5 half | sum_of)"
equal "the file beside it is gone" "half" "$(echo half*)"
refused "what is complete is not continued" mrshare read --continue -o half "${source[@]}" "$addr0" 0:0 9M 2>error
matches "in words" 'half: it cannot be continued: .* no half.mrshare-part' "$(cat error)"
check "what is not there is begun" mrshare read --continue -o new "${source[@]}" "$addr0" 0:0 9M
equal "and right" "$sum" "$(sum_of new)"

# Other memory in the same place.
mkfifo pipe input
mrshare read "${source[@]}" "$addr0" 0:0 9M 2>error >pipe &
pid=$!
exec 5<pipe
head -c 1000 <&5 >/dev/null # it waits now, with the first piece in the pipe
exec 6<>input
mrshare write "${source[@]}" "$addr0" 0:0 <input 2>error6 6>&- &
writer=$!
head -c 5M /dev/urandom >other
head -c 4M other >&6
first_piece() { mrshare read "${source[@]}" "$addr0" 0:4190208 4096 | cmp -s - <(head -c 4M other | tail -c 4096); }
check "a writer has written its first piece" wait_for 10 first_piece
end_program one
# It must not keep the writer's input open.
start_provider two --shmid 0 --shm-offset 0 --memfd 9M 6>&-
cat <&5 >/dev/null &
status=0
wait "$pid" || status=$?
exec 5<&-
equal "a read does not put two mappings together" "1 mrshare: 10.98.0.1: region 0: what is mapped from 0x0 on was replaced meanwhile" "$status $(cat error)"
tail -c 1M other >&6
exec 6>&-
status=0
wait "$writer" || status=$?
equal "nor does a write" "1 mrshare: 10.98.0.1: region 0: what is mapped from 0x0 on was replaced meanwhile" "$status $(cat error6)"
before=$(sum_of again)
refused "nor is a file continued with the other's bytes" mrshare read --continue -o again "${source[@]}" "$addr0" 0:0 9M 2>error
matches "in words" 'again: it cannot be continued: the mapping or .*again.mrshare-part' "$(cat error)"
equal "and left as it was" "$before" "$(sum_of again)"
check "without --continue it is begun anew" mrshare read -o again "${source[@]}" "$addr0" 0:0 9M
equal "the file beside it is gone then, too" "again" "$(echo again*)"

# The progress line.
terminal() { python3 /mrshare/tests/vm/terminal.py "$@"; }
terminal 80 4 mrshare read "${source[@]}" "$addr0" 0:0 9M >shown
matches "after a second a terminal shows how far it is, at what rate, and how long it takes" \
    ' (44|89)% \[#+ +\] [48]\.0 MiB of 9\.0 MiB, [0-9.]+ [KM]iB/s, 0:[0-9]{2} left' "$(cat shown)"
equal "no line is wider than the terminal" "" "$(sed 's/\\x1b\[K//' shown | grep '.\{80\}' || true)"
equal "at the end it is taken away" '\x1b[K' "$(tail -n 2 shown | head -n 1)"
equal "and nothing of it was in the way" "status 0, 9437184 bytes" "$(tail -n 1 shown)"
terminal 40 4 mrshare read "${source[@]}" "$addr0" 0:0 9M >shown
matches "a narrow one has no bar" '^[48]\.0 MiB of 9\.0 MiB, ' "$(sed -n 's/^\\x1b\[K//p' shown | head -n 1)"
equal "and no wide line" "" "$(sed 's/\\x1b\[K//' shown | grep '.\{40\}' || true)"
terminal 80 0 mrshare read "${source[@]}" "$addr0" 0:0 4096 >shown
equal "what is quick shows nothing" " status 0, 4096 bytes" "$(tr '\n' ' ' <shown | sed 's/ $//')"
slow() { head -c 4M whole; sleep 2; head -c 2M whole; }
terminal 80 0 bash -c "$(declare -f slow); slow | mrshare write ${source[*]} $addr0 0:0" >shown
matches "where the length is not known it shows how much there was" '6\.0 MiB, [0-9.]+ [KM]iB/s' "$(cat shown)"
slow | mrshare write "${source[@]}" "$addr0" 0:0 2>error
equal "what is no terminal gets nothing" "" "$(cat error)"

# The wire, the memory and the daemon go in the middle.
half_read() { # its first piece is read, the others are not
    mrshare read --timeout 2 "${source[@]}" "$addr0" 0:0 9M 2>error >pipe &
    pid=$!
    exec 5<pipe
    head -c 1000 <&5 >/dev/null
}
its_end() { # STATUS and error of it
    local status=0
    cat <&5 >/dev/null &
    wait "$pid" || status=$?
    exec 5<&-
    end="$status $(cat error)"
}
half_read
tc qdisc add dev vb root netem loss 100%
clean_up eval 'tc qdisc del dev vb root 2>/dev/null || true'
its_end
tc qdisc del dev vb root
matches "a read over a wire that breaks fails in words" '^1 mrshare: 10\.98\.0\.1' "$end"
half_read
end_program two
its_end
matches "so does one whose memory goes" '^1 mrshare: 10\.98\.0\.1.*region 0: ' "$end"
start_provider three --shmid 0 --shm-offset 0 --memfd 9M
half_read
stop "$daemon_pid"
its_end
matches "so does one whose daemon goes" '^1 mrshare: 10\.98\.0\.1' "$end"
