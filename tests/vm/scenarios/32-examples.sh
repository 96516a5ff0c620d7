# The programs of examples/, and those of the man pages, do what they are there to show.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 120
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh
examples=/mrshare/examples
pages=/mrshare/pages

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

# Of each page. A program not named here is found out at the end.
shown=()
# page NAME WANTED [ARGUMENT]...: prints exactly that, and succeeds
page() {
    local name=$1 wanted=$2 got status=0
    shift 2
    shown+=("$name")
    got=$(timeout 30 "$pages/$name" "$@" 2>&1) || status=$?
    equal "$name(3)" "$wanted, exit status 0" "$got, exit status $status"
}
# page_in_background NAME REGEX [ARGUMENT]...: says so, and runs on
page_in_background() {
    shown+=("$1")
    start_program "$1" "$pages/$1" "${@:3}"
    says "$1(3) begins" "$1" "$2"
}
# ends_well WHAT NAME
ends_well() {
    local status=0
    wait "${program_pid[$2]}" || status=$?
    equal "$1" 0 "$status"
    unset "program_pid[$2]"
}

page_in_background mrshare_provider_open '^shared, ' "$provider_socket"
page libmrshare hello "$addr0"
page mrshare_new connected "$addr0" "$addr1"
page mrshare_connect "may write" "$addr0"
page mrshare_read "from afar" "$addr0"
page mrshare_fetch_add "0 and 10, less 1" "$addr0"
page mrshare_fetch_add "9 and 10, less 1" "$addr0"
page mrshare_buffer_register "1048576 bytes, which begin with hello" "$addr0"
page mrshare_error "mrshare_read, code -107: not connected
this was version $(mrshare --version | awk '{ print $2 }')"
page mrshare_mmap_read "8192 bytes, valid, behind 12 others"
page mrshare_view_encode "rkey 0x00000001, addr 0x1000, size 0x1000, device mlx5_0: 34 bytes on the wire
{\"rkey\":1,\"addr\":4096,\"size\":4096,\"device_name\":\"mlx5_0\"}"
page_in_background mrshare_poll '^hello$' "$addr0"
ends_well "and succeeds" mrshare_poll
equal "having told how each of two reads ended" 2 "$(wc -l <"$scratch/mrshare_poll.log")"
page_in_background mrshare_views '^there: region 0 at 0, 1048576 bytes$' "$addr0"
tell mrshare_provider_open enough
says "mrshare_provider_open(3) has unmapped" mrshare_provider_open '^not shared any more$'
ends_well "and succeeds" mrshare_provider_open
says "mrshare_views(3) tells the change" mrshare_views '^withdrawn: region 0 at 0, 1048576 bytes$'
ends_well "and succeeds" mrshare_views
refused "libmrshare(3) fails where nothing is shared any more" "$pages/libmrshare" "$addr0"
equal "every page was shown" "$(cd "$pages" && printf '%s\n' * | sort)" "$(printf '%s\n' "${shown[@]}" | sort -u)"
