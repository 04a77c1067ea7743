"""Servers and clients of a model service that die, or are closed."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import numpy as np
import pytest

import served_models
import shoal
from served_models import AskingEnv, deadly, double, pid
from shoal.errors import ServiceDied


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
