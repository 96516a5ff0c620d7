# What scenarios of the packages are written with, beside the VM's own: installing, configuring, asking systemd.
# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# The packages of two versions are in /mrshare/packages/old and new. Each scenario installs what it needs, and what it
# leaves installed is purged at its end; what then is left behind fails it.
. /mrshare/tests/vm/peers.sh

provider_socket=/run/mrshared/provider.sock
vhost_socket=/run/mrshared/vhost.sock

# install_packages VERSION: old or new; what the maintainers' scripts said is in $scratch/dpkg
install_packages() {
    clean_up purge_packages
    check "the packages are installed" quietly "$scratch/dpkg" dpkg --install "/mrshare/packages/$1"/{libmrshare1,mrshare,mrshared}_*.deb
}
purge_packages() { dpkg --purge mrshared mrshare libmrshare1 >"$scratch/purge.log" 2>&1; }

# quietly FILE COMMAND…: its output goes to the file, and is shown where it fails
quietly() {
    local file=$1
    shift
    "$@" >"$file" 2>&1 || { sed 's/^/# /' "$file"; return 1; }
}

# flags TEXT [INSTANCE]: the flags of the service, or of an instance
flags() { echo "MRSHARED_OPTIONS=\"$1\"" >"/etc/default/mrshared${2:+-$2}"; }

# drop_in UNIT LINE…: settings of its [Service] section, until the scenario ends
drop_in() {
    local unit=$1
    shift
    mkdir -p "/run/systemd/system/$unit.d"
    printf '%s\n' '[Service]' "$@" >"/run/systemd/system/$unit.d/test.conf"
    clean_up rm -r "/run/systemd/system/$unit.d"
    systemctl daemon-reload
}

# property UNIT NAME: as systemd knows it
property() { systemctl show --property="$2" --value "$1"; }
# shellcheck disable=SC2053 # a pattern
has_property() { [[ $(property "$1" "$2") == $3 ]]; }

# becomes WHAT UNIT NAME PATTERN: a counted check that a property matches a shell pattern within 30 s
becomes() {
    if wait_for 30 has_property "$2" "$3" "$4"; then pass "$1"; else fail "$1" "$4" "$(property "$2" "$3")"; fi
}

# logged WHAT UNIT REGEX [MATCH…]: a counted check that a line of its journal, with those fields, matches within 30 s
logged() {
    local what=$1 unit=$2 regex=$3
    shift 3
    if wait_for 30 in_journal "$unit" "$regex" "$@"; then
        pass "$what"
    else
        fail "$what" "a line that matches $regex ${*}" "$(journalctl --unit "$unit" --output cat --lines 3 --no-pager)"
    fi
}
in_journal() {
    local unit=$1 regex=$2
    shift 2
    journalctl --unit "$unit" --output cat --no-pager "$@" | grep -qE -- "$regex"
}

# start_frontend NAME SOCKET: what QEMU does up to a running guest, in the background
start_frontend() { start_program "$1" python3 /mrshare/tests/packages/frontend.py "$2"; }

# started WHAT NAME: a counted check that such a front-end's guest runs, within the minute that a service may take to start
started() {
    wait_for 60 said "$2" '^started ' || true
    says "$1" "$2" '^started 0 0 0 0$'
}
