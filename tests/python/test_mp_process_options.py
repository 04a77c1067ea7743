"""What one Process gets on top of what its context gives: threads, a seed, CPUs, a relay."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shoal.multiprocessing as mp

METHODS = ["forkserver", "spawn", pytest.param("fork", marks=pytest.mark.own_process)]


def ask(ctx: Any, question: Callable[[], Any], **options: Any) -> Any:
    """What `question` returns in a process with these options."""
    reader, writer = ctx.Pipe(duplex=False)
    with reader, writer:
        process = ctx.Process(target=lambda out: out.send(question()), args=(writer,), **options)
        process.start()
        writer.close()
        answer = reader.recv()
        process.join()
        return answer


def draw() -> tuple[float, float]:
    return random.random(), float(np.random.random())


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_makes_the_numbers_that_a_process_draws(method: str) -> None:
    ctx = mp.get_context(method)
    assert ask(ctx, draw, seed=3) == ask(ctx, draw, seed=3)
    assert ask(ctx, draw, seed=[3, 4]) != ask(ctx, draw, seed=3)


@pytest.mark.parametrize("method", METHODS)
def test_affinity_confines_a_process(method: str) -> None:
    ctx = mp.get_context(method)
    cpu = max(os.sched_getaffinity(0))
    assert ask(ctx, lambda: os.sched_getaffinity(0), affinity=[cpu]) == {cpu}
    assert ask(ctx, lambda: os.sched_getaffinity(0)) == os.sched_getaffinity(0)
    with pytest.raises(ValueError, match=r"Process\(affinity=…\): this process may use the CPUs"):
        ctx.Process(affinity={99_999})


@pytest.mark.parametrize("method", METHODS)
def test_threads_of_one_process(method: str) -> None:
    ctx = mp.get_context(method)
    assert ask(ctx, lambda: os.environ["OMP_NUM_THREADS"], threads=3) == "3"


@pytest.mark.parametrize("method", METHODS)
def test_a_relayed_process_prints_with_its_name(method: str, tmp_path: Any) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(f"""
            import os
            import shoal.multiprocessing as mp

            if __name__ == "__main__":
                process = mp.get_context({method!r}).Process(target=os.system, args=("echo from C",), name="Ada", relay=True)
                process.start()
                process.join()
                print(process.exitcode)
        """)
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0", "[Ada] from C"]


def test_options_hold_for_classes_with_a_run_of_their_own() -> None:
    class Drawing(mp.Process):
        def __init__(self, out: Any, **options: Any) -> None:
            super().__init__(**options)
            self.out = out

        def run(self) -> None:
            self.out.send(draw())

    def drawn() -> Any:
        reader, writer = mp.Pipe(duplex=False)
        process = Drawing(writer, seed=8)
        process.start()
        writer.close()
        numbers = reader.recv()
        process.join()
        return numbers

    assert drawn() == drawn()


@pytest.mark.own_process
def test_the_relay_of_those_who_bring_none_is_one() -> None:
    from shoal.multiprocessing.logging import default_relay

    assert default_relay() is default_relay()
    default_relay().close()
    assert not default_relay()._closing
