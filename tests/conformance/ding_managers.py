"""Runs DI-engine's own tests of its environment managers and serial collectors with Shoal's classes in the place of its own.

    python tests/conformance/ding_managers.py                      # the tests of the installed version, which come with it
    python tests/conformance/ding_managers.py -- -k test_naive -x  # arguments of pytest

DI-engine brings its tests along, so that nothing is fetched. `benchmarks/peers/setup ding` makes an environment that has it.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path

import peer_tests

FILES = (
    "ding/envs/env_manager/tests/test_base_env_manager.py",
    "ding/envs/env_manager/tests/test_subprocess_env_manager.py",
    "ding/envs/env_manager/tests/test_shm.py",
    "ding/worker/collector/tests/test_sample_serial_collector.py",
    "ding/worker/collector/tests/test_episode_serial_collector.py",
)

CANNOT_APPLY: dict[str, str] = {}
"""Tests that are not run, each with its reason."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    arguments = parser.parse_args()
    found = importlib.util.find_spec("ding")
    if found is None or found.origin is None:
        print("there is no DI-engine here; benchmarks/peers/setup ding makes an environment that has it")
        return 1
    folder = Path(found.origin).parents[1]
    with tempfile.TemporaryDirectory(prefix="peer-tests-") as scratch:
        return peer_tests.run(
            folder, "ding_in_place", FILES, CANNOT_APPLY, ["-W", "ignore", *arguments.pytest], Path(scratch)
        )


if __name__ == "__main__":
    sys.exit(main())
