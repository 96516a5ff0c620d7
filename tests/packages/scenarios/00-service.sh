# From packages to a running service: sockets, activation, memory over RDMA as the service's user, status, journal.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 400
# shellcheck source=tests/packages/lib.sh
. /mrshare/tests/packages/lib.sh

install_packages old
equal "nothing is enabled or started by that" "disabled inactive inactive" \
    "$(systemctl is-enabled mrshared.service || true) $(property mrshared.service ActiveState) $(property mrshared-vhost.socket ActiveState)"
matches "the user has no shell and no home of its own" '^mrshared:[^:]*:[^:]*:[^:]*:[^:]*:/:.*nologin$' "$(getent passwd mrshared)"

check "without flags it is not started" bash -c '! systemctl start mrshared.service 2>/dev/null'
logged "and says which is missing" mrshared.service 'wanted|missing'
becomes "it is tried again" mrshared.service NRestarts '[1-9]*'
equal "the sockets stay meanwhile" "active active" "$(systemctl is-active mrshared-vhost.socket mrshared-provider.socket | xargs)"
start_frontend early "$vhost_socket"
flags "--shmem 0:64M --rdma-listen $addr0"
becomes "and comes up when the flags are right" mrshared.service ActiveState active
started "who waited is served" early
end_program early
systemctl stop 'mrshared-*.socket' mrshared.service
check "it is enabled" systemctl enable --quiet mrshared.service
equal "its sockets with it" "enabled enabled" "$(systemctl is-enabled mrshared-vhost.socket mrshared-provider.socket | xargs)"
check "the sockets are started" systemctl start mrshared-vhost.socket mrshared-provider.socket
equal "the service waits for somebody" inactive "$(property mrshared.service ActiveState)"
equal "who may open them is a group" "660:root:mrshared 660:root:mrshared" \
    "$(stat -c %a:%U:%G "$vhost_socket" "$provider_socket" | xargs)"

equal "memory and files are not limited as for others" "infinity 524288" \
    "$(property mrshared.service LimitMEMLOCK) $(property mrshared.service LimitNOFILE)"
# ProtectClock= adds the clock, to read.
matches "of devices it has RDMA's alone" '^closed( char-rtc r| char-infiniband_verbs rw| /dev/infiniband/rdma_cm rw){3}$' \
    "$(property mrshared.service DevicePolicy) $(property mrshared.service DeviceAllow | xargs)"
matches "it starts when RDMA hardware is there" 'rdma-hw\.target' "$(property mrshared.service After)"

start_frontend qemu "$vhost_socket"
started "the first front-end starts it, and is served" qemu
becomes "systemd knows that it serves" mrshared.service ActiveState active
daemon_pid=$(property mrshared.service MainPID)
equal "it is no root and has no capability" "mrshared 0000000000000000" \
    "$(ps -o user= -p "$daemon_pid") $(awk '/^CapPrm/ {print $2}' "/proc/$daemon_pid/status")"

start_provider memfd --shmid 0 --shm-offset 0 --memfd 16M
asked "the provider writes" memfd '^put$' put 4096 hello from a service
equal "a peer reads it" "hello from a service" "$(mrshare read "$addr0" 0:4096 20)"
check "a peer writes" mrshare write "$addr0" 0:8192 <<<"and back"
asked "the provider reads it" memfd '^got and back' get 8192
says "the guest has it" qemu '^map 0 0 16777216 0'

# A peer that stays: nobody takes what it reads.
mkfifo "$scratch/nobody"
exec {nobody}<>"$scratch/nobody"
mrshare read --source "$addr1" "$addr0" 0:0 16M >"$scratch/nobody" &
peer=$!
clean_up stop "$peer"
becomes "systemctl status shows the counts" mrshared.service StatusText \
    "front-ends: 1, providers: 1, mappings: 1, peers: 1"
check "and so people see them" grep -q 'peers: 1' <(systemctl status mrshared.service)

logged "the journal tells a mapping by its fields" mrshared.service 'mapped' MRSHARE_SHMID=0 \
    "MRSHARE_PROVIDER_PID=${program_pid[memfd]}" MRSHARE_LEN=16777216
logged "and a peer by its address" mrshared.service 'connected' "MRSHARE_PEER=$addr1"
journalctl --unit mrshared.service --output json --no-pager >"$scratch/journal"
check "as JSON too" python3 - "$scratch/journal" <<'END'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
mapped = [line for line in lines if line.get("MRSHARE_SHMID") == "0" and "mapped" in line["MESSAGE"]]
assert mapped and mapped[0]["PRIORITY"] == "6" and mapped[0]["MRSHARE_DEVICE"] == "rxe0", lines
assert not mapped[0]["MESSAGE"].startswith("info:"), mapped[0]
END

exposure=$(systemd-analyze security --no-pager mrshared.service | sed -n 's/.*exposure level.*: \([0-9.]*\) .*/\1/p')
check "systemd-analyze says of its exposure, $exposure, that it is 2.5 or less" \
    awk -v got="$exposure" 'BEGIN { exit !(got != "" && got <= 2.5) }'

end_program memfd
end_program qemu
becomes "they are no longer counted when they have gone" mrshared.service StatusText \
    "front-ends: 0, providers: 0, mappings: 0, peers: 1"
stop "$peer"
becomes "nor is a peer that ends" mrshared.service StatusText "front-ends: 0, providers: 0, mappings: 0, peers: 0"
check "it is stopped" systemctl stop mrshared.service
equal "the sockets stay" "active active" "$(systemctl is-active mrshared-vhost.socket mrshared-provider.socket | xargs)"

start_provider again --shmid 0 --shm-offset 0 --memfd 4M
equal "and the first provider starts it anew" active "$(property mrshared.service ActiveState)"
end_program again
