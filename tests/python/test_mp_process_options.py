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


WRONG: list[tuple[str, Any, type[Exception]]] = [
    ("threads", 0, ValueError),
    ("threads", -1, ValueError),
    ("threads", 2**31, ValueError),
    ("threads", "2", TypeError),
    ("threads", 2.5, TypeError),
    ("threads", True, TypeError),
    ("seed", -1, ValueError),
    ("seed", [3, -1], ValueError),
    ("seed", 1.5, TypeError),
    ("seed", "abc", TypeError),
    ("seed", [1.5], TypeError),
    ("affinity", 0, TypeError),
    ("affinity", [], ValueError),
    ("affinity", ["a"], TypeError),
    ("affinity", [[]], (TypeError, ValueError)),
    ("relay", 3, TypeError),
    ("relay", 0, TypeError),
]


@pytest.mark.parametrize("kind", [mp.Process, mp.Pool])
@pytest.mark.parametrize(("name", "value", "error"), WRONG)
def test_an_option_that_means_nothing_is_one_clear_error(
    kind: Callable[..., Any], name: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=rf"{'Pool' if kind == mp.Pool else 'Process'}\({name}=…\)"):
        kind(**{name: value})


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"threads": 0}, r"get_context\(threads=…\) takes 1 to"),
        ({"threads": "2"}, r"get_context\(threads=…\) takes an int"),
        ({"env": {"A=B": "5"}}, r"get_context\(env=…\) takes names of variables.*got 'A=B'"),
        ({"env": {"": "5"}}, r"get_context\(env=…\) takes names of variables.*got ''"),
        ({"env": {"A": "1\0 2"}}, r"get_context\(env=…\) takes values without NUL, got '1\\x00 2' for 'A'"),
    ],
)
def test_so_is_one_of_a_context(option: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        mp.get_context(**option)


def test_numbers_of_numpy_are_numbers() -> None:
    cpu = np.int64(max(os.sched_getaffinity(0)))
    ctx = mp.get_context("forkserver")
    assert ask(ctx, draw, seed=np.int64(3)) == ask(ctx, draw, seed=3)
    assert ask(ctx, draw, seed=np.array([3, 4])) == ask(ctx, draw, seed=[3, 4])
    assert ask(ctx, lambda: os.environ["OMP_NUM_THREADS"], threads=np.int64(3), affinity=np.array([cpu])) == "3"
    with ctx.Pool(1, seed=np.int64(3), threads=np.int64(3), affinity=[{cpu}]) as pool:
        assert pool.apply(os.getenv, ("OMP_NUM_THREADS",)) == "3"
    pool.join()


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
