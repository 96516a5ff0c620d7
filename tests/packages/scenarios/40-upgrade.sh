# An upgrade leaves the daemon that serves alone, and says so; removing ends it; purging leaves nothing.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 400
# shellcheck source=tests/packages/lib.sh
. /mrshare/tests/packages/lib.sh

install_packages old
flags "--shmem 0:64M --rdma-listen $addr0"
flags "--shmem 0:64M --rdma-listen $addr1" vm1
check "service and instance are enabled and started" systemctl enable --now --quiet mrshared.service mrshared@vm1.service
start_provider memfd --shmid 0 --shm-offset 0 --memfd 4M
start_frontend qemu "$vhost_socket"
says "a front-end is served" qemu '^map 0 0 4194304 0'
before="$(property mrshared.service MainPID) $(property mrshared@vm1.service MainPID)"

install_packages new
matches "the new version is installed" '\+1$' "$(dpkg-query -W -f '${Version}' mrshared)"
equal "the same processes serve" "$before" "$(property mrshared.service MainPID) $(property mrshared@vm1.service MainPID)"
matches "of the program that was installed before" 'deleted' "$(readlink "/proc/${before% *}/exe")"
check "which the upgrade says" grep -q 'still serves' "$scratch/dpkg"
check "with what to do" grep -q 'systemctl restart mrshared.service mrshared@vm1.service' "$scratch/dpkg"
equal "systemd knows the new units" "no 4s" \
    "$(property mrshared.service NeedDaemonReload) $(property mrshared.service RestartUSec)"
asked "memory is shared as before" memfd '^put$' put 0 unharmed
equal "and read" unharmed "$(mrshare read "$addr0" 0:0 8)"
equal "it stays enabled" "enabled enabled" "$(systemctl is-enabled mrshared.service mrshared@vm1.service | xargs)"

end_program qemu
end_program memfd
check "a restart starts the new one" systemctl restart mrshared.service
refused "which is the file that is there" grep -q deleted <(readlink "/proc/$(property mrshared.service MainPID)/exe")

check "it is removed" quietly "$scratch/removal" dpkg --remove mrshared
equal "which ends all daemons and closes their sockets" "0 0" \
    "$(pgrep -c -u mrshared mrshared || true) $(find /run/mrshared -type s | wc -l)"
check "flags stay" test -e /etc/default/mrshared
check "it is purged" quietly "$scratch/removal" dpkg --purge mrshared
equal "user, flags, folders and links are gone" "" \
    "$(getent passwd mrshared; getent group mrshared; find /etc /run /var/lib/systemd -iname '*mrshared*')"
