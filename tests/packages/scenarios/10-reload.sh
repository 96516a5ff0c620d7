# A map file under systemd: reloads with good and bad ones, and what a service may not open.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 150
# shellcheck source=tests/packages/lib.sh
. /mrshare/tests/packages/lib.sh

maps=/etc/mrshare-maps
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
check "whose mapping stands when it has started" has_views 1 "$addr0"
daemon_pid=$(property mrshared.service MainPID)

echo "shmid=0,path=/dev/shm/mrshare-b,shm-offset=8M" >>"$maps"
check "it is reloaded" systemctl reload mrshared.service
check "the new line is mapped" wait_for 10 has_views 2 "$addr0"
becomes "and it serves again" mrshared.service ActiveState active

printf '%s\n' "shmid=0,path=/dev/shm/mrshare-a" "shmid=0,path=/dev/shm/mrshare-b,shm-offset=nine" >"$maps"
systemctl reload mrshared.service || true
logged "a bad file is refused, and its line named" mrshared.service "$maps:2|line 2"
becomes "and it goes on serving" mrshared.service ActiveState active
equal "with all that it had" 2 "$(views "$addr0")"

echo "shmid=0,path=/srv/mrshare-c,shm-offset=16M" >"$maps"
systemctl reload mrshared.service || true
logged "a file that the unit keeps read-only is named, with the setting that helps" mrshared.service \
    '/srv/mrshare-c.*ReadWritePaths'
check "what is no longer in the file is gone" wait_for 10 has_views 0 "$addr0"
equal "all of this in one process" "$daemon_pid" "$(property mrshared.service MainPID)"
