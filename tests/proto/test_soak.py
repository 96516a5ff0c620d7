# test_soak.py: many rounds: memory, open files and mappings stay flat.
# SPDX-License-Identifier: BSD-2-Clause
import random

from case import Case
from wire import M, MAP, PAGE, UNMAP, map_message, unmap_message


class Soak(Case):
    def figures(self, served):
        return served.status("VmRSS"), served.fd_count(), len(served.maps())

    def want_flat(self, served, before):
        after = self.figures(served)
        slack = 32 * M if self.sanitized else 2 * M
        self.want(True, after[0] - before[0] < slack, f"VmRSS flat ({before[0]} to {after[0]})")
        self.want(before[1], after[1], "open fds")
        self.want(True, abs(after[2] - before[2]) <= 4, f"memory areas flat ({before[2]} to {after[2]})")

    def test_map_and_unmap_pairs_case_22(self):
        """Case 22: 100,000 pairs (a part of them by default): memory, fds, mappings flat."""
        served = self.start("--log-level=warning")
        me = self.provider(served)
        one = self.memfd(16 * PAGE)

        def pairs(count):
            for start in range(0, count, 10):
                for index in range(start, start + 10):
                    me.send(map_message(shm_offset=index % 1000 * PAGE), [one])
                    me.send(unmap_message(shm_offset=index % 1000 * PAGE))
                for index in range(start, start + 10):
                    self.want(("0", "0"), (me.answer(MAP), me.answer(UNMAP)), f"pair {index}")
        pairs(1000)
        self.wait_until(lambda: not served.maps_of(one), "mappings after the first pairs", "none")
        before = self.figures(served)
        pairs(100000 if self.long else 5000)
        self.want_flat(served, before)

    def test_connections(self):
        """One leaves, another comes, with mappings each time: nothing of the old one is left."""
        served = self.start("--log-level=warning")
        one = self.memfd(16 * PAGE)

        def connections(count):
            for index in range(count):
                me = self.provider(served)
                # The one before may still be on its way out.
                self.wait_until(lambda: me.map(one, len=16 * PAGE) == "0", f"map of connection {index}", "0")
                me.send(map_message()[:index % 52 + 1], [one])
                self.providers.pop().close()
        connections(200)
        served.settled()
        before = self.figures(served)
        connections(10000 if self.long else 1000)
        served.settled()
        self.want_flat(served, before)

    def test_random_ranges(self):
        """Random maps and unmaps of several providers, against a model of the region."""
        served = self.start(regions=("0:1M",))
        everybody = [self.provider(served) for _ in range(3)]
        one = self.memfd(M)
        chance = random.Random(1)
        model = {}
        for turn in range(20000 if self.long else 3000):
            who = chance.randrange(3)
            start, count = chance.randrange(64), chance.choice((1, 1, 2, 3, 8))
            if model and chance.random() < 0.3:
                start, count = chance.choice(list(model))
            fields = {"shm_offset": start * PAGE, "len": count * PAGE}
            if chance.random() < 0.5:
                taken = any(start < other + pages and other < start + count for other, pages in model)
                wanted = "-EEXIST" if taken else "0"
                self.want(wanted, everybody[who].map(one, **fields), f"turn {turn}: map {fields}")
                if not taken:
                    model[start, count] = who
            else:
                owner = model.get((start, count))
                wanted = "-ENOENT" if owner is None else "0" if owner == who else "-EPERM"
                self.want(wanted, everybody[who].unmap(**fields), f"turn {turn}: unmap {fields}")
                if wanted == "0":
                    del model[start, count]
