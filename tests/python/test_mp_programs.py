"""Programs that use shoal.multiprocessing, run as users run them: their main script, their variables, their end."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


def program(tmp_path: Path, text: str, *arguments: str, **variables: str) -> str:
    """Runs a script; returns what it printed."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(text))
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, script, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_script_without_a_guard_is_not_run_again(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import sys
        import shoal.multiprocessing as mp
        print("script", flush=True)
        class Point:
            def __init__(self, x): self.x = x
        def double(point, out): out.send(Point(2 * point.x))
        reader, writer = mp.Pipe()
        process = mp.get_context(sys.argv[1]).Process(target=double, args=(Point(4), writer))
        process.start()
        answer = reader.recv()
        process.join()
        print(answer.x, type(answer) is Point, process.exitcode)
        """,
        method,
    )
    assert printed.split("\n") == ["script", "8 True 0", ""]


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_name_of_main_that_did_not_travel_runs_the_script_once(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import pickle, sys
        import shoal.multiprocessing as mp
        class Point:
            pass
        def load(data): print(type(pickle.loads(data)).__name__, flush=True)
        if __name__ == "__main__":
            process = mp.get_context(sys.argv[1]).Process(target=print, args=("nothing",))
            process.start(); process.join()
            process = mp.get_context(sys.argv[1]).Process(target=eval, args=("__import__('pickle').loads(data)", {"data": pickle.dumps(Point())}))
            process.start(); process.join()
            print(process.exitcode)
        else:
            print("again", __name__, flush=True)
        """,
        method,
    )
    assert printed.split("\n") == ["nothing", "again __mp_main__", "0", ""]


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_script_without_a_guard_that_has_to_run_again_is_an_error_and_no_recursion(
    method: str, tmp_path: Path
) -> None:
    printed = program(
        tmp_path,
        """
        import pickle, sys
        import shoal.multiprocessing as mp
        class Point:
            pass
        sys.stderr = sys.stdout
        process = mp.get_context(sys.argv[1]).Process(
            target=eval, args=("__import__('pickle').loads(data)", {"data": pickle.dumps(Point())}))
        process.start(); process.join()
        print(process.exitcode)
        """,
        method,
    )
    assert printed.count("worker processes were about to be started while") == 1, printed
    assert printed.endswith("\n1\n")


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_launcher_variables_are_hidden_but_not_the_programs_own(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import os, sys
        import shoal.multiprocessing as mp
        os.environ["MASTER_ADDR"] = "localhost"; os.environ["WORLD_SIZE"] = "7"
        names = ("RANK", "OMPI_COMM_WORLD_RANK", "WORLD_SIZE", "MASTER_ADDR")
        def show(): print(*map(os.environ.get, names), flush=True)
        for depth in range(2):
            process = mp.get_context(sys.argv[1]).Process(target=show)
            process.start(); process.join()
        """,
        method,
        RANK="3",
        OMPI_COMM_WORLD_RANK="3",
        WORLD_SIZE="4",
    )
    assert printed == "None None 7 localhost\n" * 2


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_non_daemons_are_joined_at_exit_and_daemons_ended(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import sys, time
        import shoal.multiprocessing as mp
        def late(out):
            out.recv()
            print("joined", flush=True)
        ctx = mp.get_context(sys.argv[1])
        reader, writer = ctx.Pipe()
        ctx.Process(target=late, args=(reader,)).start()
        ctx.Process(target=time.sleep, args=(1000,), daemon=True).start()
        writer.send(1)
        """,
        method,
    )
    assert printed == "joined\n"


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_processes_end_after_a_killed_parent(method: str, tmp_path: Path) -> None:
    printed = program(
        tmp_path,
        """
        import os, signal, sys, time
        import shoal.multiprocessing as mp
        def parent_dies(out, method):
            child = mp.get_context(method).Process(target=time.sleep, args=(1000,))
            child.start()
            out.send(child.pid)
            time.sleep(1000)
        ctx = mp.get_context(sys.argv[1])
        reader, writer = ctx.Pipe()
        process = ctx.Process(target=parent_dies, args=(writer, sys.argv[1]))
        process.start()
        grandchild = os.pidfd_open(reader.recv())
        process.kill(); process.join()
        print(mp.connection.wait([grandchild], timeout=30) == [grandchild])
        """,
        method,
    )
    assert printed == "True\n"
