# Providers and peers for scenarios: programs in the background that are told what to do, line by line.
# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
. /mrshare/tests/vm/lib.sh

declare -A program_pid program_in

# start_program NAME COMMAND…: in the background, its input from `tell NAME`, its output in $scratch/NAME.log
start_program() {
    local name=$1 in
    shift
    mkfifo "$scratch/$name.in"
    exec {in}<>"$scratch/$name.in"
    "$@" <"$scratch/$name.in" >"$scratch/$name.log" 2>&1 {in}>&- &
    program_pid[$name]=$!
    program_in[$name]=$in
    clean_up end_program "$name"
}

# end_program NAME: the program sees the end of its input, or a signal
end_program() {
    [[ ${program_pid[$1]:-} ]] || return 0
    local in=${program_in[$1]}
    exec {in}>&-
    kill -CONT "${program_pid[$1]}" 2>/dev/null || true
    stop "${program_pid[$1]}"
    rm "$scratch/$1.in"
    unset "program_pid[$1]"
}

tell() { echo "${*:2}" >&"${program_in[$1]}"; }

# said NAME REGEX: a line of its output matches
said() { grep -qE -- "$2" "$scratch/$1.log"; }

# says WHAT NAME REGEX: a counted check that it says so within 15 s
says() {
    if wait_for 15 said "$2" "$3"; then
        pass "$1"
    else
        fail "$1" "a line that matches $3" "$(tail -n 2 "$scratch/$2.log")"
    fi
}

# asked WHAT NAME REGEX COMMAND…: tells it, and checks the line that it answers with
asked() {
    local what=$1 name=$2 regex=$3 lines
    shift 3
    lines=$(wc -l <"$scratch/$name.log")
    tell "$name" "$@"
    wait_for 15 longer_than "$scratch/$name.log" "$lines" || true
    matches "$what" "$regex" "$(tail -n +$((lines + 1)) "$scratch/$name.log" | grep -vE '^(notice|ack) ' | head -n 1)"
}
longer_than() { tail -n +$(($2 + 1)) "$1" | grep -qvE '^(notice|ack) '; }

# start_provider NAME FLAGS…: `mrshare map` around a program that does as it is told: fill SEED, put OFFSET TEXT,
# get OFFSET, sum. It answers each by one line.
start_provider() {
    local name=$1
    shift
    start_program "$name" mrshare map --socket "$provider_socket" "$@" -- python3 /mrshare/tests/vm/provider.py
    wait_for 20 said "$name" '^ready' || {
        fail "$name maps" "a line 'ready'" "$(tail -n 1 "$scratch/$name.log")"
        exit 1
    }
}

# kill_provider NAME: both processes of it, without a chance to say anything
kill_provider() {
    local pid=${program_pid[$1]}
    pkill -9 -P "$pid" || true
    kill -9 "$pid"
    wait "$pid" 2>/dev/null || true
    unset "program_pid[$1]"
}

# views ADDRESS [SOURCE]: the number of views there; a daemon that cannot be reached has none to count
views() {
    local list
    list=$(mrshare list "$1" ${2:+--source "$2"}) || { echo unreachable; return; }
    grep -c rxe <<<"$list" || true
}
has_views() { [[ $(views "$2" "${3:-}") == "$1" ]]; }

# rkey ADDRESS SHMID: of the first view of a region
rkey() { mrshare list "$1" | awk -v shmid="$2" '$1 == shmid { for (i = 1; i <= NF; i++) if ($i ~ /^0x[0-9a-f]+$/) key = $i; print key; exit }'; }
