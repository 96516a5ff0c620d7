# A peer on bare verbs breaks each rule of the protocol.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 600
# shellcheck disable=SC2034 # for the scenario that this one is
every=1
# shellcheck source=tests/vm/scenarios/52-rules.sh
. /mrshare/tests/vm/scenarios/52-rules.sh
