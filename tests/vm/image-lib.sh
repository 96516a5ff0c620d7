# What the scripts that build images share: the mirror, the root's files, the cache.
# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# An image is a folder in the cache that is named after a hash of this file and of the script that sources it,
# which together hold every input: change the package list and the next run builds anew.
# MRSHARE_DEBIAN_MIRROR names a Debian mirror; without it the one that the machine's own apt uses is taken.
set -euo pipefail

suite=trixie
PATH=$PATH:/usr/sbin:/sbin

say() { printf 'tests/%s/image: %s\n' "$(basename "$(dirname "$(realpath "$0")")")" "$*" >&2; }
die() { say "$@"; exit 1; }

needs_tools() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || { say "$tool is needed"; exit 77; }
    done
}

# apt itself knows where it fetches from, whatever format its sources are in. Of its repositories the
# one that carries Debian's own backports is the mirror we want.
find_mirror() {
    local site probe list
    if [[ ${MRSHARE_DEBIAN_MIRROR:-} ]]; then
        echo "${MRSHARE_DEBIAN_MIRROR%/}"
        return
    fi
    while read -r site; do
        if [[ $site == mirror+file:* ]]; then
            list=${site#mirror+file:}
            site=$(sed 's/#.*//; /^\s*$/d; s/\s.*//; s,/$,,; q' "$list")
        fi
        probe=$work/InRelease
        if /usr/lib/apt/apt-helper download-file \
                "$site/dists/$suite-backports/InRelease" "$probe" >"$work/probe.log" 2>&1 &&
                grep -q '^Origin: Debian' "$probe"; then
            echo "$site"
            return
        fi
    done < <(apt-get --print-uris update 2>/dev/null |
             sed -n "s,^'\(.*\)/dists/[a-z]*/InRelease'.*,\1,p" | sort -u)
    say "no Debian mirror with $suite-backports in this machine's apt sources: set MRSHARE_DEBIAN_MIRROR"
    exit 77
}

# What the host's apt needs to get through to the mirror, the VM's apt needs as well.
apt_options() {
    apt-config dump | grep -E '^Acquire::(https?::Proxy|Check-Date|Check-Valid-Until)' || true
    echo 'Acquire::Retries "5";'
}

# make_root RELEASES PACKAGE…: the files of a root image, in $work/root; of the releases the last is preferred
make_root() {
    local release sources=() mirror
    mirror=$(find_mirror)
    for release in $1; do sources+=("deb $mirror $release main"); done
    { apt_options; echo "APT::Default-Release \"$release\";"; } >"$work/apt.conf"
    shift
    mkdir "$work/root"
    mmdebstrap --variant=minbase --architectures=amd64 --include="$*" \
        --aptopt="$work/apt.conf" \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/lib/modules/*/kernel/drivers/gpu/*' \
        --dpkgopt='path-exclude=/usr/lib/modules/*/kernel/drivers/media/*' \
        --dpkgopt='path-exclude=/usr/lib/modules/*/kernel/drivers/net/wireless/*' \
        --dpkgopt='path-exclude=/usr/lib/modules/*/kernel/sound/*' \
        "$suite" - "${sources[@]}" |
        tar -x -C "$work/root" --exclude='./dev/*'
}

# cached_image NAME [INPUT]: runs build, which fills $work/new, unless that was done before, and prints the folder
cached_image() {
    local cache image log
    cache=${XDG_CACHE_HOME:-${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}/.cache}/mrshare
    image=$cache/$1-$({ cat "${BASH_SOURCE[@]}"; echo "${2-}"; } | sha256sum | cut -c1-16)
    mkdir -p "$cache"
    exec 9>"$cache/$1.lock"
    flock 9

    if [[ ! -d $image ]]; then
        # Half an image never gets the name of a whole one.
        work=$(mktemp -d "$cache/build.XXXXXX")
        log=$cache/$1.log
        # shellcheck disable=SC2064 # as they are now
        trap "status=\$?; rm -rf '$work'; ((status == 0)) || tail -n 20 '$log' >&2" EXIT
        build >"$log" 2>&1
        mv "$work/new" "$image"
        # Other checkouts may be at work with another image.
        find "$cache" -maxdepth 1 -name "$1-*" -mtime +7 -exec rm -rf {} +
        say "built in $SECONDS s, $(du -sh "$image" | cut -f1)"
    fi
    touch "$image"
    echo "$image"
}
