#!/usr/bin/env python3
"""What 64, 256 and 1,024 workers with one CartPole-v1 each cost, within `ulimit -n 1024` and a /dev/shm of 64 KiB.

    python benchmarks/many_workers.py [--workers 64 256 1024] [--steps 20] [--descriptors 1024] [--shm-bytes 65536]

Each count is a fresh process in a mount namespace of its own (of a user namespace too, where that takes no rights). Times are
also given per worker: a step of it that were quadratic would cost four times as much per worker in each line as in the line
before. `weight` is the proportional set size of a worker; `held` is how many descriptors the caller has open while all run.
Ends with a line of JSON for each count with --json. tests/python/test_many_workers.py runs a small count of it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PHASES = ("start", "reset", "step", "ask", "close")


def narrow_command(shm_bytes: int) -> list[str]:
    """What a command is run by to see a /dev/shm of that size; empty where no mount namespace can be had."""
    mount = f'mount -t tmpfs -o size={shm_bytes} tmpfs /dev/shm && exec "$@"'
    for flags in (["--mount"], ["--mount", "--map-root-user"]):
        command = ["unshare", *flags, "sh", "-c", mount, "sh"]
        if shutil.which("unshare") and subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            return command
    return []


def pss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no Pss of process {pid}")


def measure_here(count: int, steps: int) -> dict[str, float]:
    begin = time.perf_counter()
    import shoal

    def laps() -> Iterator[float]:
        last = begin
        while True:
            now = time.perf_counter()
            yield now - last
            last = now

    lap = laps()
    seconds = {}
    envs = shoal.make_vec("CartPole-v1", num_envs=count, num_workers=count, backend="process", context="forkserver")
    seconds["start"] = next(lap)
    envs.reset(seed=0)
    seconds["reset"] = next(lap)
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(steps)]
    next(lap)
    for action in actions:
        envs.step(action)
    seconds["step"] = next(lap) / steps
    assert len(envs.get_attr("spec")) == count
    seconds["ask"] = next(lap)
    held = len(os.listdir("/proc/self/fd")) - 1
    pids = [worker["pid"] for worker in envs.stats()["workers"]]
    weight = statistics.mean(pss_bytes(pid) for pid in pids[:: max(1, count // 64)])
    next(lap)
    envs.close()
    seconds["close"] = next(lap)
    left = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not left, f"{len(left)} workers outlived close()"
    shm = os.statvfs("/dev/shm")
    return {
        "workers": count,
        **seconds,
        "weight": weight,
        "held": held,
        "descriptors": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "shm_bytes": shm.f_blocks * shm.f_frsize,
    }


def measure(count: int, options: argparse.Namespace) -> dict[str, float]:
    narrow = narrow_command(options.shm_bytes)
    if not narrow:
        print("no mount namespace can be had here: /dev/shm stays as it is", file=sys.stderr)
    command = [*narrow, sys.executable, __file__, "--measure", str(count), "--steps", str(options.steps)]
    packages = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT / "python")]))
    limit = (options.descriptors, options.descriptors)
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        timeout=900,
        env={**os.environ, "PYTHONPATH": packages},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit),
    )
    if done.returncode != 0:
        raise SystemExit(f"{count} workers failed with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def show(found: dict[str, float]) -> str:
    count = found["workers"]
    line = f"{count:>6}"
    for phase in PHASES:
        line += f"{found[phase] * 1e3:>11.1f} ({found[phase] / count * 1e6:>5.0f})"
    return f"{line}{found['weight'] / 2**20:>9.1f}{found['held']:>7}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--descriptors", type=int, default=1024, help="ulimit -n, soft and hard")
    parser.add_argument("--shm-bytes", type=int, default=65536, help="size of /dev/shm")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure_here(options.measure, options.steps)))
        return
    print(f"ms (µs a worker), MiB; ulimit -n {options.descriptors}, /dev/shm of {options.shm_bytes} bytes")
    print(f"{'count':>6}" + "".join(f"{phase:>19}" for phase in PHASES) + f"{'weight':>9}{'held':>7}")
    for count in options.workers:
        found = measure(count, options)
        print(show(found), flush=True)
        if options.json:
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
