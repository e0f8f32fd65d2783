#!/usr/bin/env python3
"""Five kernels with one bug each, and the tools that find it: `bespoke check` and compute-sanitizer.

    python3 benches/seeded/run.py BESPOKE     (needs a GPU, compute-sanitizer and CuPy; without them, only the first column)
"""
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
BUGS = ["race", "bounds", "uninitialised", "divergent", "stage"]
TOOLS = ["memcheck", "racecheck", "synccheck", "initcheck"]
# x is at the end of its allocation, so that a read behind it is out of bounds.
LAUNCH = """
import ctypes, sys
import cupy
cupy.cuda.set_allocator(None)
x = cupy.arange(64, dtype=cupy.float32)
y = cupy.cuda.alloc(256)
kernel = cupy.RawModule(path=sys.argv[1]).get_function(sys.argv[2])
kernel((1,), (64,), (x, ctypes.c_void_p(y.ptr).value))
cupy.cuda.runtime.deviceSynchronize()
"""


def found_by_check(bespoke, bug):
    command = [bespoke, "check", HERE / f"{bug}.ptx", "--launches", HERE / f"{bug}.toml", "--lints", "off"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.split("[", 1)[-1].split("]", 1)[0] if done.returncode == 1 else "-"


def found_by_sanitizer(tool, bug):
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", sys.executable, "-c", LAUNCH]
    try:
        done = subprocess.run([*command, HERE / f"{bug}.ptx", bug], capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "hangs"
    errors = [line for line in done.stdout.splitlines() if "SUMMARY" in line]
    print(bug, tool, done.returncode, errors, done.stderr[-300:], file=sys.stderr)
    return "found" if done.returncode == 9 else "-"


def main():
    tools = TOOLS if shutil.which("compute-sanitizer") else []
    print("| bug | bespoke check |", *(f"{tool} |" for tool in tools))
    print("| --- | --- |", *("--- |" for _ in tools))
    for bug in BUGS:
        print(f"| {bug} | {found_by_check(sys.argv[1], bug)} |", *(f"{found_by_sanitizer(t, bug)} |" for t in tools))


main()
