"""What is seen of model services from outside: `shoal stat`, also of those that are no more, and charts."""

from __future__ import annotations

import copy
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

import shoal
from promise import await_that
from served_models import double, pid
from shoal.cli.stat_tables import tables
from shoal.serve import observing
from shoal.stat import VERSION, snapshot
from stat_watching import BOUND, Stat


def seen_of(service: shoal.ModelService) -> dict[str, Any]:
    (seen,) = [each for each in snapshot()["services"] if each["address"] == service.address]
    return seen


class TestStat:
    def test_it_shows_a_service(self, stat: Stat) -> None:
        with shoal.ModelService({"double": double}, context="thread") as service:
            service.model("double")(1.0)
            status, shown, _ = stat(service.address)
            assert status == 0
            assert re.search(rf"made by process {os.getpid()}, 1 server, \d+ MiB\n", shown)
            assert re.search(r"\n  double  1 clients, 1 rows .* latency p50 .* weights 1", shown)
            assert service.address in stat()[1]
            seen = seen_of(service)
            assert seen["models"]["double"]["rows"] == seen["running"] == 1
            assert (seen["state"], seen["servers"], seen["restarts"]) == ("running", [os.getpid()], 0)
            assert seen["memory_bytes"] > 2**20 and seen["command"]

    def test_servers_are_named_and_counted(self, stat: Stat) -> None:
        with shoal.ModelService({"pid": pid}, instances=2, on_fault="restart") as service:
            first = service.model("pid")(1.0)
            assert first in seen_of(service)["servers"]
            os.kill(int(first), signal.SIGKILL)
            await_that(lambda: seen_of(service)["restarts"] == 1 and seen_of(service)["running"] == 2, "another server")
            seen = seen_of(service)
            assert len(seen["servers"]) == 2 and first not in seen["servers"]
            assert re.search(rf"{service.address} .* 2 servers, 1 restart, [1-9]\d* MiB", stat(service.address)[1])
            assert json.loads(stat(service.address, "--json")[1])["services"][0].keys() == seen.keys()

    def test_the_json_of_one_has_what_that_of_all_has(self, stat: Stat) -> None:
        with shoal.ModelService({"abs": np.abs}, context="thread") as service:
            before = time.time()
            seen = json.loads(stat(service.address, "--json")[1])
        assert (seen["version"], [each["address"] for each in seen["services"]]) == (VERSION, [service.address])
        assert before <= seen["time"] <= time.time()

    def test_rates_are_of_the_interval(self, stat: Stat) -> None:
        with shoal.ModelService({"abs": np.abs, "same": np.array}, context="thread") as service:
            before = json.loads(stat(service.address, "--json")[1])
        seen = copy.deepcopy(before)
        seen["time"] += 2
        seen["services"][0]["seconds"] = 1000.0
        seen["services"][0]["models"]["abs"]["rows"] += 5000
        assert "abs  0 clients, 5,000 rows (5/s)" in tables(seen)
        of_interval = tables(seen, before)
        assert "5,000 rows (2,500/s)" in of_interval and "0 rows (0/s)" in of_interval

    @pytest.mark.parametrize("address", ["some-run", "shoal-serve-", "shoal-serve-x-1", "x" * 300])
    def test_what_is_no_address(self, stat: Stat, address: str) -> None:
        status, shown, error = stat(address)
        assert (status, shown) == (1, "")
        assert_one_line(error, "is no address of a model service")
        assert repr(address) in error

    def test_a_service_that_is_closed(self, stat: Stat) -> None:
        with shoal.ModelService({"double": double}, context="thread") as service:
            address = service.address
        del service
        status, shown, error = stat(address)
        assert (status, shown) == (1, "")
        assert_one_line(error, f"is closed; process {os.getpid()}, which made it, still runs")

    def test_a_service_whose_maker_was_killed(self, stat: Stat) -> None:
        program = (
            f"import sys; sys.path[:0] = {[path for path in sys.path if path]!r}\n"
            "import shoal, served_models\n"
            "service = shoal.ModelService({'pid': served_models.pid})\n"
            "print(service.address, int(service.model('pid')(0)), flush=True)\n"
            "sys.stdin.read()\n"
        )
        maker = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert maker.stdout is not None
        address, server = maker.stdout.readline().split()
        ended = os.pidfd_open(int(server))
        maker.kill()
        maker.communicate()
        assert select.select([ended], [], [], BOUND)[0], "a server outlived the maker of its service"
        os.close(ended)
        status, shown, error = stat(address)
        assert (status, shown) == (1, "")
        assert_one_line(error, f"has ended with process {maker.pid}, which made it")
        assert address not in stat()[1]

    def test_a_service_whose_server_was_killed(self, stat: Stat) -> None:
        with shoal.ModelService({"pid": pid}) as service:
            os.kill(int(service.model("pid")(0)), signal.SIGKILL)
            deadline = time.monotonic() + BOUND
            while "no server runs now: these are the last counts" not in (seen := stat(service.address))[1]:
                assert seen[0] == 0 and time.monotonic() < deadline
            assert "\n  pid  0 clients, 1 rows" in seen[1]

    def test_one_that_does_not_answer(self, stat: Stat, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(observing, "_PATIENCE", 0.05)
        address = f"shoal-serve-{os.getpid()}-{0:016x}"
        with listening(address), listening(address + ".link"):
            status, shown, error = stat(address)
            assert (status, shown) == (1, "")
            assert_one_line(error, f"does not answer; process {os.getpid()} made it")
            assert address not in stat()[1]


def listening(address: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.bind("\0" + address)
    made.listen()
    return made


def assert_one_line(error: str, what: str) -> None:
    assert what in error
    assert error.count("\n") == 1


def test_scalars_for_tensorboard() -> None:
    written = {}

    class Writer:
        def add_scalar(self, name: str, value: float, step: int) -> None:
            written[name] = (value, step)

    with shoal.ModelService({"double": double}, context="thread") as service:
        service.model("double")(1.0)
        service.write_scalars(Writer(), 7)
    assert written["serve/double/rows"][0] >= 1
    assert written["serve/double/latency_p99_ms"][0] > 0
    assert {step for _, step in written.values()} == {7}
