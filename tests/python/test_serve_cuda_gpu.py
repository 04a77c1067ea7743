"""What test_serve_cuda.py shows on a stand-in, on a real device; and services that compute there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import backend_models  # noqa: E402
import shoal  # noqa: E402
from served_modules import AnswersOnHost, Drifts, Looks, Moves, MovesBuffer, Nested, Scale  # noqa: E402
from shoal.errors import Error  # noqa: E402
from shoal.serve.cuda import OnCuda  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device, or a torch that was built without"),
]


def convolutions() -> Any:
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 2, 1)]
    return torch.nn.Sequential(*layers)


def rows(count: int, start: float = 0.0) -> np.ndarray[Any, Any]:
    return np.arange(start, start + 3 * count, dtype=np.float32).reshape(count, 3)


def graphs(model: OnCuda) -> int:
    return len(model._graphs)


def test_a_captured_module_answers_as_it_does_alone() -> None:
    alone, captured = OnCuda(convolutions(), "cuda", ()), OnCuda(convolutions(), "cuda", (1, 2, 4))
    random = np.random.default_rng(0)
    for count in (1, 2, 4, 3) * 5:
        frames = random.normal(size=(count, 3, 16, 16)).astype(np.float32)
        np.testing.assert_allclose(captured([frames], {}).numpy(), alone([frames], {}).numpy(), atol=1e-3)
    assert (graphs(alone), graphs(captured)) == (0, 3)


def test_inputs_may_be_written_and_answers_nested() -> None:
    scale, nested = OnCuda(Scale(), "cuda", (2,)), OnCuda(Nested(), "cuda", (2,))
    for start in (0.0, 1.0, 2.0):
        x, y = rows(2, start), rows(2, 10 * start)
        np.testing.assert_array_equal(scale([x.copy()], {}).numpy(), 2 * x)
        answer = nested([x], {"more": {"y": y}})
        np.testing.assert_array_equal(answer["sum"].numpy(), x + y)
        np.testing.assert_array_equal(answer["both"][1][0].numpy(), y)
    assert (graphs(scale), graphs(nested)) == (1, 1)


@pytest.mark.parametrize("module", [Scale, Moves, MovesBuffer])
def test_new_weights_and_moved_ones(module: Any) -> None:
    model = OnCuda(module(), "cuda", (1,))
    unit = model([rows(1, 1.0)], {})[0, 0].item() / 2
    for version, by in enumerate((2.0, 5.0, 7.0), 1):
        model.set_state({"by": np.full(3, by, np.float32)}, version)
        for _ in range(3):
            assert model([rows(1, 1.0)], {})[0, 0] == unit * by
        assert graphs(model) == 1


def test_inputs_stay_as_they_came_and_answers_of_the_host_are_made_anew() -> None:
    drifts, host = OnCuda(Drifts(), "cuda", (1,)), OnCuda(AnswersOnHost(), "cuda", (1,))
    for start in (0.0, 3.0, 1.0):
        np.testing.assert_array_equal(drifts([rows(1, start)], {}).numpy(), rows(1, start) + 4)
        assert host([rows(1, start)], {}).shape == (1, 1)
    assert (graphs(drifts), graphs(host)) == (1, 0)


def test_what_cannot_be_captured_runs_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    model = OnCuda(Looks(), "cuda", (1, 2))
    for _ in range(3):
        np.testing.assert_array_equal(model([-rows(2, 1.0)], {}).numpy(), rows(2, 1.0))
    assert graphs(model) == 0
    told = capfd.readouterr().err
    assert told.count("Looks cannot be captured as a CUDA graph") == 1 and "previous error" not in told
    after = OnCuda(Scale(), "cuda", (1,))
    for _ in range(2):
        assert after([rows(1, 1.0)], {})[0, 0] == 2.0
    assert graphs(after) == 1


@pytest.mark.parametrize("context", ["thread", "forkserver", "spawn"])
def test_a_service_on_the_device(context: str, capfd: pytest.CaptureFixture[str]) -> None:
    with shoal.ModelService({"scale": Scale, "look": Looks}, device="cuda", max_batch=8, context=context) as service:
        scale, look = service.model("scale"), service.model("look")
        for count in (1, 3, 8) * 4:
            np.testing.assert_array_equal(scale.batch(rows(count)), 2 * rows(count))
            np.testing.assert_array_equal(look.batch(rows(count)), rows(count))
        service.update("scale", {"by": np.full(3, 3.0, np.float32)})
        np.testing.assert_array_equal(scale.batch(rows(5)), 3 * rows(5))
    told = capfd.readouterr().err
    assert "Scale cannot be captured" not in told
    assert context != "thread" or "Looks cannot be captured" in told


@pytest.mark.parametrize("context", ["thread", "forkserver"])
@pytest.mark.parametrize("kind", ["pt", "pt2"])
def test_a_model_of_a_file_on_the_device(tmp_path: Path, kind: str, context: str) -> None:
    file = tmp_path / f"model.{kind}"
    if kind == "pt":
        torch.jit.script(backend_models.module()).save(str(file))
    else:  # in a process of its own: compiling leaves threads
        program = [sys.executable, backend_models.__file__, str(file), "cuda"]
        subprocess.run(program, check=True, capture_output=True, timeout=300)
        program = [sys.executable, "-c", f"import torch; torch._inductor.aoti_load_package({str(file)!r})"]
        if subprocess.run(program, capture_output=True).returncode < 0:
            pytest.skip("torch itself crashes at packages that this machine's compiler makes for the device")
    random = np.random.default_rng(0)
    with shoal.ModelService({"file": str(file)}, device="cuda", max_batch=16, context=context) as service:
        model = service.model("file")
        for scale in (1.0, 2.0):
            for count in (2, 5, 16):
                x, index = random.normal(size=(count, 3)).astype(np.float32), random.integers(5, size=count)
                image = random.integers(256, size=(count, 2, 2)).astype(np.uint8)
                linear, more = model.batch(x, {"image": image, "index": index})
                wanted = backend_models.answers(x, image, index)
                np.testing.assert_allclose(linear, wanted[0] * scale, rtol=1e-4, atol=1e-5)
                for name, value in zip(("image", "row", "double"), wanted[1:], strict=True):
                    np.testing.assert_allclose(more[name], value, rtol=1e-6)
            new = {"linear.weight": 2 * backend_models.WEIGHT, "linear.bias": 2 * backend_models.BIAS}
            service.update("file", backend_models.state() | new)


def test_a_failed_device_costs_one_server() -> None:
    """An index out of bounds ends what a process has on a device; the next server answers."""
    kwargs: dict[str, Any] = {"device": "cuda", "max_batch": 4, "on_fault": "restart"}
    with shoal.ModelService({"drifts": Drifts}, **kwargs) as service:
        drifts = service.model("drifts")
        np.testing.assert_array_equal(drifts(rows(1)[0]), rows(1)[0] + 4)
        with pytest.raises(Error):
            drifts(rows(1, 1e6)[0], timeout=30)
        np.testing.assert_array_equal(drifts(rows(1)[0], timeout=60), rows(1)[0] + 4)
