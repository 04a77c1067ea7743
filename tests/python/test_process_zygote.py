"""The zygote: what it imports, what it refuses, and what happens when it or its parent dies."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import shoal
from promise import await_pids_ended
from shoal.process import Launcher, close_launchers, launcher

LONG = 60.0


def run_script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of its own, as a user's script: `text` is its `__main__`."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    return subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=LONG, env=with_path())


def with_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def compile_library(folder: Path, name: str, source: str) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for a stand-in library")
    library = folder / name
    command = [compiler, "-x", "c", "-", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)
    return library


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """A stand-in for the CUDA driver, with two devices once it is initialised."""
    return compile_library(
        tmp_path,
        "libcuda.so.1",
        "static int devices;"
        "int cuInit(unsigned flags) { devices = 2; return 0; }"
        "int cuDeviceGetCount(int* count) { if (!devices) return 3; *count = devices; return 0; }",
    )


def module(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> str:
    (folder / f"{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(folder))
    return name


def test_the_preload_is_imported_once_and_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, monkeypatch, "once_only", "import os\npid = os.getpid()")

    def tell(context: Any) -> None:
        import once_only

        context.send(str(once_only.pid).encode())

    with Launcher("forkserver", preload=[name]) as own:
        for worker in own.start([(tell,)] * 3):
            assert worker.recv(LONG) == str(own.zygote_pid).encode()
    assert "once_only" not in sys.modules


def test_a_preload_that_fails_is_named_with_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, monkeypatch, "broken_module", "def load():\n    1 / 0\nload()")
    with Launcher("forkserver", preload=[name]) as own, pytest.raises(shoal.StartFailed) as caught:
        own.start([(print,)])
    text = str(caught.value)
    assert "'broken_module'" in text and "ZeroDivisionError" in text and "in load" in text


def test_a_preload_that_fails_in_a_spawned_worker_is_raised_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = module(tmp_path, monkeypatch, "broken_module", "raise RuntimeError('out of order')")
    with Launcher("spawn", preload=[name]) as own:
        worker = own.start([(print,)])[0]
    with pytest.raises(ImportError, match="'broken_module' failed with RuntimeError: out of order"):
        worker.recv(LONG)
    assert worker.join(LONG) and worker.exitcode == 1


def test_a_preload_that_exits_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, monkeypatch, "quitter", "import sys\nsys.exit(0)")
    with (
        Launcher("forkserver", preload=[name]) as own,
        pytest.raises(shoal.StartFailed, match="'quitter' failed with SystemExit"),
    ):
        own.start([(print,)])


def test_a_preload_that_starts_a_thread_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(
        tmp_path,
        monkeypatch,
        "threaded_module",
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
    )
    with (
        Launcher("forkserver", preload=["json", name]) as own,
        pytest.raises(shoal.StartFailed, match="'threaded_module' starts a thread"),
    ):
        own.start([(print,)])
    # Spawned workers may have threads.
    with Launcher("spawn", preload=[name]) as own:
        worker = own.start([(lambda context: None,)])[0]
    assert worker.join(LONG) and worker.exitcode == 0


def test_thread_pools_that_know_fork_are_no_hindrance() -> None:
    # With more than one thread, OpenBLAS starts its pool when NumPy is imported.
    def multiply(context: Any) -> None:
        import numpy as np

        context.send(str(float((np.ones((300, 300)) @ np.ones((300, 300)))[0, 0])).encode())

    with Launcher("forkserver", preload=["numpy"], threads=2) as own:
        assert own.start([(multiply,)])[0].recv(LONG) == b"300.0"


def test_a_preload_that_uses_a_gpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: Path) -> None:
    name = module(tmp_path, monkeypatch, "gpu_module", f"import ctypes\nctypes.CDLL({str(driver)!r}).cuInit(0)")
    with (
        Launcher("forkserver", preload=[name]) as own,
        pytest.raises(shoal.StartFailed, match="must not use a GPU, but the CUDA driver is initialised"),
    ):
        own.start([(print,)])
    with Launcher("forkserver", preload=[name], hide_gpu=False) as own:
        worker = own.start([(lambda context: None,)])[0]
        assert worker.join(LONG) and worker.exitcode == 0


def test_fork_is_refused_after_cuda_is_initialised_and_the_others_are_not(tmp_path: Path, driver: Path) -> None:
    done = run_script(
        tmp_path,
        f"""
        import ctypes, sys, shoal
        driver = ctypes.CDLL({str(driver)!r})
        assert not shoal.process.fork_hazards(), shoal.process.fork_hazards()
        driver.cuInit(0)
        try:
            shoal.process.launcher("fork")
        except shoal.ForkRefused as refused:
            assert "CUDA is initialised" in str(refused) and "forkserver" in str(refused), refused
            assert isinstance(refused, RuntimeError)
        else:
            raise SystemExit("fork was not refused")
        for context in ("auto", "forkserver", "spawn"):
            worker = shoal.process.launcher(context).start([(lambda context: sys.exit(5),)])[0]
            assert worker.join(60) and worker.exitcode == 5
        worker = shoal.process.launcher("fork", allow_unsafe_fork=True).start([(lambda context: sys.exit(6),)])[0]
        assert worker.join(60) and worker.exitcode == 6
        """,
    )
    assert done.returncode == 0, done.stderr


def test_fork_is_refused_while_threads_live(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        import sys, threading, shoal
        release = threading.Event()
        thread = threading.Thread(target=release.wait)
        thread.start()
        try:
            shoal.process.launcher("fork")
        except shoal.ForkRefused as refused:
            assert "1 other thread is alive" in str(refused), refused
        else:
            raise SystemExit("fork was not refused")
        release.set()
        thread.join()
        # Shoal's own threads, and the pool of NumPy's OpenBLAS, are no hindrance.
        zygotes = [shoal.process.launcher("forkserver", threads=n) for n in (1, 2)]
        import numpy
        numpy.ones((300, 300)) @ numpy.ones((300, 300))
        worker = shoal.process.launcher("fork").start([(lambda context: sys.exit(7),)])[0]
        assert worker.join(60) and worker.exitcode == 7
        """,
    )
    assert done.returncode == 0, done.stderr


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        import shoal

        class Thing:
            factor = 3
            def times(self, number):
                return self.factor * number

        def work(context, number):
            context.send(str(Thing().times(number)).encode())

        print("the script runs")
        for context in ("forkserver", "spawn"):
            workers = shoal.process.launcher(context).start([(work, i) for i in range(3)])
            print(context, [worker.recv(60) for worker in workers])
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "the script runs",
        "forkserver [b'0', b'3', b'6']",
        "spawn [b'0', b'3', b'6']",
    ]


def test_an_unpicklable_target_is_named_before_anything_starts() -> None:
    from threading import Lock

    lock = Lock()
    with pytest.raises(shoal.process.PicklingError, match=r"calls\[1\]\[0\]\.<closure>\.lock: cannot pickle"):
        Launcher("spawn").start([(print,), (lambda context: lock.acquire(),)])


def test_launchers_are_kept_for_their_options() -> None:
    close_launchers()
    first = launcher("forkserver", preload=["json"])
    assert launcher("forkserver", preload=["json"]) is first
    assert launcher("forkserver", preload=["json"], threads=2) is not first
    close_launchers()
    assert launcher("forkserver", preload=["json"]) is not first


def test_a_closed_launcher_ends_its_zygote() -> None:
    own = Launcher("forkserver")
    pid = own.zygote_pid
    assert pid is not None and Path(f"/proc/{pid}").exists()
    own.close()
    with pytest.raises(RuntimeError, match="closed"):
        own.start([(print,)])
    assert not Path(f"/proc/{pid}").exists()


def test_a_dead_zygote_takes_its_workers_and_is_replaced() -> None:
    with Launcher("forkserver") as own:
        worker = own.start([(lambda context: time.sleep(3600),)])[0]
        zygote = own.zygote_pid
        assert zygote is not None
        os.kill(zygote, signal.SIGKILL)
        assert worker.join(LONG)
        with pytest.raises(shoal.WorkerDied):
            worker.raise_died()
        assert own.start([(lambda context: None,)])[0].join(LONG)
        assert own.zygote_pid not in (None, zygote)


def test_a_forked_child_leaves_its_parents_workers_alone() -> None:
    def echo(context: Any) -> None:
        while (message := context.recv()) is not None:
            context.send(message)

    shared = launcher("forkserver", preload=["json"])
    worker = shared.start([(echo,)])[0]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with pytest.raises(RuntimeError, match="forked child"):
                shared.start([(echo,)])
            own = launcher("forkserver", preload=["json"])  # a fresh one
            child_worker = own.start([(echo,)])[0]
            child_worker.send(b"mine")
            if child_worker.recv(LONG) == b"mine":
                code = 0
            del worker, child_worker
            close_launchers()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    worker.send(b"still here")
    assert worker.recv(LONG) == b"still here"


@pytest.mark.parametrize("context", ["fork", "forkserver", "spawn"])
def test_a_killed_parent_takes_everything_with_it(context: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, shoal\n"
        f"launcher = shoal.process.launcher({context!r})\n"
        "workers = launcher.start([(lambda context: context.recv(),)] * 2)\n"
        "print(*[w.pid for w in workers], launcher.zygote_pid or '', flush=True)\n"
        "workers[0].recv()\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=with_path())
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == (3 if context == "forkserver" else 2)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    await_pids_ended(pids)


def test_a_parent_that_ends_without_closing_leaves_nothing(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        import shoal
        launcher = shoal.process.launcher("forkserver")
        workers = launcher.start([(lambda context: context.recv(),)] * 2)
        print(*[w.pid for w in workers], launcher.zygote_pid)
        """,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    await_pids_ended(map(int, done.stdout.split()))


def test_the_bootstrap_imports_nothing_heavy() -> None:
    code = "import sys, shoal.process._program; print('numpy' in sys.modules, 'gymnasium' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=with_path())
    assert done.stdout == "False False\n", done.stderr


def test_the_zygote_of_make_vec_starts_beside_the_import_of_gymnasium() -> None:
    program = """
import sys
import shoal
from shoal.process import _launcher
make_vec = shoal.make_vec
assert "gymnasium" not in sys.modules and not _launcher._ahead
try:
    make_vec("NoSuchEnv-v0", 4, num_workers=2)
except Exception as error:
    assert type(error).__name__ == "NameNotFound", error
early = [launcher.zygote_pid for launcher in _launcher._ahead.values()]
envs = make_vec("CartPole-v1", 4, num_workers=2)
kept = [launcher.zygote_pid for launcher in _launcher._launchers.values()]
assert len(early) == 1 and early == kept, (early, kept)
assert not _launcher._ahead
envs.reset(seed=0)
envs.close()
print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "done\n", done.stderr


def test_native_and_serial_environments_start_no_zygote() -> None:
    program = """
import shoal
from shoal.process import _launcher
shoal.make_vec("shoal/CartPole-v1", 4, num_workers=2).close()
shoal.make_vec("CartPole-v1").close()
shoal.make_vec("CartPole-v1", 4, backend="serial").close()
assert not _launcher._ahead and not _launcher._launchers
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("variables", [{"A=B": "c"}, {"": "c"}, {"A": "b\0c"}])
def test_variables_that_an_environment_cannot_hold_are_refused(variables: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="env takes"):
        Launcher("forkserver", env=variables)
