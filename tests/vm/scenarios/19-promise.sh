# The promise to a provider: after the answer to its unmap no remote byte lands in its memory, whatever a peer does.
# SPDX-License-Identifier: BSD-2-Clause
# Case 39.
# limit: 300
# shellcheck source=tests/vm/peers.sh
. /mrshare/tests/vm/peers.sh

start_daemon --shmem 0:64M --rdma-listen "$addr0" --revoke-timeout 1
start_program owner python3 /mrshare/tests/vm/promise.py "$provider_socket"
asked "a provider maps" owner '^map 0$' map
key=$(rkey "$addr0" 0)

start_program hostile raw_peer "$addr0" "$addr1" never
says "a peer that never acknowledges is admitted" hostile '^welcome [37]$'
tell hostile flood "$key" 0 harm
sees_harm() { tell owner look && sleep 0.2 && [[ $(tail -n 1 "$scratch/owner.log") == "look dirty" ]]; }
check "it writes again and again" wait_for 10 sees_harm
asked "the unmap is answered, and nothing lands from then on" owner '^unmap 0 clean$' unmap
says "the peer was cut off" hostile '^disconnected'

asked "the provider maps the same memory again" owner '^map 0$' map
new_key=$(rkey "$addr0" 0)
check "under another key" test "$new_key" != "$key"
start_program thief raw_peer "$addr0" "$addr1" never
says "a peer is admitted" thief '^welcome [37]$'
asked "it writes with the old key, in vain" thief '^write remote access error' write "$key" 0 harm
asked "nothing of the new mapping has changed" owner '^look clean$' look
asked "which is unmapped without a wait for anybody" owner '^unmap 0 clean$' unmap
