# What the kernel pins is what mrshared(8) says.
# SPDX-License-Identifier: BSD-2-Clause
# limit: 60
# shellcheck source=tests/vm/lib.sh
. /mrshare/tests/vm/lib.sh

status=0
/mrshare/tests/vm/registration >"$scratch/table" || status=$?
grep -v ' passed, ' "$scratch/table"
equal "the table of the manual was looked at" 0 "$status"
equal "each of its rows was tried" "$(grep -c '^\.It .* Ta .* Ta .* Ta .* Ta .* Ta ' /usr/local/share/man/man8/mrshared.8)" \
    $(($(grep -c '^ok - ' "$scratch/table") + 1))
