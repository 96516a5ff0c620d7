# A peer that was written from mrshare-protocol(7) alone and shares no code with us is served like any other.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 200
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

knows() { tell peer list && sleep 0.2 && tail -n 1 "$scratch/peer.log" | grep -q "^views $1 "; }
page_peer() { python3 -B /mrshare/tests/peer/peer.py "$@"; }

# 4 MiB are four views.
start_daemon --shmem 0:64M --shmem 7:64M --rdma-listen "$addr0" --allow "$addr1" --keepalive 1 --revoke-timeout 5 --max-mr-size 1M
matches "a peer of other versions is told which ones there are" '^rejected VERSION: .*1.*2' "$(page_peer "$addr0" "$addr1" versions 2 3 </dev/null)"
matches "one that speaks more is admitted" '^welcome 1 ' "$(page_peer "$addr0" "$addr1" versions 1 9 </dev/null)"
matches "one from elsewhere is rejected with the reason" '^rejected DENIED: .*--allow' "$(page_peer "$addr0" "$addr0" </dev/null)"

truncate -s 1M /dev/shm/file
clean_up rm /dev/shm/file
start_provider one --shmid 0 --shm-offset 0 --memfd 4M
start_provider two --shmid 7 --shm-offset 16M --memfd 1M
start_program reader mrshare map --socket "$provider_socket" --shmid 0 --shm-offset 32M --read-only /dev/shm/file
says "there is a read-only mapping too" reader '^mapped'

start_program peer python3 -B /mrshare/tests/peer/peer.py "$addr0" "$addr1" write
says "the peer is welcomed with all rights" peer '^welcome 7 generation [0-9]+ interval 1$'
asked "it reads the catalog" peer '^views 6 .* 7:0x1000000\+1048576 rights 7 mapping [0-9]+ rxe0' list
equal "as the library does" 6 "$(views "$addr0" "$addr1")"

asked "a provider fills its memory" one '^filled$' fill 1
asked "and has a sum" one '^sum [0-9a-f]{64}$' sum
asked "which the peer finds, over four views" peer "^$(grep ^sum "$scratch/one.log")$" sum 0 0 4194304
asked "the peer writes over the edge of two views" peer '^written$' write 0 1048570 hello from the page
asked "and the provider sees it" one '^got hello from the page$' get 1048570
asked "it reads the same" peer '^read hello from the page$' read 0 1048570 32
asked "it adds to a word" peer '^was 0$' add 7 0x1000008 5
asked "and once more" peer '^was 5$' add 7 0x1000008 5
asked "it is not granted what the mapping does not allow" peer '^refused: not granted$' write 0 0x2000000 harm
asked "and knows where nothing is" peer '^refused: nothing is mapped at 0x400000$' read 0 0x3ffff8 16

mapping=$(mrshare list --source "$addr1" "$addr0" | awk '$1 == 7 { print $(NF - 1) }')
end_program two
says "a withdrawal is noticed" peer "^notice [0-9]+ generation [0-9]+ withdrawn $mapping$"
asked "what was withdrawn is not touched" peer '^refused: nothing is mapped at 0x1000000$' read 7 0x1000000 16
asked "and what remains is read" peer '^read hello from the page$' read 0 1048570 32

# More than a notice can name: a slow peer is told that everything has gone, and what is there it reads anew.
cat >"$scratch/many.py" <<'PYTHON'
import os, sys
sys.path.insert(0, "/mrshare/tests/proto")
import wire
provider = wire.Provider(sys.argv[1])
fd = os.memfd_create("many", os.MFD_ALLOW_SEALING)
os.ftruncate(fd, wire.PAGE)
print(*{provider.map(fd, shm_offset=16 * wire.M + i * wire.PAGE) for i in range(40)}, flush=True)
sys.stdin.read()
PYTHON
start_program many python3 -B "$scratch/many.py" "$provider_socket"
says "40 more mappings are there" many '^0$'
check "and known to the peer" wait_for 10 knows 45
kill -STOP "${program_pid[peer]}"
end_program many
check "they go while the peer is asleep" wait_for 5 has_views 5 "$addr0" "$addr1"
kill -CONT "${program_pid[peer]}"
says "it is told that everything has gone" peer '^notice [0-9]+ generation [0-9]+ withdrawn all$'
asked "and reads what is there" peer '^views 5 ' list

signs() { grep -cE '^notice [0-9]+ generation [0-9]+ withdrawn -$' "$scratch/peer.log" || true; }
signs_since() { (($(signs) >= $1 + 5)); }
before=$(signs)
check "five intervals pass, with a sign of life in each" wait_for 20 signs_since "$before"
asked "and the peer is still served" peer '^views 5 ' list
equal "it has acknowledged all that it was told" "$(grep -c ^notice "$scratch/peer.log")" "$(grep -c ^ack "$scratch/peer.log")"
equal "nobody was dropped" "" "$(grep dropped "$daemon_log" || true)"

kill -STOP "$daemon_pid"
says "it does not wait for ever for a daemon that is silent" peer '^disconnected: nothing was heard for three intervals$'
kill -CONT "$daemon_pid"
