"""Models that are loaded where they are asked: they keep deadlines, and compute on the device that was named."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import shoal
import shoal.serve
from sample_envs import CounterEnv
from shoal.errors import Cancelled, DeadlineExceeded, ModelError


def doubled(x: np.ndarray) -> np.ndarray:
    return 2 * x


@pytest.fixture
def late() -> Iterator[Callable[[np.ndarray], np.ndarray]]:
    """A model whose answer takes longer than a hundredth of a second."""

    def model(x: np.ndarray) -> np.ndarray:
        threading.Event().wait(0.02)
        return 2 * x

    yield model


@pytest.fixture(autouse=True)
def none_afterwards() -> Iterator[None]:
    yield
    shoal.serve.use(None)


def test_a_call_that_takes_longer_than_its_timeout_is_exceeded(late: Any) -> None:
    shoal.serve.use({"late": late})
    model = shoal.worker().model("late")
    with pytest.raises(DeadlineExceeded, match=r"'late'.*0\.01 s"):
        model(np.ones(2), timeout=0.01)
    with pytest.raises(DeadlineExceeded):
        model.batch(np.ones((3, 2)), timeout=0.01)
    reply = model.submit(np.ones(2), timeout=0.01)
    with pytest.raises(DeadlineExceeded):
        reply.result()
    assert model(np.ones(2), timeout=60).tolist() == model(np.ones(2)).tolist() == [2, 2]


def erasing(x: np.ndarray) -> np.ndarray:
    x *= 0
    return x + 1


def picky(x: np.ndarray) -> np.ndarray:
    if x[0] < 0:
        raise ValueError("a negative row")
    return x + 1


def test_gather_leaves_what_it_has_not_given() -> None:
    shoal.serve.use({"picky": picky})
    model = shoal.worker().model("picky")
    replies = [model.submit(float(x)) for x in (1, -1, 2)]
    with pytest.raises(ModelError, match="a negative row"):
        model.gather(replies)
    assert [replies[0].result(), replies[2].result()] == [2, 3]
    for reply in replies:
        with pytest.raises(Cancelled):
            reply.result()


@pytest.mark.parametrize("where", ["service", "local"])
def test_a_model_that_writes_to_its_rows_writes_to_its_own(where: str) -> None:
    service = shoal.ModelService({"erasing": erasing}, context="thread") if where == "service" else None
    shoal.serve.use({"erasing": erasing} if service is None else service)
    model = shoal.worker().model("erasing")
    row = np.arange(3.0)
    assert model(row).tolist() == model(row.tolist()).tolist() == [1, 1, 1]
    assert model.batch(row).tolist() == model.submit(row).result().tolist() == [1, 1, 1]
    assert row.tolist() == [0, 1, 2]
    if service is not None:
        service.close()


def test_tensors_are_taken_without_a_warning_and_left_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    shoal.serve.use({"erasing": erasing})
    tensor = torch.arange(6.0).reshape(2, 3).T
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert shoal.worker().model("erasing")(tensor).tolist() == [[1, 1]] * 3
    assert tensor.sum() == 15


@pytest.mark.parametrize(
    ("model", "shape"), [(lambda x: x[:1], r"\(1, 2\)"), (lambda x: x.sum(), r"\(\)"), (lambda x: x[:0], r"\(0, 2\)")]
)
def test_an_answer_without_a_row_for_each_row_is_the_models_error(model: Any, shape: str) -> None:
    shoal.serve.use({"odd": model})
    message = rf"a batch of 3 rows with an array of shape {shape}: the first dimension of an answer is the rows"
    with pytest.raises(ModelError, match=message) as caught:
        shoal.worker().model("odd").batch(np.zeros((3, 2)))
    assert "ValueError" in caught.value.traceback


def test_models_compute_on_the_device_that_was_named() -> None:
    torch = pytest.importorskip("torch")
    for device in ("cpu", "meta"):
        shoal.serve.use({"net": torch.nn.Linear(2, 2)}, device=device)
        assert shoal.worker().model("net")._model.model.weight.device.type == device


def test_workers_load_theirs_on_the_device_that_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")

    class Env(CounterEnv):
        def device(self) -> str:
            return shoal.worker().model("net")._model.model.weight.device.type

    for num_workers in (0, 1):
        options = shoal.WorkerOptions(models={"net": torch.nn.Linear(2, 2)}, model_device="meta", gpu="own")
        envs = shoal.make_vec(Env, 1, num_workers=num_workers, worker=options)
        assert envs.call("device") == ("meta",)
        envs.close()


def test_a_device_without_models_to_load_is_refused() -> None:
    with shoal.ModelService({"doubled": doubled}, context="thread") as service:
        with pytest.raises(ValueError, match="ModelService has its own device="):
            shoal.WorkerOptions(models=service, model_device="cuda:0", gpu="own")
        with pytest.raises(ValueError, match="give it to ModelService"):
            shoal.serve.use(service, device="cuda:0")
    with pytest.raises(ValueError, match="needs gpu='own' or gpu='lease'"):
        shoal.WorkerOptions(models={"doubled": doubled}, model_device="cuda:0")


@pytest.mark.parametrize("given", [{"threads": 2}, {"preload": ["json"]}, {"on_fault": "restart"}])
def test_a_service_in_a_thread_refuses_what_only_a_process_could_honour(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"ModelService\({next(iter(given))}=…\) is for server processes"):
        shoal.ModelService({"doubled": doubled}, context="thread", **given)
