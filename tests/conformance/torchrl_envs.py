"""Runs TorchRL's own tests of batched environments and collectors with Shoal's classes in the place of its own.

    python tests/conformance/torchrl_envs.py                         # its tests of the installed version, from GitHub
    python tests/conformance/torchrl_envs.py --source CHECKOUT       # from a checkout, a .git directory, or a .tar.gz
    python tests/conformance/torchrl_envs.py -- -k parallel -x       # arguments of pytest

Its wheels have no tests, so they come from the repository at the tag of the version that is installed here; --source names another
copy. None of it is kept.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

import peer_tests

ARCHIVE = "https://github.com/pytorch/rl/archive/refs/tags/v{}.tar.gz"

FILES = ["test/envs/test_parallel.py", "test/test_collectors.py"]

_PARALLEL = "test/envs/test_parallel.py::"
_GENERIC = "test/test_collectors.py::TestCollectorGeneric::"

CANNOT_APPLY = {
    _PARALLEL
    + "TestParallel::test_metadata_from_workers_reports_construction_failure": "it wants the environments of other workers closed where "
    "one cannot be built; ours end with their processes",
    _PARALLEL
    + "TestLibThreading::test_auto_num_threads": "it needs more than five CPUs, with the peer's own class, too",
    "test/test_collectors.py::TestLibThreading::test_auto_num_threads": "likewise",
    _GENERIC
    + "test_backend_dispatch[process-torchrl.collectors._multi_base.MultiCollector]": "it looks for a call of the peer's own class",
    _GENERIC + "test_backend_dispatch[multiprocessing-torchrl.collectors._multi_base.MultiCollector]": "likewise",
    _GENERIC
    + "test_concurrent_collector_seed": "of AsyncCollector, which stays the peer's: trajectory ids differ there, too",
}
"""Tests that are not run, each with its reason."""


def fetch(source: str | None, folder: Path) -> None:
    """Puts the peer's tests under `folder`/test."""
    peer_tests.unpack_archive(ARCHIVE.format(version("torchrl")), source, folder, "test")


def run(folder: Path, pytest_arguments: list[str]) -> int:
    # Some of them run `python`, which must be this one.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return peer_tests.run(folder, "torchrl_in_place", FILES, CANNOT_APPLY, pytest_arguments)


if __name__ == "__main__":
    sys.exit(peer_tests.main(__doc__, "TorchRL", fetch, run))
