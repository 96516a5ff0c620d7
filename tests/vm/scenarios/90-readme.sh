# What the README shows of a machine with RDMA is true.
# SPDX-License-Identifier: BSD-2-Clause
# shellcheck source=tests/vm/lib.sh
. /mrshare/tests/vm/lib.sh

check "the README's commands print what it says" python3 /mrshare/scripts/check-readme --vm
