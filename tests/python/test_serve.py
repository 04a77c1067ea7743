"""The model service in Python: what is asked and answered, how it fails, and that environments reach it everywhere."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import served_models
import shoal
from served_models import AskingEnv, TotalEnv, batch_size, deadly, double, linear, make_double, picky, pid
from shoal.errors import Cancelled, DeadlineExceeded, ModelError, OverCapacity, ServiceDied
from shoal.serve.client import ServiceModel

MODELS = {"double": double, "pid": pid, "picky": picky, "batch_size": batch_size}


@pytest.fixture(scope="module", params=["auto", "thread"])
def service(request: pytest.FixtureRequest) -> Iterator[shoal.ModelService]:
    with shoal.ModelService(MODELS, max_batch=8, context=request.param) as service:
        yield service


pytestmark = pytest.mark.keeps_processes


class TestAnswers:
    def test_a_row_in_a_row_out(self, service: shoal.ModelService) -> None:
        answer = service.model("double")(np.arange(6.0).reshape(2, 3))
        np.testing.assert_array_equal(answer, 2 * np.arange(6.0).reshape(2, 3))
        assert answer.dtype == np.float64

    def test_a_batch_larger_than_max_batch(self, service: shoal.ModelService) -> None:
        rows = np.arange(40, dtype=np.int32).reshape(20, 2)
        np.testing.assert_array_equal(service.model("double").batch(rows), rows * 2)

    def test_rows_of_other_shapes_and_dtypes(self, service: shoal.ModelService) -> None:
        model = service.model("double")
        for row in (np.float32(2), np.zeros(0), np.arange(5, dtype=np.uint8), [1, 2], 3):
            answer = model(row)
            np.testing.assert_array_equal(answer, np.asarray(row) * 2)
            assert answer.dtype == np.asarray(row).dtype

    def test_arrays_that_are_not_contiguous(self, service: shoal.ModelService) -> None:
        rows = np.arange(12.0).reshape(3, 4)
        np.testing.assert_array_equal(service.model("double")(rows.T), 2 * rows.T)

    def test_submit_and_gather(self, service: shoal.ModelService) -> None:
        model = service.model("double")
        row = np.zeros(2)
        replies = []
        for i in range(10):
            row[:] = i  # may be written to after submit()
            replies.append(model.submit(row))
        for i, answer in enumerate(model.gather(replies)):
            np.testing.assert_array_equal(answer, [2 * i, 2 * i])
        assert replies[0].version == model.version == 1

    def test_a_result_is_taken_once(self, service: shoal.ModelService) -> None:
        reply = service.model("double").submit(1.0)
        assert reply.result() == 2.0
        with pytest.raises(Cancelled):
            reply.result()

    def test_a_cancelled_request_has_no_result(self, service: shoal.ModelService) -> None:
        reply = service.model("double").submit(1.0)
        reply.cancel()
        with pytest.raises(Cancelled):
            reply.result()

    def test_threads_have_connections_of_their_own(self, service: shoal.ModelService) -> None:
        model = service.model("double")
        wrong: list[Any] = []

        def ask(first: int) -> None:
            wrong.extend(i for i in range(first, first + 100) if model(float(i)) != 2 * i)

        threads = [threading.Thread(target=ask, args=(1000 * t,)) for t in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_a_handle_can_be_pickled(self, service: shoal.ModelService) -> None:
        model = pickle.loads(pickle.dumps(service.model("double")))
        assert isinstance(model, ServiceModel)
        assert model(2) == 4

    def test_statistics(self, service: shoal.ModelService) -> None:
        before = service.stats()["double"]
        service.model("double").batch(np.zeros((16, 3)))
        after = service.stats()["double"]
        assert after["rows"] - before["rows"] == 16
        assert after["latency"]["count"] == after["rows"]
        assert 0 < after["latency"]["p50"] <= after["latency"]["p99"] <= after["latency"]["max"]
        assert after["padding_waste"] == 0


class TestObserving:
    def test_shoal_stat_shows_it(self, service: shoal.ModelService, capsys: pytest.CaptureFixture[str]) -> None:
        from shoal.cli.main import run

        service.model("double")(1.0)
        assert run(["stat", service.address]) == 0
        shown = capsys.readouterr().out
        assert f"made by process {os.getpid()}, 1 server" in shown
        assert re.search(r"\n  double  \d+ clients, \d+ rows .* latency p50 .* weights 1", shown)
        assert run(["stat", service.address, "--json"]) == 0
        (seen,) = json.loads(capsys.readouterr().out)["services"]
        assert seen["models"]["double"]["rows"] >= 1

    def test_scalars_for_tensorboard(self, service: shoal.ModelService) -> None:
        written = {}

        class Writer:
            def add_scalar(self, name: str, value: float, step: int) -> None:
                written[name] = (value, step)

        service.model("double")(1.0)
        service.write_scalars(Writer(), 7)
        assert written["serve/double/rows"][0] >= 1
        assert written["serve/double/latency_p99_ms"][0] > 0
        assert {step for _, step in written.values()} == {7}


class TestStructures:
    def test_tuples_and_dicts_in_and_out(self) -> None:
        def both(pair: Any, scale: Any, named: Any) -> Any:
            left, right = pair
            return {"sum": (left + right) * scale[:, None], "parts": (named["a"], [left, right])}

        left, right = np.arange(3.0), np.ones(3)
        with shoal.ModelService({"both": both}, context="thread") as service:
            answer = service.model("both")(
                (left, right), scale=np.float64(2), named={"a": np.arange(4, dtype=np.int16)}
            )
        np.testing.assert_array_equal(answer["sum"], [2.0, 4.0, 6.0])
        assert list(answer) == ["sum", "parts"]
        a, parts = answer["parts"]
        np.testing.assert_array_equal(a, np.arange(4))
        assert isinstance(parts, list)
        np.testing.assert_array_equal(parts[0], left)


class TestFailures:
    def test_a_poisoned_row_fails_alone(self, service: shoal.ModelService) -> None:
        model = service.model("picky")
        replies = [model.submit(float(x)) for x in (1, -1, 2)]
        assert replies[0].result() == 2
        assert replies[2].result() == 3
        with pytest.raises(ModelError, match="ValueError: a negative row") as caught:
            replies[1].result()
        assert "served_models.py" in caught.value.traceback

    def test_a_model_that_fails_on_the_first_row(self, service: shoal.ModelService) -> None:
        with pytest.raises(ModelError, match="ValueError: a negative row") as caught:
            service.model("picky")(np.full(7, -1.0))
        assert "in picky" in caught.value.traceback
        assert service.model("picky")(np.zeros(7)).sum() == 7

    def test_an_unknown_model_is_named(self, service: shoal.ModelService) -> None:
        with pytest.raises(ValueError, match="no model 'other'; it has double, pid"):
            service.model("other")

    def test_rows_of_objects_are_refused(self, service: shoal.ModelService) -> None:
        with pytest.raises(ValueError, match="object"):
            service.model("double")(np.array([object()]))

    def test_the_deadline_of_a_request(self) -> None:
        gate, entered = threading.Event(), threading.Event()

        def slow(x: np.ndarray) -> np.ndarray:
            if (x == 1).any():
                entered.set()
                gate.wait(60)
            return x

        with shoal.ModelService({"slow": slow}, context="thread", max_batch=2) as service:
            model = service.model("slow")
            model(0)
            running = model.submit(1)
            assert entered.wait(60)
            with pytest.raises(DeadlineExceeded) as caught:
                model(2, timeout=0.01)
            assert isinstance(caught.value, TimeoutError)
            waiting = [model.submit(3)]  # beside the one whose deadline has passed
            with pytest.raises(OverCapacity):
                model.submit(4, wait=False)
            gate.set()
            assert running.result() == 1
            assert waiting[0].result() == 3
            assert service.stats()["slow"]["expired_rows"] + service.stats()["slow"]["dropped_rows"] == 1

    def test_a_model_whose_answer_changes_its_shape(self) -> None:
        shapes = iter([(1, 2), (1, 3)])
        with shoal.ModelService({"odd": lambda x: np.zeros(next(shapes))}, context="thread") as service:
            with pytest.raises(
                ModelError, match=r"float64\[3\] a row, where its first answer to such rows was float64\[2\]"
            ):
                service.model("odd")(0)

    def test_an_answer_without_rows(self) -> None:
        with shoal.ModelService({"sum": lambda x: x.sum()}, context="thread") as service:
            with pytest.raises(ModelError, match="the first dimension of an answer is the rows"):
                service.model("sum")(np.zeros(3))

    def test_a_model_that_cannot_be_loaded(self) -> None:
        def broken() -> Any:
            raise OSError("no weights")

        with pytest.raises(OSError, match="no weights"):
            shoal.ModelService({"broken": broken})

    def test_arguments_are_checked_before_anything_starts(self) -> None:
        with pytest.raises(TypeError, match="'a' is to be a torch.nn.Module"):
            shoal.ModelService({"a": 3})
        with pytest.raises(FileNotFoundError, match=r"none\.pt"):
            shoal.ModelService({"a": "none.pt"})
        for wrong in ({"max_batch": 0}, {"max_delay": -1}, {"instances": True}, {"context": "x"}, {"on_fault": "drop"}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                shoal.ModelService({"a": double}, **wrong)
        with pytest.raises(ValueError, match="buckets"):
            shoal.ModelService({"a": double}, max_batch=4, buckets=[8])
        with pytest.raises(TypeError, match="models"):
            shoal.make_vec("CartPole-v1", 2, worker=shoal.WorkerOptions(models=3), backend="process")


class TestBatches:
    def test_buckets_pad_with_the_first_row(self) -> None:
        with shoal.ModelService(
            {"n": batch_size, "picky": picky}, max_batch=8, buckets=[4], context="thread"
        ) as service:
            assert service.model("n")(1.0) == 4
            np.testing.assert_array_equal(service.model("picky").batch(np.arange(3.0)), [1, 2, 3])
            stats = service.stats()["n"]
            assert stats["padded_rows"] == 3
            assert stats["padding_waste"] == 0.75

    def test_max_delay_waits_for_the_quorum(self) -> None:
        with shoal.ModelService({"n": batch_size}, max_delay=3600.0, context="thread") as service:
            assert service.model("n")(1.0) == 1  # all clients, one, wait

    def test_several_instances_share_the_clients(self) -> None:
        with shoal.ModelService({"pid": pid}, instances=2) as service:
            pids = set()

            def ask() -> None:
                pids.add(int(service.model("pid")(0)))

            for _ in range(2):
                thread = threading.Thread(target=ask)
                thread.start()
                thread.join()
            assert len(pids) == 2


class TestTorch:
    def test_modules_are_called_with_tensors(self) -> None:
        torch = pytest.importorskip("torch")
        with shoal.ModelService({"made": linear, "given": torch.nn.Flatten()}) as service:
            answer = service.model("made")(np.arange(3, dtype=np.float32))
            np.testing.assert_array_equal(answer, [3, 3])
            assert answer.dtype == np.float32
            np.testing.assert_array_equal(service.model("given")(np.zeros((2, 3), np.uint8)), np.zeros(6))

    def test_torchscript_files(self, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch")
        path = tmp_path / "model.pt"
        with pytest.deprecated_call():
            torch.jit.trace(linear(), torch.zeros(1, 3)).save(str(path))
        with shoal.ModelService({"file": path}) as service:
            np.testing.assert_array_equal(service.model("file")(np.ones(3, np.float32)), [3, 3])


class Filled:
    """Answers with its two weights; updates that would be torn show as two numbers."""

    def __init__(self) -> None:
        self.weights = {"a": np.ones(500), "b": np.ones(500)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["a"].shape != (500,):
            raise ValueError("500 numbers are needed")
        for name, value in state.items():
            self.weights[name] = value

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return np.repeat([[*self.weights["a"][:5], *self.weights["b"][:5]]], len(x), axis=0)


def filled(version: int) -> dict[str, np.ndarray]:
    value = float(version)
    return {"a": np.full(500, value), "b": np.full(500, value)}


class TestWeights:
    def test_an_update_is_seen_by_the_next_request(self) -> None:
        with shoal.ModelService({"filled": Filled}, instances=2) as service:
            model = service.model("filled")
            assert set(model(0)) == {1.0}
            for version in range(2, 30):
                assert service.update("filled", filled(version)) == version
                assert set(model(0)) == {float(version)}
                assert model.version == version
            assert service.stats()["filled"]["version"] == 29
            assert service.update("filled", filled(50), version=50, mode="latest") == 50
            while model.version != 50:
                model(0)

    def test_an_update_may_follow_the_start_at_once(self) -> None:
        for _ in range(30):
            with shoal.ModelService({"filled": Filled}, context="thread") as service:
                assert service.update("filled", filled(2)) == 2

    def test_no_reply_mixes_two_versions(self) -> None:
        with shoal.ModelService({"filled": Filled}, max_batch=4) as service:
            wrong: list[Any] = []
            stop = threading.Event()

            def ask() -> None:
                model = service.model("filled")
                while not stop.is_set():
                    replies = [model.submit(0) for _ in range(3)]
                    for reply in replies:
                        if set(reply.result()) != {float(reply.version)}:
                            wrong.append(reply.version)

            threads = [threading.Thread(target=ask) for _ in range(3)]
            for thread in threads:
                thread.start()
            for version in range(2, 200):
                service.update("filled", filled(version), mode="latest")
            stop.set()
            for thread in threads:
                thread.join()
            assert not wrong

    def test_weights_that_do_not_fit_change_nothing(self) -> None:
        torch = pytest.importorskip("torch")
        with shoal.ModelService({"linear": linear, "double": double}, context="thread") as service:
            model = service.model("linear")
            row = np.ones(3, np.float32)
            good = linear().state_dict()
            for wrong, message in (
                ({"weight": good["weight"]}, "lack 'bias'"),
                ({**good, "more": good["bias"]}, "have 'more'"),
                ({**good, "bias": torch.zeros(5)}, r"'bias' of the new weights has the shape \(5,\), not \(2,\)"),
            ):
                with pytest.raises(ValueError, match=message):
                    service.update("linear", wrong)
            assert model(row)[0] == 3
            assert model.version == 1
            assert service.update("linear", {name: value * 2 for name, value in good.items()}) == 2
            assert model(row)[0] == 6
            with pytest.raises(ValueError, match="has no load_state_dict"):
                service.update("double", {})
            with pytest.raises(TypeError, match="a state_dict"):
                service.update("linear", [1])
            with pytest.raises(ValueError, match="versions grow"):
                service.update("linear", good, version=2)

    def test_a_pinned_version_stays(self) -> None:
        pytest.importorskip("torch")
        with shoal.ModelService({"linear": linear}, context="thread", keep_versions=2) as service:
            row = np.ones(3, np.float32)
            good = linear().state_dict()
            first = service.model("linear").pin(1)
            assert first(row)[0] == 3
            for version in range(2, 7):
                service.update("linear", {name: value * version for name, value in good.items()})
                assert first(row)[0] == 3
                assert first.version == 1
                assert service.model("linear")(row)[0] == 3 * version
            assert service.model("linear").pin(5)(row)[0] == 15
            with pytest.raises(ValueError, match="version 2 are not kept"):
                service.model("linear").pin(2)(row)

    def test_a_restarted_server_has_the_latest_weights(self) -> None:
        with shoal.ModelService({"filled": Filled, "pid": pid}, on_fault="restart") as service:
            service.update("filled", filled(7), version=7)
            os.kill(int(service.model("pid")(0)), signal.SIGKILL)
            model = service.model("filled")
            assert set(model(0)) == {7.0}
            assert model.version == 7


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

    def test_every_environment_of_every_client_has_its_own(self) -> None:
        with shoal.ModelService({"total": shoal.serve.Recurrent(total, np.zeros(2)), "pid": pid}) as service:
            options = shoal.WorkerOptions(models=service)
            with closing(shoal.make_vec(TotalEnv, 4, num_workers=2, worker=options)) as envs:
                for _ in range(2):
                    obs, _ = envs.reset()
                    for step in range(1, 5):
                        np.testing.assert_array_equal(obs[:, 0], np.arange(1, 5) * step)
                        obs, *_ = envs.step(np.zeros(4, int))


class TestEnvironments:
    @pytest.mark.parametrize("context", ["auto", "spawn"])
    def test_workers_ask_the_service(self, context: str) -> None:
        with shoal.ModelService({"double": make_double, "pid": pid}) as service:
            options = shoal.WorkerOptions(models=service)
            with closing(shoal.make_vec(AskingEnv, 4, num_workers=2, context=context, worker=options)) as envs:
                _check_steps(envs, int(service.model("pid")(0)))

    @pytest.mark.own_process
    def test_forked_workers_ask_the_service(self) -> None:
        with shoal.ModelService({"double": make_double, "pid": pid}) as service:
            options = shoal.WorkerOptions(models=service)
            with closing(shoal.make_vec(AskingEnv, 4, num_workers=2, context="fork", worker=options)) as envs:
                _check_steps(envs, int(service.model("pid")(0)))

    def test_environments_of_this_process_ask_it_too(self) -> None:
        with shoal.ModelService({"double": double, "pid": pid}) as service:
            options = shoal.WorkerOptions(models=service)
            with closing(shoal.make_vec(AskingEnv, 2, backend="serial", worker=options)) as envs:
                _check_steps(envs, int(service.model("pid")(0)))

    def test_asynchronous_environments(self) -> None:
        with shoal.ModelService({"double": double, "pid": pid}) as service:
            options = shoal.WorkerOptions(models=service)
            with closing(shoal.make_vec(AskingEnv, 4, num_workers=2, batch_size=2, worker=options)) as envs:
                obs, _ = envs.reset()
                assert not obs.any()

    def test_without_a_service_workers_load_their_own(self) -> None:
        options = shoal.WorkerOptions(models={"double": make_double, "pid": pid})
        with closing(shoal.make_vec(AskingEnv, 2, num_workers=2, worker=options)) as envs:
            envs.reset()
            _, pids, *_ = envs.step(np.zeros(2, int))
            assert len(set(pids)) == 2

    def test_without_make_vec_models_are_called_directly(self) -> None:
        shoal.serve.use({"double": double, "pid": pid})
        try:
            env = AskingEnv()
            env.reset()
            obs, reward, *_ = env.step(0)
            np.testing.assert_array_equal(obs, [2, 2])
            assert reward == os.getpid()
        finally:
            shoal.serve.use(None)

    def test_a_process_without_models_says_how_to_get_them(self) -> None:
        with pytest.raises(RuntimeError, match=r"WorkerOptions\(models="):
            shoal.worker().model("double")


class TestLocal:
    def test_errors_are_those_of_a_service(self) -> None:
        shoal.serve.use({"picky": picky})
        try:
            model = shoal.worker().model("picky")
            with pytest.raises(ModelError, match="ValueError: a negative row"):
                model(-1.0)
            np.testing.assert_array_equal(model.batch(np.zeros((2, 2))), np.ones((2, 2)))
            assert model.gather([model.submit(1.0)]) == [2.0]
            with pytest.raises(ValueError, match="no model 'other'"):
                shoal.worker().model("other")
        finally:
            shoal.serve.use(None)


class TestDeath:
    def test_a_killed_server_ends_every_call(self) -> None:
        with shoal.ModelService({"deadly": deadly}) as service:
            model = service.model("deadly")
            assert model(1) == 1
            with pytest.raises(ServiceDied):
                model(13)
            with pytest.raises(ServiceDied, match="by signal 9"):
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


def _check_steps(envs: Any, server: int) -> None:
    obs, _ = envs.reset(seed=1)
    assert not obs.any()
    for step in range(1, 10):
        obs, rewards, *_ = envs.step(np.zeros(envs.num_envs, int))
        np.testing.assert_array_equal(obs, np.full((envs.num_envs, 2), 2.0 * step))
        assert set(rewards) == {server}
