"""Models with a state for each environment."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

import shoal
from served_models import TotalEnv, pid
from shoal.errors import DeadlineExceeded, ModelError
from shoal.serve import client, server


def total(x: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums what it was given since the last reset."""
    after = state + x
    if (x < 0).any():
        raise ValueError("a negative row")
    return after.copy(), after


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

    def test_a_row_that_had_no_time_leaves_the_state_and_one_that_ended_the_connection_is_made_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Failing:
            def __init__(self, error: type[BaseException], alive: bool) -> None:
                self.error, self.alive = error, alive

            def submit(self, *_: Any, **__: Any) -> Any:
                raise self.error("now")

        with shoal.ModelService({"total": shoal.serve.Recurrent(total, np.zeros(()))}, context="thread") as service:
            model = service.model("total")
            assert model(1.0) == 1
            for error, alive, after in ((DeadlineExceeded, True, 3), (KeyboardInterrupt, False, 2)):
                with monkeypatch.context() as patch, pytest.raises(error):
                    patch.setattr(client, "_client", lambda *_, error=error, alive=alive: Failing(error, alive))
                    model(5.0)
                assert model(2.0) == after

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
