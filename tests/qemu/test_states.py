# test_states.py: devices that stop and start: pause, reset, driver unbind; with changes meanwhile, with a full table; and states that QEMU refuses.
# SPDX-License-Identifier: BSD-2-Clause
import time

import machine
from guests import MORE, GuestCase, Memory
from wire import M

DRIVER = "/sys/bus/virtio/drivers/virtio_pmem"


class States(GuestCase):
    def test_stop_and_cont(self):
        """What changes while the VM is paused reaches the guest when it goes on, and not before: QEMU would crash."""
        served = self.serve()
        provider, other = self.provider(served), self.provider(served)
        base = self.share(provider, "base")
        guest = self.guest().ready()
        self.want_read(guest, "base", 0, "the first mapping")
        old = self.share(other, "old", shm_offset=2 * M)
        self.want_soon(guest, "old", 2 * M, "the second mapping")
        for number in range(3):
            guest.command("stop")
            name = f"new{number}"
            self.share(provider, name, shm_offset=4 * M)
            begin = time.monotonic()
            self.want("-EINPROGRESS", other.unmap(shm_offset=2 * M, len=old.size), "unmap while the VM is paused")
            took = time.monotonic() - begin
            self.want(True, took < 5, f"whether that answer ({took:.1f} s) came about at the revoke timeout, 1 s")
            self.want("-EEXIST", other.map(old.fd, shm_offset=2 * M, len=old.size), "map there, while a guest may use it")
            self.want(1, guest.maps("memfd:old "), "places where QEMU maps the old one while it is paused")
            guest.command("cont")
            self.want_soon(guest, name, 4 * M, "what was mapped while it was paused")
            self.want_soon(guest, "", 2 * M, "what was unmapped while it was paused")
            self.want_gone(guest, "old")
            self.want_written(guest, base, 4096, f"flushed in round {number}")
            self.want("0", provider.unmap(shm_offset=4 * M, len=2 * M), "unmap of the new one")
            self.want("0", other.map(old.fd, shm_offset=2 * M, len=old.size), "map of the old one, again")
            self.want_soon(guest, "old", 2 * M, "the old one, again")

    def test_many_pauses(self):
        """Each time another mapping comes and the one before goes while the VM is paused."""
        served = self.serve()
        provider = self.provider(served)
        base = self.share(provider, "base")
        guest = self.guest().ready()
        before, count = None, 100 if self.long else 15
        for number in range(count):
            mark = served.mark()
            guest.command("stop")
            place = {"shm_offset": 2 * M * (1 + number % 30), "len": 2 * M}
            memory = self.share(provider, f"pause{number}", shm_offset=place["shm_offset"])
            if before:
                self.want("-EINPROGRESS", provider.unmap(**before), "unmap while the VM is paused")
            guest.command("cont")
            # A request that is on its way when QEMU stops the device would crash it: this is the last one of the start.
            served.wait_log(rf"\[{place['shm_offset']:#x}, .* announced", mark, MORE)
            before = place
        self.want_read(guest, f"pause{count - 1}", before["shm_offset"], "what was mapped in the last pause")
        self.want_written(guest, memory, 4096, "written there", base=before["shm_offset"])
        for number in range(count - 1):
            self.want_gone(guest, f"pause{number}")
        self.want_written(guest, base, 4096, "still here")

    def test_full_table(self):
        """More mappings than QEMU's table holds: the surplus is not announced, and no start fails for it."""
        served = self.serve()
        provider = self.provider(served)
        count = 12
        shared = [self.share(provider, f"number{each}", shm_offset=2 * M * each) for each in range(count)]
        guest = self.guest().ready()
        seen = self.seen(guest, count)
        self.want(True, 4 <= seen < 8, f"whether the guest sees 4 to 7 of {count} mappings, not {seen}")
        served.wait_log("not announced|surplus")
        self.want_written(guest, shared[0], 4096, "with the table full")
        for number, again in enumerate([self.pause, self.reset, self.pause, self.reboot, self.rebind]):
            again(guest)
            self.want(seen, self.seen(guest, count), f"mappings that the guest sees after start {number}")
            self.want_written(guest, shared[0], 8192 + 512 * number, f"flushed in start {number}")
        # A place in the table that becomes free is the next one's.
        self.want("0", provider.unmap(shm_offset=0, len=shared[0].size), "unmap of the first")
        self.want_soon(guest, "", 0, "the first")
        self.want_soon(guest, f"number{seen}", 2 * M * seen, "the first that did not fit before")
        self.want_read(guest, "", 2 * M * (seen + 1), "the next one")
        # With changes while it is paused.
        guest.command("stop")
        self.want("-EINPROGRESS", provider.unmap(shm_offset=2 * M, len=2 * M), "unmap while the VM is paused")
        guest.command("cont")
        self.want_soon(guest, f"number{seen + 1}", 2 * M * (seen + 1), "the next one")
        self.want_read(guest, "", 2 * M, "the second")
        self.want_written(guest, shared[2], 4096, "at last", base=4 * M)

    def seen(self, guest, count):
        """How many of the mappings the guest sees: the oldest ones."""
        texts = [guest.read(2 * M * each) for each in range(count)]
        number = next((each for each in range(count) if texts[each] != f"number{each}"), count)
        self.want([""] * (count - number), texts[number:], "what the guest sees of those that were not announced")
        return number

    def rebind(self, guest):
        """The driver lets go of its device, and takes it again."""
        device = guest.ask(f"basename $(ls -d {DRIVER}/virtio*)")
        guest.ask(f"echo {device} >{DRIVER}/unbind")
        self.want(False, guest.run("test -b /dev/pmem0").status == 0, "whether /dev/pmem0 is there without its driver")
        guest.ask(f"echo {device} >{DRIVER}/bind")
        guest.ask("await_pmem")

    def test_unbind_and_bind(self):
        """QEMU forgets all mappings then, as at a reset, without a word to the daemon."""
        served = self.serve()
        provider = self.provider(served)
        base = self.share(provider, "base")
        guest = self.guest().ready()
        for number in range(3):
            self.rebind(guest)
            self.want_read(guest, "base", 0, f"the mapping after bind {number}")
            self.want_written(guest, base, 4096, f"flushed after bind {number}")
        # What changes while there is no driver.
        device = guest.ask(f"basename $(ls -d {DRIVER}/virtio*)")
        guest.ask(f"echo {device} >{DRIVER}/unbind")
        self.share(provider, "new", shm_offset=2 * M)
        answer = provider.unmap(shm_offset=0, len=base.size)
        self.want(True, answer in ("0", "-EINPROGRESS"), f"whether unmap without a driver is answered 0 or -EINPROGRESS, not {answer},")
        guest.ask(f"echo {device} >{DRIVER}/bind")
        guest.ask("await_pmem")
        self.want_soon(guest, "new", 2 * M, "what was mapped without a driver")
        self.want_read(guest, "", 0, "what was unmapped without a driver")

    def test_reset_with_changes(self):
        """Mappings that change while the guest boots anew, from the end of its device to the new start."""
        served = self.serve()
        provider = self.provider(served)
        base = self.share(provider, "base")
        slots = [Memory(self, f"slot{slot}", 2 * M, f"slot{slot}") for slot in range(4)]
        guest = self.guest().ready()
        for number in range(5 if self.long else 2):
            mark = served.mark()
            guest.command("system_reset")
            # Not before: a request that is on its way when QEMU stops the device would crash it.
            served.wait_log(": stopped", mark, MORE)
            end, changes = time.monotonic() + machine.BOOT, 0
            while b"@ready" not in guest.agent.buffer and time.monotonic() < end:
                slot = changes % len(slots)
                place = {"shm_offset": 2 * M * (1 + slot), "len": slots[slot].size}
                # A range that was taken from QEMU in the middle of a stop is free at the next start.
                answers = provider.map(slots[slot].fd, **place), provider.unmap(**place)
                self.want_in(answers, [("0", "0"), ("0", "-EINPROGRESS"), ("-EEXIST", "-ENOENT")], "answers to map and unmap")
                changes += 1
                guest.agent.wait(0.1)
            self.want(True, changes > 3, f"whether there were some changes, not {changes},")
            guest.ready()
            self.want_read(guest, "base", 0, f"the mapping that stays, after reset {number}")
            self.want_written(guest, base, 4096, f"after reset {number}")
            for slot in range(len(slots)):
                self.want_soon(guest, "", 2 * M * (1 + slot), "what was removed meanwhile")

    def test_migration_and_snapshots(self):
        """QEMU refuses both because of this device; guest and sharing go on."""
        served = self.serve()
        provider = self.provider(served)
        memory = self.share(provider, "memory")
        guest = self.guest().ready()
        blocked = "blocked by non-migratable device '0000:00:01.0/vhost-user-test-device'"
        self.want_in(blocked, guest.refusal("migrate", uri="exec:cat >/dev/null"), "what QEMU says to migrate")
        self.want_in(blocked, guest.command("human-monitor-command", **{"command-line": "savevm one"}),
                     "what QEMU says to savevm")
        guest.want_alive()
        self.want_read(guest, "memory", 0, "the memory after both")
        self.want_written(guest, memory, 4096, "after both")
        self.share(provider, "more", shm_offset=memory.size)
        self.want_soon(guest, "more", memory.size, "memory that comes after both")
