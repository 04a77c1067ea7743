"""Runs every fuzz target, as many at a time as there are CPUs: python tests/fuzz/run.py BUILD --runs N [--seconds T] [--seed S] [NAME…]"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
# The two cost a third to a half of the inputs that are made in a second. Who tries an input that was found by itself has both: the
# programs' own options (watchdog.cc), which `ctest` tries the corpus with.
QUICK = "detect_stack_use_after_return=0:malloc_context_size=1"


def command(build: Path, name: str, runs: int, seconds: int, seed: int, found: Path) -> list[str]:
    flags = [f"-runs={runs}", f"-max_total_time={seconds}", f"-seed={seed}", f"-artifact_prefix={found}/{name}-"]
    corpus, words = HERE / "corpus" / name, HERE / "dictionaries" / f"{name}.dict"
    if words.is_file():
        flags.append(f"-dict={words}")
    if corpus.is_dir():
        flags.append(str(corpus))
    if (HERE / f"{name}.py").is_file():
        return [sys.executable, str(HERE / f"{name}.py"), *flags]
    return [str(build / "tests" / "fuzz" / f"fuzz_{name}"), *flags]


def targets() -> list[str]:
    return sorted([*(path.stem for path in (HERE / "targets").glob("*.cc")), "trees"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path, help="the folder that the programs were built in")
    parser.add_argument("names", nargs="*", metavar="NAME", help="targets [default: all]")
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--seconds", type=int, default=0, help="the most for one target; 0: as long as the runs take")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--found", type=Path, default=None, help="where inputs go that fail [default: BUILD]")
    options = parser.parse_args()
    found = options.found or options.build
    unknown = set(options.names) - set(targets())
    if unknown:
        parser.error(f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(targets())}")

    def run(name: str) -> bool:
        words = command(options.build, name, options.runs, options.seconds, options.seed, found)
        environment = {"ASAN_OPTIONS": QUICK, **os.environ}
        done = subprocess.run(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        lines = done.stdout.strip().splitlines()
        if done.returncode == 0 and lines:
            print(f"{name}: {lines[-1]}", flush=True)
            return True
        print(f"{name}: left with status {done.returncode}\n{done.stdout}", flush=True)
        return False

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return 0 if all(list(pool.map(run, options.names or targets()))) else 1


if __name__ == "__main__":
    sys.exit(main())
