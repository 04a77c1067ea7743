"""What worker processes print and log, where it goes, and what of it a death takes along."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shoal.errors import WorkerDied
from shoal.multiprocessing.logging import LogRelay, get_logger, log_to_stderr
from shoal.multiprocessing.pool import Pool

LONG = 60.0

pytestmark = pytest.mark.own_process  # processes are forked

NOTICE = 27


class Kept(logging.Handler):
    """Keeps the records that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept() -> Iterator[Kept]:
    """The records that the logger "work" handles here, from WARNING on."""
    logger, handler = logging.getLogger("work"), Kept()
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def relay() -> Iterator[LogRelay]:
    with LogRelay() as relay:
        yield relay


def run(relay: LogRelay, target: Callable[..., Any], *args: Any) -> Any:
    """Runs `target` in a relayed process; all that it has written is here afterwards."""
    worker = relay.attach(multiprocessing.get_context("fork").Process(target=target, args=args, name="digger"))
    worker.start()
    worker.join(LONG)
    assert relay.drain(worker.pid, LONG)
    return worker


def print_a_lot() -> None:
    print("from Python")
    print("and to stderr", file=sys.stderr)
    os.write(1, b"from C\nunfinished")


def test_output_comes_by_lines_with_the_name_of_the_process(relay: LogRelay, capsys: Any) -> None:
    worker = run(relay, print_a_lot)
    out, err = capsys.readouterr()
    assert out.splitlines() == ["[digger] from Python", "[digger] from C", "[digger] unfinished"]
    assert err.splitlines() == ["[digger] and to stderr"]
    assert set(relay.tail(worker.pid)) == {"from Python", "and to stderr", "from C", "unfinished"}


def test_the_tag_can_be_left_out(capsys: Any) -> None:
    with LogRelay(tag=False) as relay:
        run(relay, print, "plain")
    assert capsys.readouterr().out == "plain\n"


def log_at_all_levels() -> None:
    logger = logging.getLogger("work")
    logger.debug("left out")
    logger.info("left out")
    logger.log(NOTICE, "left out, too")
    logger.warning("%d %s", 3, "words", extra={"place": "shaft", "lock": sys.stderr})
    logging.getLogger("work.deeper").error("further down")
    try:
        raise LookupError("no coal")
    except LookupError:
        logger.exception("failed")


def test_records_are_handled_by_the_parents_handlers_at_its_levels(relay: LogRelay, kept: Kept) -> None:
    worker = run(relay, log_at_all_levels)
    relay.close()
    assert [record.getMessage() for record in kept.records] == ["3 words", "further down", "failed"]
    first, _, last = kept.records
    assert (first.processName, first.process, first.name) == ("digger", worker.pid, "work")
    assert first.place == "shaft"  # type: ignore[attr-defined]
    assert isinstance(first.lock, str)  # type: ignore[attr-defined]
    assert "LookupError: no coal" in str(last.exc_text)


def log_notice(level: int) -> None:
    logging.getLogger("work").log(level, "custom")


def test_custom_levels_keep_their_names(relay: LogRelay, kept: Kept) -> None:
    logging.addLevelName(NOTICE, "NOTICE")
    logging.getLogger("work").setLevel(NOTICE)
    run(relay, log_notice, NOTICE)
    relay.close()
    assert [record.levelname for record in kept.records] == ["NOTICE"]


def log_long(length: int) -> None:
    logging.getLogger("work").error("x" * length)


def test_long_records_arrive_whole(relay: LogRelay, kept: Kept) -> None:
    run(relay, log_long, 5_000_000)
    relay.close()
    assert [len(record.getMessage()) for record in kept.records] == [5_000_000]


WARNING_PROGRAM = """
import logging, multiprocessing, warnings
from shoal.multiprocessing.logging import LogRelay
logging.basicConfig(format="%(name)s of %(processName)s: %(message)s")
logging.captureWarnings({captured})
with LogRelay() as relay:
    worker = relay.attach(multiprocessing.get_context("fork").Process(target=warnings.warn, args=("careful",), name="digger"))
    worker.start()
    worker.join()
    relay.drain(worker.pid)
"""


@pytest.mark.parametrize(
    ("captured", "expected"), [(False, "[digger] "), (True, "py.warnings of digger: ")], ids=["output", "records"]
)
def test_warnings_are_output_or_records_as_the_parent_has_it(captured: bool, expected: str) -> None:
    command = [sys.executable, "-c", WARNING_PROGRAM.format(captured=captured)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stderr.splitlines() if "UserWarning: careful" in line)
    assert line.startswith(expected)


def raise_after_logging() -> None:
    logging.getLogger("work").error("before the end")
    raise RuntimeError("the end")


def test_a_process_that_raises_loses_nothing(relay: LogRelay, kept: Kept, capsys: Any) -> None:
    assert run(relay, raise_after_logging).exitcode == 1
    relay.close()
    assert [record.getMessage() for record in kept.records] == ["before the end"]
    assert "[digger] RuntimeError: the end" in capsys.readouterr().err


def kill_after(count: int) -> None:
    for i in range(count):
        print(f"line {i}")
        logging.getLogger("work").error("record %d", i)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_loses_nothing_that_it_had_flushed(relay: LogRelay, kept: Kept, capsys: Any) -> None:
    assert run(relay, kill_after, 500).exitcode == -signal.SIGKILL
    relay.close()
    assert capsys.readouterr().out.splitlines() == [f"[digger] line {i}" for i in range(500)]
    assert [record.getMessage() for record in kept.records] == [f"record {i}" for i in range(500)]


def fill_pipes() -> None:
    for _ in range(50):
        print("x" * 100_000)
        print("y" * 100_000, file=sys.stderr)


def test_no_amount_of_output_stops_a_process(relay: LogRelay, capsys: Any) -> None:
    assert run(relay, fill_pipes).exitcode == 0
    out, err = capsys.readouterr()
    assert out.count("x") == err.count("y") == 5_000_000


def die_with_last_words() -> None:
    print("last words")
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_workers_of_a_pool_are_relayed_and_a_dead_one_has_its_last_lines(relay: LogRelay, kept: Kept) -> None:
    with Pool(2, context=multiprocessing.get_context("fork"), relay=relay) as pool:
        pool.map(log_notice, [logging.ERROR] * 20, chunksize=1)
        with pytest.raises(WorkerDied, match="last words") as died:
            pool.apply(die_with_last_words)
    assert died.value.log_tail[-1] == "last words"
    relay.close()
    assert len(kept.records) == 20
    assert all("PoolWorker" in str(record.processName) for record in kept.records)


def test_without_a_relay_output_passes_through_untagged(capfd: Any) -> None:
    worker = multiprocessing.get_context("fork").Process(target=os.write, args=(1, b"as it is\n"))
    worker.start()
    worker.join(LONG)
    assert capfd.readouterr().out == "as it is\n"


def test_log_to_stderr_is_multiprocessings(capsys: Any) -> None:
    logger = log_to_stderr(logging.WARNING)
    assert logger is get_logger() is multiprocessing.get_logger()
    logger.warning("heard")
    logger.info("unheard")
    assert "[WARNING/MainProcess] heard" in capsys.readouterr().err
    logger.handlers.clear()


def test_closing_twice_and_a_copy_in_a_child_do_nothing(relay: LogRelay) -> None:
    child = multiprocessing.get_context("fork").Process(target=relay.close)
    child.start()
    child.join(LONG)
    assert child.exitcode == 0
    run(relay, print)
    relay.close()
    relay.close()
