# A map file under systemd: reloads with good and bad ones, and what a service may not open.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 300
# shellcheck source=tests/packages/lib.sh
. /mrshare/tests/packages/lib.sh

maps=/etc/mrshare-maps
# counts_mappings WHAT N: a counted check of what systemd and peers see
counts_mappings() {
    becomes "$1" mrshared.service StatusText "front-ends: 0, providers: 0, mappings: $2, peers: 0*"
    equal "$1, to peers too" "$2" "$(views "$addr0")"
}

clean_up rm -f "$maps" /dev/shm/mrshare-a /dev/shm/mrshare-b /srv/mrshare-c
install_packages old
for file in /dev/shm/mrshare-a /dev/shm/mrshare-b /srv/mrshare-c; do
    truncate -s 4M "$file"
    chown mrshared "$file"
done
flags "--shmem 0:64M --rdma-listen $addr0 --map-file $maps"
cat >"$maps" <<'END'
# what is shared for good
shmid=0,path=/dev/shm/mrshare-a
END
check "it starts with a map file" systemctl start mrshared.service
equal "whose mapping stands when it has started" 1 "$(views "$addr0")"
daemon_pid=$(property mrshared.service MainPID)

echo "shmid=0,path=/dev/shm/mrshare-b,shm-offset=8M" >>"$maps"
check "it is reloaded" systemctl reload mrshared.service
becomes "and serves again" mrshared.service ActiveState active
counts_mappings "the new line is mapped" 2

printf '%s\n' "shmid=0,path=/dev/shm/mrshare-a" "shmid=0,path=/dev/shm/mrshare-b,shm-offset=nine" >"$maps"
systemctl reload mrshared.service || true
logged "a bad file is refused, and its line named" mrshared.service "$maps:2|line 2"
becomes "as systemctl status does" mrshared.service StatusText "*the last reload failed: $maps:2*"
becomes "and it goes on serving" mrshared.service ActiveState active
counts_mappings "with all that it had" 2

echo "shmid=0,path=/srv/mrshare-c,shm-offset=16M" >"$maps"
systemctl reload mrshared.service || true
logged "a file that the unit keeps read-only is named, with the setting that helps" mrshared.service \
    '/srv/mrshare-c.*ReadWritePaths'
counts_mappings "what is no longer in the file is gone" 0
equal "all of this in one process" "$daemon_pid" "$(property mrshared.service MainPID)"
