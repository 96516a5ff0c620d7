# machine.py: QEMU of the test image with a Linux guest, that is told what to do and looked at from outside.
# SPDX-License-Identifier: BSD-2-Clause
import collections
import json
import os
import select
import socket
import subprocess
import time

import initramfs
from daemon import Wrong, until

# What a kernel may leave out to boot a third faster where it is emulated.
QUICK = "mitigations=off nokaslr rodata=off cryptomgr.notests no_timer_check"

# Seconds; generous, since all of this is emulated, and other work may run beside it.
BOOT, ANSWER = 180, 60

Answer = collections.namedtuple("Answer", "status text")


class Image:
    """What guests are made of: the folder that tests/vm/image prints."""

    def __init__(self, path, scratch):
        self.qemu = [os.path.join(os.path.dirname(__file__), "../vm/qemu"), path]
        initramfs.make(os.path.join(path, "root"), os.path.join(path, "vmlinuz"), scratch)
        self.kernel, self.initrd = os.path.join(scratch, "vmlinux"), os.path.join(scratch, "initrd")


class Lines:
    """The lines that come from a socket."""

    def __init__(self, end):
        self.socket = end
        self.buffer = b""

    def wait(self, seconds):
        """Whether something more came in that time."""
        if not select.select([self.socket], [], [], max(seconds, 0))[0]:
            return False
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionResetError:
            return False
        self.buffer += data
        return bool(data)

    def next(self, deadline):
        """None where there is none in time, or the other end is gone."""
        while b"\n" not in self.buffer:
            if not self.wait(deadline - time.monotonic()):
                return None
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.rstrip(b"\r").decode(errors="backslashreplace")


class Guest:
    def __init__(self, image, name, folder, sockets=(), fds=(), memory="256M"):
        """A device for each vhost-user socket, and one for each connected socket in `fds`."""
        self.name = name
        self.awaited = False  # whether the end of QEMU is what the test wants
        self.console = os.path.join(folder, f"{name}.console")
        self.log_path = os.path.join(folder, f"{name}.qemu")
        ours, theirs = zip(*(socket.socketpair() for _ in range(2)))
        self.agent, self.monitor = map(Lines, ours)
        self.greeted = False
        devices = [f"socket,id=vhost{number},path={path}" for number, path in enumerate(sockets)]
        devices += [f"socket,id=vhost{number},fd={fd}" for number, fd in enumerate(fds, len(devices))]
        argv = [*image.qemu, "-nodefaults", "-no-user-config", "-display", "none", "-name", name,
                "-object", f"memory-backend-memfd,id=ram,size={memory},share=on",
                "-machine", "q35,memory-backend=ram", "-accel", "tcg", "-cpu", "Nehalem", "-m", memory, "-nic", "none",
                "-kernel", image.kernel, "-initrd", image.initrd,
                "-append", "console=ttyS0 quiet " + QUICK,
                "-serial", f"file:{self.console}",
                "-chardev", f"socket,id=agent,fd={theirs[0].fileno()}", "-serial", "chardev:agent",
                "-chardev", f"socket,id=monitor,fd={theirs[1].fileno()}", "-qmp", "chardev:monitor"]
        for number, device in enumerate(devices):
            argv += ["-chardev", device, "-device", f"vhost-user-test-device-pci,chardev=vhost{number},"
                     f"id=dev{number},virtio-id=27,num_vqs=1,vq_size=64,config_size=16"]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=dict(os.environ, LC_ALL="C"),
                                            pass_fds=[end.fileno() for end in theirs] + list(fds))
        self.pid = self.process.pid
        for end in theirs:
            end.close()

    # The guest.

    def ready(self, seconds=BOOT):
        """Waits until it has booted, anew where it was told to."""
        self.wait_line(lambda line: line.endswith("@ready"), "boot", "a guest that is ready", seconds)
        return self

    def wait_line(self, wanted, what, words, seconds):
        lines, deadline = [], time.monotonic() + seconds
        while True:
            line = self.agent.next(deadline)
            if line is None:
                raise Wrong(f"{self.name}: {what}", f"{words} within {seconds} s", self.last_words(lines))
            if wanted(line):
                return lines
            lines.append(line)

    def run(self, command, seconds=ANSWER):
        """What the guest's shell made of it: exit status and output."""
        self.agent.socket.sendall(command.encode() + b"\n")
        end = []
        lines = self.wait_line(lambda line: line.startswith("@end ") and not end.append(line), command, "an end", seconds)
        return Answer(int(end[0].split()[1]), "\n".join(lines).removesuffix("\n"))

    def ask(self, command, seconds=ANSWER):
        """The output of a command that succeeds."""
        status, text = self.run(command, seconds)
        if status != 0:
            raise Wrong(f"{self.name}: {command}", "exit status 0", f"{status}: {text}")
        return text

    def read(self, offset, size=32, device="pmem0"):
        """The text at an offset of the guest's persistent memory, to its first zero byte."""
        text = self.ask(f"dd if=/dev/{device} bs=512 skip={offset // 512} count={-(-size // 512)} 2>/dev/null | "
                        f"head -c {size} | tr '\\0' '~'")
        return text.split("~")[0]

    def write(self, offset, text, device="pmem0"):
        """Writes it there, a multiple of 512 bytes, followed by a zero byte; and flushes."""
        self.ask(f"printf '{text}\\0' | dd of=/dev/{device} bs=512 seek={offset // 512} conv=notrunc,fsync 2>&1")

    # QEMU.

    def command(self, name, **arguments):
        """A command of its monitor, and what that returns."""
        answer = self.execute(name, arguments)
        if "error" in answer:
            raise Wrong(f"{self.name}: {name}", "no error of QEMU", answer["error"]["desc"])
        return answer["return"]

    def refusal(self, name, **arguments):
        """What QEMU says to a command that it refuses."""
        answer = self.execute(name, arguments)
        if "error" not in answer:
            raise Wrong(f"{self.name}: {name}", "an error of QEMU", answer["return"])
        return answer["error"]["desc"]

    def execute(self, name, arguments):
        if not self.greeted:
            self.answer("greeting", {"QMP"})
            self.greeted = True
            self.command("qmp_capabilities")
        self.monitor.socket.sendall(json.dumps({"execute": name, "arguments": arguments}).encode() + b"\n")
        return self.answer(name, {"return", "error"})

    def answer(self, name, keys):
        """The next line of its monitor that has one of these, and is no event."""
        deadline = time.monotonic() + ANSWER
        while True:
            line = self.monitor.next(deadline)
            if line is None:
                raise Wrong(f"{self.name}: {name}", f"an answer of QEMU within {ANSWER} s", self.last_words())
            answer = json.loads(line)
            if keys & answer.keys():
                return answer

    def maps(self, name):
        """How often QEMU maps a file whose path ends so."""
        with open(f"/proc/{self.pid}/maps", encoding="utf-8", errors="surrogateescape") as lines:
            return sum(name in line for line in lines)

    def ended(self):
        return self.process.poll() is not None

    def want_alive(self):
        """QEMU has survived what was done to it."""
        if self.ended():
            raise Wrong(f"{self.name}: QEMU", "a process that runs on", self.last_words())
        state = self.command("query-status")["status"]
        if state != "running":
            raise Wrong(f"{self.name}: QEMU", "state running", state)

    def kill(self):
        self.awaited = True
        if not self.ended():
            self.process.kill()
            self.process.wait()

    def quit(self):
        """Ends it as a person does."""
        self.awaited = True
        self.command("quit")
        until(self.ended, f"{self.name}: QEMU", "an end after quit", lambda: "none", ANSWER)

    def close(self):
        self.kill()
        self.agent.socket.close()
        self.monitor.socket.close()

    def last_words(self, lines=()):
        """For a person who looks into a failure."""
        said = list(lines)[-8:]
        for path in (self.log_path, self.console):
            with open(path, errors="backslashreplace") as log:
                said += log.read().replace("\r", "").splitlines()[-8:]
        end = f"exit code {self.process.returncode}" if self.ended() else "nothing more"
        return "; ".join([*said, end])

