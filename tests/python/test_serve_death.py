"""Servers and clients of a model service that die, or are closed."""

from __future__ import annotations

import copy
import functools
import gc
import os
import pickle
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import served_models
import shoal
from promise import await_pids_ended, await_that
from served_models import AskingEnv, deadly, double, pid
from shoal.errors import ServiceDied


def watchers() -> int:
    """Threads of this process that look after servers, or that are servers."""
    return sum(thread.name.startswith("shoal-models") for thread in threading.enumerate())


def leaving(x: Any) -> Any:
    if (x == 13).any():
        sys.exit(3)
    return x


def latin(x: Any) -> Any:
    if (x == 13).any():
        os.write(2, b"caf\xe9\n")
        os._exit(3)
    return x


def gated(folder: Path) -> Any:
    """Is loaded once there is no file `shut`; before, `loading` has the process that waits."""
    while (folder / "shut").exists():
        if not (folder / "loading").exists():
            (folder / "new").write_text(str(os.getpid()))
            (folder / "new").rename(folder / "loading")
        time.sleep(0.001)
    return double


def breaking(folder: Path) -> Any:
    if (folder / "broken").exists():
        raise OSError("no weights")
    return double


def telling() -> Any:
    print("is loaded", flush=True)
    return double


class TestDeath:
    def test_a_killed_server_ends_every_call(self) -> None:
        with shoal.ModelService({"deadly": deadly}) as service:
            model = service.model("deadly")
            assert model(1) == 1
            with pytest.raises(ServiceDied):
                model(13)
            with pytest.raises(ServiceDied, match="signal 9"):
                while True:
                    model(1)

    def test_with_restart_another_server_takes_its_place(self) -> None:
        with shoal.ModelService({"deadly": deadly, "pid": pid}, on_fault="restart") as service:
            first = int(service.model("pid")(0))
            os.kill(first, signal.SIGKILL)
            second = int(service.model("pid")(0))
            assert second != first
            os.kill(second, signal.SIGKILL)
            assert service.model("deadly")(1) == 1

    def test_what_servers_print_has_their_numbers_also_of_those_that_take_a_place(
        self, capfd: pytest.CaptureFixture[str]
    ) -> None:
        seen: list[str] = []

        def printed() -> list[str]:
            seen.extend(line for line in capfd.readouterr().out.splitlines() if "is loaded" in line)
            return sorted(seen)

        both = ["[model server 0] is loaded", "[model server 1] is loaded"]
        with shoal.ModelService({"telling": telling}, instances=2, on_fault="restart") as service:
            await_that(lambda: printed() == both, "both servers to print")
            os.kill(service._workers[1].pid, signal.SIGKILL)
            await_that(lambda: printed() == [*both, both[1]], "another in the place of the second")

    def test_one_in_anothers_place_gets_no_more_clients_than_the_others(self) -> None:
        def asked_by_threads(service: shoal.ModelService, count: int) -> list[int]:
            found: list[int] = []
            for _ in range(count):
                thread = threading.Thread(target=lambda: found.append(int(service.model("pid")(0))))
                thread.start()
                thread.join()
            return found

        with shoal.ModelService({"pid": pid}, instances=2, on_fault="restart") as service:
            assert sorted(Counter(asked_by_threads(service, 10)).values()) == [5, 5]
            killed = service._workers[1]
            os.kill(killed.pid, signal.SIGKILL)
            await_that(lambda: service._workers[1] is not killed, "another in its place")
            await_that(lambda: len(set(asked_by_threads(service, 2))) == 2, "both to take clients")
            assert sorted(Counter(asked_by_threads(service, 10)).values()) == [5, 5]

    def test_a_row_that_kills_every_server_is_not_asked_for_ever(self) -> None:
        with shoal.ModelService({"deadly": deadly}, on_fault="restart") as service:
            with pytest.raises(ServiceDied):
                service.model("deadly")(13)
            assert service.model("deadly")(1) == 1
            for _ in range(3):
                with pytest.raises(ServiceDied):
                    service.model("deadly")(13)
            with pytest.raises(ServiceDied, match="signal 9"):
                service.model("deadly")(1)

    @pytest.mark.parametrize("instances", [1, 2])
    def test_a_thread_that_a_model_has_ended_ends_its_service(self, instances: int) -> None:
        with shoal.ModelService({"leaving": leaving}, context="thread", instances=instances) as service:
            model = service.model("leaving")
            for _ in range(instances):
                assert model(0) == 0
                with pytest.raises(ServiceDied):
                    model(13)
            with pytest.raises(ServiceDied, match="a thread of process [0-9]+, ended by SystemExit: 3"):
                model(0)

    def test_a_server_that_dies_while_it_loads_is_one_of_several(self, tmp_path: Path) -> None:
        make = functools.partial(gated, tmp_path)
        with shoal.ModelService({"gated": make, "pid": pid}, on_fault="restart") as service:
            first = int(service.model("pid")(0))
            (tmp_path / "shut").touch()
            os.kill(first, signal.SIGKILL)
            for _ in range(2):
                await_that((tmp_path / "loading").exists, "another server to load")
                loading = int((tmp_path / "loading").read_text())
                await_that(lambda loading=loading: service._workers[0].pid == loading, "its watcher to know it")
                (tmp_path / "loading").unlink()
                os.kill(loading, signal.SIGKILL)
            (tmp_path / "shut").unlink()
            assert service.model("gated")(2.0) == 4

    def test_a_service_whose_servers_cannot_load_ends_and_says_why(self, tmp_path: Path) -> None:
        make = functools.partial(breaking, tmp_path)
        with shoal.ModelService({"breaking": make, "pid": pid}, on_fault="restart") as service:
            server = int(service.model("pid")(0))
            (tmp_path / "broken").touch()
            os.kill(server, signal.SIGKILL)
            with pytest.raises(ServiceDied, match="signal 9(?s:.*)no weights"):
                service.model("pid")(0)

    def test_a_server_whose_last_words_are_no_utf8_ends_the_service_with_them(self) -> None:
        with shoal.ModelService({"latin": latin}) as service:
            model = service.model("latin")
            assert model(0) == 0
            with pytest.raises(ServiceDied):
                model(13)
            with pytest.raises(ServiceDied, match=r"caf\\xe9"):
                model(0)

    def test_close_ends_the_server(self) -> None:
        service = shoal.ModelService({"pid": pid})
        server = int(service.model("pid")(0))
        service.close()
        service.close()
        with pytest.raises(ProcessLookupError):
            os.kill(server, 0)
        with pytest.raises(ServiceDied, match="closed"):
            service.model("pid")(0)

    def test_services_that_were_closed_leave_no_descriptors(self) -> None:
        def opened_by_one_more() -> int:
            with shoal.ModelService({"pid": pid}) as service:
                service.model("pid")(0)
            return len(os.listdir("/proc/self/fd"))

        first = opened_by_one_more()
        assert [opened_by_one_more() for _ in range(3)] == [first] * 3

    @pytest.mark.parametrize("context", ["auto", "thread"])
    def test_one_that_nobody_has_any_more_ends(self, context: str) -> None:
        before = watchers()
        service = shoal.ModelService({"pid": pid}, context=context)
        model = copy.deepcopy(service.model("pid"))
        server = int(model(0))
        del service
        gc.collect()
        assert model(0) == server  # whoever has a model has the service
        reply = model.submit(0)
        del model
        gc.collect()
        assert reply.result() == server
        del reply
        gc.collect()
        if context == "auto":
            await_pids_ended([server])
        await_that(lambda: watchers() == before, "the end of the threads that watched it")

    def test_one_that_others_ask_while_nobody_has_it_tells_them(self) -> None:
        service = shoal.ModelService({"pid": pid})
        model = pickle.loads(pickle.dumps(service.model("pid")))  # as another process has it
        assert model(0) > 0
        del service
        gc.collect()
        with pytest.raises(ServiceDied):
            while True:
                model(0)

    @pytest.mark.parametrize(
        "options", [{"num_workers": 2}, {"num_workers": 2, "batch_size": 2}, {"backend": "serial"}]
    )
    def test_a_vector_environment_has_the_service_of_its_workers(self, options: dict[str, Any]) -> None:
        service = shoal.ModelService({"double": double, "pid": pid})
        server = int(service.model("pid")(0))
        envs = shoal.make_vec(AskingEnv, 2, worker=shoal.WorkerOptions(models=service), **options)
        del service
        gc.collect()
        assert envs.reset()[0].tolist() == [[0, 0]] * 2  # as the model answers
        envs.close()
        del envs
        gc.collect()
        await_pids_ended([server])

    def test_a_service_that_is_made_again_and_again_is_there_once(self) -> None:
        before = watchers()
        servers = []
        for _ in range(3):
            service = shoal.ModelService({"pid": pid})  # as a cell of a notebook does
            servers.append(int(service.model("pid")(0)))
        await_pids_ended(servers[:-1])
        assert service.model("pid")(0) == servers[-1]
        service.close()
        await_that(lambda: watchers() == before, "the end of the threads that watched it")

    @pytest.mark.own_process
    @pytest.mark.keeps_processes
    def test_a_service_that_nobody_closes_ends_with_its_program(self) -> None:
        service = shoal.ModelService({"pid": pid})
        assert service.model("pid")(0) > 0
        served_models.kept = service  # until the interpreter ends

    def test_a_killed_worker_leaves_the_others_their_model(self) -> None:
        with shoal.ModelService({"double": double, "pid": pid}) as service:
            options = shoal.WorkerOptions(models=service)
            with closing(shoal.make_vec(AskingEnv, 4, num_workers=4, worker=options, on_fault="restart")) as envs:
                envs.reset()
                os.kill(envs.call("worker_pid")[0], signal.SIGKILL)
                for _ in range(20):
                    envs.step(np.zeros(4, int))
                assert service.model("double")(4) == 8
