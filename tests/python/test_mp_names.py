"""The names of shoal.multiprocessing and of its contexts: all that `multiprocessing` and `torch.multiprocessing` have."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys

import pytest

import shoal.multiprocessing as mp


def test_every_public_name_of_cpython_and_torch_is_there() -> None:
    missing = [name for name in multiprocessing.__all__ if not hasattr(mp, name)]
    torchs = ["spawn", "start_processes", "ProcessContext", "SpawnContext", "ProcessRaisedException"]
    missing += [name for name in [*torchs, "ProcessExitedException", "ProcessException"] if not hasattr(mp, name)]
    assert not missing


def test_every_name_that_torch_has_in_view_is_there() -> None:
    torch_mp = pytest.importorskip("torch.multiprocessing")
    its_own_imports = {"multiprocessing", "sys", "torch", "ENV_VAR_PARALLEL_START"}
    names = {name for name in dir(torch_mp) if not name.startswith("_")} - its_own_imports
    names |= {"_set_thread_name", "_get_thread_name"}
    assert [name for name in sorted(names) if not hasattr(mp, name)] == []


def test_importing_it_is_light() -> None:
    heavy = "{'torch', 'numpy', 'cloudpickle', 'gymnasium'} & set(sys.modules)"
    code = f"import shoal.multiprocessing, sys; sys.exit(bool({heavy}))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_contexts_have_what_the_module_has_and_multiprocessing_and_torch() -> None:
    for method in (None, "forkserver", "spawn", "fork"):
        ctx = mp.get_context(method, threads=1)
        names = {name for name in dir(ctx) if not name.startswith("_")} - {"options"}
        assert names == set(mp.__all__)
        assert names >= {name for name in dir(multiprocessing.get_context(method)) if not name.startswith("_")}
        for name in names - set(vars(type(ctx).__mro__[1])) - {"reducer"}:
            assert getattr(ctx, name) is not None, name
        assert not hasattr(ctx, "no_such_thing")
    torch = pytest.importorskip("torch")
    functions = {name for name in torch.multiprocessing.__all__ if not name.startswith("_")}
    assert functions <= set(mp.__all__)
    assert set(multiprocessing.__all__) <= set(mp.__all__)


@pytest.mark.parametrize("module", ["managers", "shared_memory", "dummy", "util", "resource_tracker"])
def test_modules_that_are_cpythons_are_imported_by_a_name_of_this_package(module: str) -> None:
    code = (
        f"import shoal.multiprocessing.{module} as own; import multiprocessing.{module} as theirs; assert own is theirs"
    )
    code += f"; from shoal.multiprocessing import {module}; assert {module} is theirs"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
