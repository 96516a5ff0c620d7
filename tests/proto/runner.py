# runner.py: runs tests that speak to a real mrshared, one line a test.
# SPDX-License-Identifier: BSD-2-Clause
# Most tests wait most of the time; so several run at a time, each in a process of its own.
import argparse
import concurrent.futures
import contextlib
import fnmatch
import importlib
import io
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
import unittest


def name_of(test):
    return f"{type(test).__module__.removeprefix('test_')}.{test._testMethodName.removeprefix('test_')}"


def one_line(text):
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


class Result(unittest.TestResult):
    """One line a test; of a test that fails in several places the first counts."""

    def __init__(self, verbose):
        super().__init__()
        self.verbose = verbose
        self.bad, self.skip_reasons = {}, {}
        self.passed = 0

    def startTest(self, test):
        super().startTest(test)
        self.begin = time.monotonic()

    def is_bad(self, test):
        return test in self.bad or test in self.skip_reasons

    def addFailure(self, test, err):
        self.bad.setdefault(test, (str(err[1]), None))

    def addError(self, test, err):
        self.bad.setdefault(test, (f"wanted no exception, got {err[0].__name__}: {err[1]}", self._exc_info_to_string(err, test)))

    def addSkip(self, test, reason):
        self.skip_reasons[test] = reason

    def stopTest(self, test):
        super().stopTest(test)
        name = name_of(test)
        took = f" ({time.monotonic() - self.begin:.2f} s)" if self.verbose else ""
        if test in self.bad:
            text, trace = self.bad[test]
            print(f"not ok - {name}: {one_line(text)}{took}")
            for line in (trace or "").splitlines():
                print(f"    {line}")
            for line in getattr(test, "log_tail", []):
                print(f"    log: {line}")
        elif test in self.skip_reasons:
            print(f"skipped - {name}: {self.skip_reasons[test]}{took}")
        else:
            self.passed += 1
            print(f"ok - {name}{took}")
        if self.verbose and test.shortDescription():
            print(f"    {test.shortDescription()}")
        sys.stdout.flush()


def remains(root):
    """What the tests left behind: processes, mounts, files."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as line:
                if os.fsencode(root) in line.read():
                    found.append(f"process {pid}")
        except OSError:
            pass
    with open("/proc/self/mountinfo") as mounts:
        found += [f"mount {line.split()[4]}" for line in mounts if root in line]
    return found + [f"file {name}" for name in os.listdir(root)]


def collect(folder, pattern):
    loader = unittest.TestLoader()
    tests = []
    for file in sorted(os.listdir(folder)):
        if file.startswith("test_") and file.endswith(".py"):
            for suite in loader.loadTestsFromModule(importlib.import_module(file[:-3])):
                tests += suite
    if any(character in pattern for character in "*?["):
        return [test for test in tests if fnmatch.fnmatch(name_of(test), pattern)]
    return [test for test in tests if pattern in name_of(test)]


def parser(description, at_a_time):
    """The options of every runner."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--mrshared", metavar="PATH", default="build/gcc/src/mrshared", help="the daemon (default: %(default)s)")
    made.add_argument("-k", metavar="PATTERN", default="", help="only tests whose name contains it, or matches it as a glob")
    made.add_argument("--long", action="store_true", help="the long forms too: full numbers, slow recoveries")
    made.add_argument("--shuffle", metavar="SEED", help="run in an order that depends on SEED")
    made.add_argument("-j", type=int, metavar="N", default=at_a_time, help="tests at a time (default: %(default)s)")
    made.add_argument("-v", action="store_true", help="seconds and purpose of each test")
    return made


def run_test(number):
    """What is to be said of a test, and how many passed, failed, were skipped."""
    result = Result(verbose)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        tests[number](result)
    return said.getvalue(), result.passed, len(result.bad), len(result.skip_reasons)


def run(case, folder, options):
    """Runs the tests of that folder, whose common class is `case`; the exit status."""
    global tests, verbose
    case.binary = os.path.abspath(options.mrshared)
    if not os.access(case.binary, os.X_OK):
        sys.exit(f"{options.mrshared}: no daemon there; build it, or name it with --mrshared")
    case.long = options.long
    with open(case.binary, "rb") as binary:
        case.sanitized = b"__asan_init" in binary.read()
    case.root = tempfile.mkdtemp(prefix="mrshare-tests-")
    os.chmod(case.root, 0o711)
    tests, verbose = collect(folder, options.k), options.v
    if options.shuffle is not None:
        random.Random(options.shuffle).shuffle(tests)

    passed = failed = skipped = 0
    begin = time.monotonic()
    try:
        with concurrent.futures.ProcessPoolExecutor(options.j, multiprocessing.get_context("fork")) as pool:
            runs = [pool.submit(run_test, number) for number in range(len(tests))]
            for done in concurrent.futures.as_completed(runs):
                said, *counts = done.result()
                print(said, end="", flush=True)
                passed, failed, skipped = (sum(pair) for pair in zip((passed, failed, skipped), counts))
        found = remains(case.root)
    finally:
        shutil.rmtree(case.root, ignore_errors=True)
    print(f"not ok - run.leaves_nothing_behind: wanted nothing, got {', '.join(found)}" if found else "ok - run.leaves_nothing_behind")
    print(f"# {time.monotonic() - begin:.0f} s")
    print(f"{passed + (not found)} passed, {failed + bool(found)} failed{f', {skipped} skipped' if skipped else ''}")
    return 1 if failed or found else 0
