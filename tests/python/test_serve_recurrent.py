"""Models with a state for each environment."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

import shoal
from served_models import TotalEnv, pid
from shoal.errors import DeadlineExceeded, ModelError, OverCapacity, ServiceDied
from shoal.serve import client, server


def total(x: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums what it was given since the last reset."""
    after = state + x
    if (x < 0).any():
        raise ValueError("a negative row")
    return after.copy(), after


def wait_for_signal(x: np.ndarray) -> np.ndarray:
    """Answers 0 at once, and nothing else before it is killed."""
    while x.any():
        time.sleep(60)
    return x


class TestRecurrent:
    @pytest.fixture(params=["service", "local"])
    def model(self, request: pytest.FixtureRequest) -> Iterator[Any]:
        models = {"total": shoal.serve.Recurrent(total, np.zeros(()))}
        if request.param == "local":
            shoal.serve.use(models)
            yield shoal.worker().model("total")
            shoal.serve.use(None)
        else:
            with shoal.ModelService(models, context="thread") as service:
                yield service.model("total")

    def test_the_state_goes_from_row_to_row_until_a_reset(self, model: Any) -> None:
        assert [model(1.0), model(2.0), model(3.0)] == [1, 3, 6]
        assert model(5.0, reset=True) == 5
        assert model(1.0) == 6

    def test_requests_in_flight_follow_each_other(self, model: Any) -> None:
        replies = [model.submit(1.0, reset=i == 3) for i in range(6)]
        assert model.gather(replies) == [1, 2, 3, 1, 2, 3]

    def test_a_row_that_fails_leaves_the_state(self, model: Any) -> None:
        assert model(1.0) == 1
        with pytest.raises(ModelError):
            model(-1.0)
        assert model(1.0) == 2

    def test_a_batch_says_nothing_of_whose_rows_they_are_and_is_refused(self, model: Any) -> None:
        assert [model(1.0) for _ in range(3)] == [1, 2, 3]
        for _ in range(2):
            for ask in (model.batch, functools.partial(model.submit, batched=True)):
                with pytest.raises(ValueError, match=r"'total' is Recurrent.*Ask for one row at a time, model\(row\)"):
                    ask(np.ones(2))
        with pytest.raises(TypeError, match=r"batch\(\) takes no reset.*model\(row, reset=True\)"):
            model.batch(np.ones(2), reset=True)
        assert model(1.0) == 4

    @pytest.mark.parametrize("way", ["service", "local"])
    def test_dicts_and_keywords_are_one_row_and_a_state_or_an_answer_that_is_not_by_rows_is_the_models_error(
        self, way: str
    ) -> None:
        def of_dicts(x: Any, state: Any) -> Any:
            return x["a"] + x["b"] + state, state + 1

        def of_keywords(state: Any, x: Any) -> Any:
            return x + state, state + 1

        def without_rows(x: Any, state: Any) -> Any:
            return x, np.float64(1)

        def too_few(x: Any, state: Any) -> Any:
            return (x + state if (x > 0).all() else x[:0]), state + 1

        named = {"dicts": of_dicts, "keywords": of_keywords, "without_rows": without_rows, "too_few": too_few}
        models = {name: shoal.serve.Recurrent(model, np.zeros(())) for name, model in named.items()}
        with contextlib.ExitStack() as stack:
            if way == "local":
                shoal.serve.use(models)
                stack.callback(shoal.serve.use, None)
                find = shoal.worker().model
            else:
                find = stack.enter_context(shoal.ModelService(models, context="thread")).model
            assert [find("dicts")({"a": 1.0, "b": 2.0}) for _ in range(2)] == [3, 4]
            assert [find("keywords")(x=1.0) for _ in range(2)] == [1, 2]
            with pytest.raises(ModelError, match=r"shape \(\): the first dimension of a state"):
                find("without_rows")(1.0)
            assert find("too_few")(1.0) == 1
            with pytest.raises(ModelError, match=r"shape \(0,\): the first dimension of an answer"):
                find("too_few")(-1.0)
            assert find("too_few")(1.0) == 2  # the row that failed has left the state

    def test_a_connection_is_made_again_only_where_the_old_one_has_ended(self) -> None:
        class Failing:
            def __init__(self, error: type[BaseException], alive: bool) -> None:
                self.error, self.alive = error, alive

            def submit(self, *_: Any, **__: Any) -> Any:
                raise self.error("now")

        with shoal.ModelService({"total": shoal.serve.Recurrent(total, np.zeros(()))}, context="thread") as service:
            model = service.model("total")
            assert model(1.0) == 1
            clients: dict[str, Any] = client._connections.clients
            whole = clients[service.address]
            for error, alive in ((DeadlineExceeded, True), (ServiceDied, True), (KeyboardInterrupt, False)):
                clients[service.address] = failing = Failing(error, alive)
                with pytest.raises(error):
                    model(5.0)
                assert (clients.get(service.address) is failing) == alive
            clients[service.address] = whole
            assert model(2.0) == 3

    @pytest.mark.parametrize("row", [np.zeros(7), 1.0], ids=["a new kind", "more rows than slots"])
    def test_a_row_that_had_no_time_leaves_the_state_and_what_is_in_flight(self, row: Any) -> None:
        gate, entered = threading.Event(), threading.Event()

        def slow(x: Any) -> Any:
            if (x < 0).any():
                entered.set()
                gate.wait(60)
            return x

        models = {"total": shoal.serve.Recurrent(total, np.zeros(())), "slow": slow}
        with shoal.ModelService(models, context="thread") as service:
            model, other = service.model("total"), service.model("slow")
            assert [model(1.0), model(1.0)] == [1, 2]
            other(0.0)
            running = other.submit(-1.0)
            assert entered.wait(60)
            replies = [other.submit(float(i)) for i in range(15)]
            with pytest.raises(DeadlineExceeded):
                other(row, timeout=0.01)
            with pytest.raises(OverCapacity, match="ask again later"):
                other.submit(1.0, wait=False)
            gate.set()
            assert other.gather([running, *replies]) == [-1.0, *range(15)]
            np.testing.assert_array_equal(other(row), row)
            assert model(1.0) == 3

    def test_a_late_reply_of_a_dead_server_leaves_the_states_of_the_next_one(self) -> None:
        models = {"pid": pid, "wait": wait_for_signal, "total": shoal.serve.Recurrent(total, np.zeros(()))}
        with shoal.ModelService(models, on_fault="restart") as service:
            model, waits = service.model("total"), service.model("wait")
            server = int(service.model("pid")(0))
            waits(0.0)
            replies = [waits.submit(1.0), waits.submit(1.0)]
            os.kill(server, signal.SIGKILL)
            with pytest.raises(ServiceDied):
                replies[0].result()
            assert [model(1.0), model(1.0)] == [1, 2]
            with pytest.raises(ServiceDied):
                replies[1].result()
            assert model(1.0) == 3

    def test_a_batch_is_refused_also_after_as_many_kinds_of_rows_as_there_may_be(self) -> None:
        def summed(x: Any, state: Any) -> Any:
            return x.sum(1) + state, state

        with shoal.ModelService({"m": shoal.serve.Recurrent(summed, np.zeros(()))}, context="thread") as service:
            model = service.model("m")
            for size in range(1, 65):
                model(np.zeros(size))
            with pytest.raises(ValueError, match="different shapes|kinds of rows"):
                model(np.zeros(65))
            with pytest.raises(ValueError, match="Ask for one row at a time"):
                model.batch(np.ones((3, 4)))

    def test_only_a_server_that_says_so_gets_batches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "MAY_BE_BATCHED", "something else is wrong")
        with shoal.ModelService({"pid": pid}, context="thread") as service:
            for _ in range(2):
                with pytest.raises(ValueError, match="something else is wrong"):
                    service.model("pid").batch(np.zeros(2))

    def test_a_reset_holds_also_where_its_row_cannot_be_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def unreadable(*_: Any) -> Any:
            monkeypatch.undo()
            raise ValueError("no such structure")

        models = {"total": shoal.serve.Recurrent(total, np.zeros(()))}
        with shoal.ModelService(models, context="thread") as service:
            model = service.model("total")
            assert model(1.0) == 1
            monkeypatch.setattr(server, "arguments_from", unreadable)
            with pytest.raises(ModelError, match="no such structure"):
                model(5.0, reset=True)
            assert model(2.0) == 2

    def test_every_environment_of_every_client_has_its_own(self) -> None:
        with shoal.ModelService({"total": shoal.serve.Recurrent(total, np.zeros(2)), "pid": pid}) as service:
            options = shoal.WorkerOptions(models=service)
            with closing(shoal.make_vec(TotalEnv, 4, num_workers=2, worker=options)) as envs:
                for _ in range(2):
                    obs, _ = envs.reset()
                    for step in range(1, 5):
                        np.testing.assert_array_equal(obs[:, 0], np.arange(1, 5) * step)
                        obs, *_ = envs.step(np.zeros(4, int))
