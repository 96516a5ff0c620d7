# The programs of examples/ do what they are there to show.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 120
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh
examples=/mrshare/examples

start_daemon --shmem 0:16M --rdma-listen "$addr0"
start_program watch "$examples/watch" "$addr0" "$addr1"
start_program provider "$examples/provider" "$provider_socket" 0 0 hello
says "provider shares its memory" provider '^shared$'
says "watch has the news" watch '^\+ region 0 at 0x0, 1048576 bytes$'
matches "list lists it" 'region 0 at 0x0, read-write: .*rxe0' "$("$examples/list" "$addr0" "$addr1")"
equal "read reads it" hello "$("$examples/read" "$addr0" 0 0 5 "$addr1")"
equal "all of it" 1048576 "$("$examples/read" "$addr0" 0 0 0x100000 "$addr1" | wc -c)"
equal "write writes, and counts" "the counter at 0x8 was 0" "$("$examples/write" "$addr0" 0 0 written "$addr1")"
equal "once a time" "the counter at 0x8 was 1" "$("$examples/write" "$addr0" 0 0 again "$addr1")"
refused "what is not shared is not read" "$examples/read" "$addr0" 0 0x100000 1 "$addr1"
tell provider enough
says "provider sees what was written" provider '^at the end: again$'
says "watch has that news too" watch '^- region 0 at 0x0, 1048576 bytes$'
