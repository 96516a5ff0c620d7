# Instances: each with sockets, flags, process and region of its own, beside the service of the host.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 300
# shellcheck source=tests/packages/lib.sh
. /mrshare/tests/packages/lib.sh

install_packages old
flags "--shmem 0:64M --rdma-listen $addr0"
flags "--shmem 0:64M --rdma-listen $addr1" vm1
check "service and instance are enabled" systemctl enable --quiet mrshared.service mrshared@vm1.service
equal "the instance's sockets with it" "enabled enabled" \
    "$(systemctl is-enabled mrshared-vhost@vm1.socket mrshared-provider@vm1.socket | xargs)"
check "they start" systemctl start mrshared.service mrshared-vhost@vm1.socket mrshared-provider@vm1.socket
equal "the instance's flags and sockets are its own" "/run/mrshared/vm1/provider.sock /run/mrshared/vm1/vhost.sock" \
    "$(find /run/mrshared/vm1 -type s | sort | xargs)"

start_frontend guest /run/mrshared/vm1/vhost.sock
started "a front-end starts the instance" guest
provider_socket=/run/mrshared/vm1/provider.sock
start_provider tenant --shmid 0 --shm-offset 0 --memfd 4M
says "its guest has its memory" guest '^map 0 0 4194304 0'
equal "which the instance publishes, and the service does not" "0 1" "$(views "$addr0") $(views "$addr1")"
equal "two processes serve" 2 "$(pgrep -c -u mrshared mrshared)"

check "the service is restarted" systemctl restart mrshared.service
asked "which the instance's provider does not notice" tenant '^put$' put 0 still here
equal "nor its peers" "still here" "$(mrshare read "$addr1" 0:0 10)"
end_program tenant
end_program guest
