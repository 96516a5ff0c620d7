# test_end.py: the daemon ends or is killed under a running guest, whose memory lives on.
# SPDX-License-Identifier: BSD-2-Clause
import signal

from guests import GuestCase
from wire import M
