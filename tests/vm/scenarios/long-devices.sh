# A device that goes and comes back twenty times: nothing grows.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 1200
# shellcheck disable=SC2034 # for the scenario that this one is
rounds=20
# shellcheck source=tests/vm/scenarios/50-devices.sh
. /mrshare/tests/vm/scenarios/50-devices.sh
