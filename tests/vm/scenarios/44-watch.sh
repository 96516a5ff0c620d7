# `mrshare watch`: what is there, what is added, what is withdrawn, a line each, until the daemon goes.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 200
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

start_daemon --shmem 0:64M --shmem 3:64M --rdma-listen "$addr0"
start_provider one --shmid 0 --shm-offset 0 --memfd 1M
start_program text mrshare watch --source "$addr1" "$addr0"
start_program json mrshare watch --json --source "$addr1" "$addr0"
says "what is there is shown" text '^ *[0-9]+  added +0  0x0 +1 MiB +rwa +0x[0-9a-f]{8} +1  rxe0$'
says "below a line with the names" text '^generation  change +shmid  shm_offset +size +access  rkey +mapping  device$'
says "and as JSON" json '"change":"added"'

start_provider two --shmid 3 --shm-offset 8M --memfd 2M
says "what is added is shown" text '^ *[0-9]+  added +3  0x800000 +2 MiB .* 2  rxe0$'
end_program one
says "and what is withdrawn" text '^ *[0-9]+  withdrawn +0  0x0 +1 MiB .* 1  rxe0$'
start_provider one --shmid 0 --shm-offset 0 --memfd 1M
says "memory that comes to the same place is another mapping" text '^ *[0-9]+  added +0  0x0 +1 MiB .* 3  rxe0$'
equal "that is all" 5 "$(wc -l <"$scratch/text.log")"
check "the JSON has as much" wait_for 5 test "$(wc -l <"$scratch/json.log")" = 4
equal "the same, in the order of the generations" "added 0 0 1, added 3 8388608 2, withdrawn 0 0 1, added 0 0 3, True" \
    "$(python3 -c '
import json, sys
changes = [json.loads(line) for line in sys.stdin]
generations = [c["generation"] for c in changes]
keys = "change", "shmid", "shm_offset", "mapping_id"
print(*(" ".join(str(c[key]) for key in keys) for c in changes), generations == sorted(generations), sep=", ")' <"$scratch/json.log")"

mrshare watch --source "$addr1" "$addr0" > >(head -n 1 >"$scratch/head") &
short=$!
check "one whose reader has gone" wait_for 10 test -s "$scratch/head"
start_provider three --shmid 3 --shm-offset 0 --memfd 1M
gone() { ! kill -0 "$short" 2>/dev/null; }
check "ends with the next change" wait_for 10 gone

stop "$daemon_pid"
says "when the daemon goes it says so" text '^mrshare: 10\.98\.0\.1'
status=0
wait "${program_pid[text]}" || status=$?
equal "and ends" 1 "$status"
refused "where there is none it fails" mrshare watch --timeout 2 --source "$addr1" "$addr0" 2>"$scratch/none"
matches "in words" '^mrshare: 10\.98\.0\.1' "$(cat "$scratch/none")"
