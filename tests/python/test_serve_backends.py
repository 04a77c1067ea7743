"""What may be served, one model in all its forms: the same rows get the same answers, however they are batched."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import backend_models
import shoal
from shoal.errors import ModelError
from shoal.serve import package as packages
from shoal.serve.loading import load
from shoal.serve.structure import answer_from, pack_answer

torch = pytest.importorskip("torch")

# Compiling a package takes half a minute of a CPU.
pytestmark = [pytest.mark.keeps_processes, pytest.mark.timeout(600)]

WITH_WEIGHTS = ["module", "torchscript", "package"]
BACKENDS = [*WITH_WEIGHTS, "onnx"]
MAX_BATCH = 8


def torchscript(folder: Path) -> Path:
    file = folder / "model.pt"
    if not file.exists():
        with pytest.deprecated_call():
            torch.jit.script(backend_models.module()).save(str(file))
    return file


def package(folder: Path) -> Path:
    """In a process of its own: compiling leaves threads and caches."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"AOTInductor needs a C++ compiler, and there is no {compiler}")
    file = folder / "model.pt2"
    if not file.exists():
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
        program = [sys.executable, backend_models.__file__, str(file)]
        done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stdout + done.stderr
    return file


def onnx(folder: Path) -> Path:
    pytest.importorskip("onnxruntime", reason="needs requirements-onnx.txt")
    file = folder / "model.onnx"
    backend_models.write_onnx(file)
    return file


FORMS: dict[str, Callable[[Path], Any]] = {
    "module": lambda folder: backend_models.module,
    "torchscript": torchscript,
    "package": package,
    "onnx": onnx,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module", params=BACKENDS)
def served(request: pytest.FixtureRequest, folder: Path) -> Any:
    return FORMS[request.param](folder)


@pytest.fixture(params=WITH_WEIGHTS)
def updated(request: pytest.FixtureRequest, folder: Path) -> Any:
    return FORMS[request.param](folder)


@pytest.fixture(scope="module", params=["any", "buckets", "local"])
def model(request: pytest.FixtureRequest, served: Any) -> Iterator[Any]:
    """In a server that shows its model batches as they come; in one that pads them; without a server."""
    if request.param == "local":
        shoal.serve.use({"model": served})
        yield shoal.worker().model("model")
        shoal.serve.use(None)
        return
    buckets, context = ([], "auto") if request.param == "any" else ([3, 5], "thread")
    with shoal.ModelService({"model": served}, max_batch=MAX_BATCH, buckets=buckets, context=context) as service:
        yield service.model("model")


def rows(count: int, seed: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 3)).astype(np.float32)
    image = random.integers(0, 256, (count, 2, 2), np.uint8)
    return x, {"image": image, "index": random.integers(0, 5, count)}


def row(of: Any, i: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    x, more = of
    return x[i], {name: array[i] for name, array in more.items()}


def leaves(answer: Any) -> list[np.ndarray]:
    """ONNX has a flat tuple where the others have one with a dict."""
    first, *rest = answer
    if len(rest) == 1:
        assert list(rest[0]) == ["image", "row", "double"]
        rest = list(rest[0].values())
    return [first, *rest]


def check(answer: Any, asked: Any) -> None:
    x, more = asked
    expected = backend_models.answers(x, **more)
    got = leaves(answer)
    assert [array.dtype for array in got] == [np.float32, np.float32, np.float32, np.int64]
    for mine, other in zip(got, expected, strict=True):
        assert mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


class TestAnswers:
    def test_a_row(self, model: Any) -> None:
        asked = row(rows(1), 0)
        check(model(*asked), asked)

    @pytest.mark.parametrize("count", [1, 2, 3, MAX_BATCH, 3 * MAX_BATCH + 1])
    def test_a_batch(self, model: Any, count: int) -> None:
        asked = rows(count, seed=count)
        check(model.batch(*asked), asked)

    def test_a_batch_without_rows_is_refused(self, model: Any) -> None:
        with pytest.raises(ValueError, match="at least one"):
            model.batch(*rows(0))

    def test_answers_do_not_depend_on_the_batch(self, model: Any) -> None:
        asked = rows(20, seed=1)
        alone = [leaves(model(*row(asked, i))) for i in range(20)]
        order = np.random.default_rng(2).permutation(20)
        together = model.gather([model.submit(*row(asked, i)) for i in order])
        for i, answer in zip(order, together, strict=True):
            for mine, other in zip(leaves(answer), alone[i], strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-6)

    def test_answers_stay_when_others_follow(self, model: Any) -> None:
        asked = rows(2, seed=3)
        first = model(*row(asked, 0))
        model(*row(asked, 1))
        check(first, row(asked, 0))


class TestFailures:
    def test_a_poisoned_row_fails_alone(self, model: Any) -> None:
        x, more = rows(6, seed=4)
        more["index"][2] = 9
        replies = [model.submit(*row((x, more), i)) for i in range(6)]
        for i, reply in enumerate(replies):
            if i == 2:
                with pytest.raises(ModelError, match="out of"):
                    reply.result()
            else:
                check(reply.result(), row((x, more), i))

    @pytest.mark.parametrize("wrong", ["shape", "dimensions", "dtype", "arguments", "names"])
    def test_rows_that_the_model_does_not_take(self, model: Any, wrong: str) -> None:
        x, more = row(rows(1), 0)
        args: dict[str, Any] = {
            "shape": (np.zeros(4, np.float32), more),
            "dimensions": (np.float32(0), more),
            "dtype": (x.astype(np.float64), more),
            "arguments": (x,),
            "names": (x, {"image": more["image"]}),
        }
        for _ in range(2):
            with pytest.raises(ModelError):
                model(*args[wrong])
            check(model(x, more), (x, more))


class TestWeights:
    def test_updates_and_versions(self, updated: Any) -> None:
        asked = row(rows(1), 0)
        expected = backend_models.answers(asked[0], **asked[1])
        with shoal.ModelService({"model": updated}, keep_versions=2) as service:
            model = service.model("model")
            for version in range(2, 6):
                state = {name: value * version for name, value in backend_models.state().items()}
                assert service.update("model", {**state, "table": torch.from_numpy(state["table"])}) == version
                got = leaves(model(*asked))
                np.testing.assert_allclose(got[0], expected[0] * version, rtol=1e-5)
                np.testing.assert_allclose(got[2], expected[2] * version, rtol=1e-5)
                assert model.version == version
            np.testing.assert_allclose(leaves(model.pin(4)(*asked))[0], expected[0] * 4, rtol=1e-5)
            np.testing.assert_allclose(leaves(model(*asked))[0], expected[0] * 5, rtol=1e-5)

    def test_other_dtypes_are_converted(self, updated: Any) -> None:
        asked = row(rows(1), 0)
        with shoal.ModelService({"model": updated}, context="thread") as service:
            state = {name: torch.from_numpy(value).bfloat16() for name, value in backend_models.state().items()}
            service.update("model", state)
            np.testing.assert_allclose(
                leaves(service.model("model")(*asked))[0],
                backend_models.answers(asked[0], **asked[1])[0],
                rtol=0.02,
                atol=0.02,
            )

    def test_weights_that_do_not_fit_change_nothing(self, updated: Any) -> None:
        good = backend_models.state()
        with shoal.ModelService({"model": updated}, context="thread") as service:
            for wrong, message in (
                ({"linear.weight": good["linear.weight"]}, "lack 'linear.bias' and 1 more"),
                ({**good, "more": good["table"]}, "have 'more', which the model has not"),
                (
                    {**good, "table": good["linear.bias"]},
                    r"'table' of the new weights has the shape \(2,\), not \(5, 2\)",
                ),
            ):
                with pytest.raises(ValueError, match=message):
                    service.update("model", wrong)
            asked = row(rows(1), 0)
            check(service.model("model")(*asked), asked)


class TestFiles:
    def test_torch_is_not_imported_for_a_package(self, folder: Path) -> None:
        program = (
            "import sys, numpy as np, shoal.serve.loading as l\n"
            "m = l.load(sys.argv[1]); a = np.zeros((1, 2, 2), np.uint8), np.zeros(1, int)\n"
            "m([np.zeros((1, 3), np.float32), dict(zip(('image', 'index'), a))], {})\n"
            "assert 'torch' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", program, str(package(folder))], check=True, timeout=100)

    def test_nothing_is_left_of_an_unpacked_package(self, folder: Path, tmp_path: Path) -> None:
        program = "import sys, os, shoal.serve.loading as l; m = l.load(sys.argv[1]); os.kill(os.getpid(), 9)"
        command = [sys.executable, "-c", program, str(package(folder))]
        subprocess.run(command, env={**os.environ, "TMPDIR": str(tmp_path)}, timeout=100)
        assert not list(tmp_path.iterdir())

    def test_files_that_are_something_else(self, tmp_path: Path) -> None:
        torch.save(backend_models.module().state_dict(), tmp_path / "weights.pt")
        torch.export.save(backend_models.exported(), tmp_path / "exported.pt2")
        (tmp_path / "text.pt").write_text("a model")
        for name, message in (
            ("weights.pt", r"weights.pt' is what torch.save\(\) wrote: give a function"),
            ("exported.pt2", r"exported.pt2' is what torch.export.save\(\) wrote"),
            ("text.pt", "text.pt' is no TorchScript file, no package"),
        ):
            with pytest.raises(ValueError, match=message):
                shoal.ModelService({"model": tmp_path / name}, context="thread")
        with pytest.raises(FileNotFoundError, match=r"'model' is to be loaded from .*none\.pt2', which is no file"):
            shoal.ModelService({"model": tmp_path / "none.pt2"})

    def test_what_torch_exports_comes_with_the_command_that_compiles_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / 'my "own" model.pt2'
        torch.export.save(backend_models.exported(), file)
        with pytest.raises(ValueError) as refused:
            shoal.ModelService({"model": file}, context="thread")
        before, _, command = str(refused.value).partition("the file to give instead: ")
        assert "shoal export --to torch" in before
        python, option, program = shlex.split(command)
        assert (python, option) == ("python", "-c")
        compiled = []
        monkeypatch.setattr(
            torch._inductor, "aoti_compile_and_package", lambda *args, **kwargs: compiled.append((args, kwargs))
        )
        exec(program, {})
        (((exported,), packed),) = compiled
        assert isinstance(exported, torch.export.ExportedProgram)
        assert packed == {"package_path": str(tmp_path / 'my "own" model-compiled.pt2')}

    def test_what_torch_before_2_8_exports_is_known_as_well(self, tmp_path: Path) -> None:
        file = tmp_path / "exported.pt2"
        with zipfile.ZipFile(file, "w") as archive:
            for name in ("serialized_exported_program.json", "serialized_state_dict.pt", "version"):
                archive.writestr(name, b"")
        with pytest.raises(ValueError, match=r"is what torch\.export\.save\(\) wrote"):
            shoal.ModelService({"model": file}, context="thread")

    def test_a_damaged_file(self, folder: Path, tmp_path: Path) -> None:
        for form in (torchscript, package):
            whole = form(folder)
            damaged = tmp_path / whole.name
            with zipfile.ZipFile(whole) as source, zipfile.ZipFile(damaged, "w") as target:
                for name in source.namelist():
                    target.writestr(
                        name, source.read(name)[:100] if name.endswith((".pkl", ".so")) else source.read(name)
                    )
            with pytest.raises(ValueError, match=f"torch 2.* cannot load .*{damaged.name}"):
                shoal.ModelService({"model": damaged}, context="thread")


class TestPackage:
    def test_pythons_loader_does_the_same(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(packages, "_opened", lambda library, torch, device: packages._InTorch(library, device))
        with shoal.ModelService({"model": package(folder)}, context="thread", keep_versions=1) as service:
            model = service.model("model")
            asked = rows(5, seed=6)
            check(model.batch(*asked), asked)
            x, more = row(asked, 0)
            for wrong in (np.zeros(4, np.float32), np.float32(0), x.astype(np.float64)):
                with pytest.raises(ModelError):
                    model(wrong, more)
            state = {name: value * 2 for name, value in backend_models.state().items()}
            service.update("model", state)
            np.testing.assert_allclose(leaves(model(x, more))[0], 2 * backend_models.answers(x, **more)[0], rtol=1e-5)
            check(model.pin(1)(x, more), (x, more))
            with pytest.raises(ValueError, match="lack 'linear.bias'"):
                service.update("model", {name: state[name] for name in state if name != "linear.bias"})

    def test_weights_that_no_loader_reads_are_refused(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(packages, "_opened", lambda library, torch, device: packages._InTorch(library, device))
        loaded = packages.Package(str(package(folder)), "cpu")
        loaded.model._has_weights = False
        with pytest.raises(RuntimeError, match="torch before 2.8 compiled can be neither read nor changed"):
            loaded.set_state(backend_models.state(), 2)


class TestTorchScript:
    def test_answers_are_nested_as_those_of_the_module(self, tmp_path: Path) -> None:
        class Pair(NamedTuple):
            first: torch.Tensor
            rest: list[torch.Tensor]

        def answer(x: torch.Tensor, more: dict[str, torch.Tensor]):
            turned = torch.complex(x, x).conj()
            return {"pair": Pair(x.to(torch.bfloat16), [turned, more["y"]])}

        with pytest.deprecated_call():
            scripted = torch.jit.script(answer)
        scripted.save(str(tmp_path / "function.pt"))
        loaded = load(tmp_path / "function.pt")
        x = np.arange(3, dtype=np.float32)
        made, structure = pack_answer(loaded([x], {"more": {"y": x + 1}}))
        assert answer_from([0, 1, 2], structure) == {"pair": (0, [1, 2])}
        for array, expected in zip(made, (x, x - 1j * x, x + 1), strict=True):
            np.testing.assert_array_equal(array, expected)

    def test_a_frozen_module_has_no_weights(self, tmp_path: Path) -> None:
        with pytest.deprecated_call():
            torch.jit.freeze(torch.jit.script(torch.nn.Linear(3, 2).eval())).save(str(tmp_path / "frozen.pt"))
        with shoal.ModelService({"model": tmp_path / "frozen.pt"}, context="thread") as service:
            assert service.model("model")(np.zeros(3, np.float32)).shape == (2,)
            with pytest.raises(ValueError, match="have 'weight', which the model has not"):
                service.update("model", {"weight": np.zeros((2, 3), np.float32)})

    def test_a_recurrent_model(self, tmp_path: Path) -> None:
        @torch.jit.script
        def total(x: torch.Tensor, state: torch.Tensor):
            return (x + state).clone(), x + state

        class Total(torch.nn.Module):
            def forward(self, x: torch.Tensor, state: torch.Tensor):
                return total(x, state)

        with pytest.deprecated_call():
            torch.jit.script(Total()).save(str(tmp_path / "total.pt"))
        model = shoal.serve.Recurrent(tmp_path / "total.pt", np.zeros((), np.float32))
        with shoal.ModelService({"total": model}, context="thread") as service:
            ask = service.model("total")
            assert [ask(np.float32(x)) for x in (1, 2, 3)] == [1, 3, 6]
            assert ask(np.float32(5), reset=True) == 5


class TestOnnx:
    def test_inputs_go_by_their_names_and_order(self, folder: Path) -> None:
        x, more = row(rows(1), 0)
        with shoal.ModelService({"model": onnx(folder)}, context="thread") as service:
            model = service.model("model")
            check(model(x, **more), (x, more))
            check(model(x, *more.values()), (x, more))
            check(model({"index": more["index"]}, x, more["image"]), (x, more))
            with pytest.raises(ModelError, match=r"takes 'x', 'image', 'index'; got 1 in that order and 'other'"):
                model(x, other=more["image"])

    def test_its_weights_stay(self, folder: Path) -> None:
        with shoal.ModelService({"model": onnx(folder)}, context="thread") as service:
            with pytest.raises(ValueError, match="an ONNX file has them for good"):
                service.update("model", backend_models.state())
            asked = row(rows(1), 0)
            check(service.model("model")(*asked), asked)

    def test_what_cannot_be_loaded(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "text.onnx").write_text("a model")
        with pytest.raises(ValueError, match=r"ONNX Runtime cannot load .*text\.onnx'"):
            shoal.ModelService({"model": tmp_path / "text.onnx"}, context="thread")
        with pytest.raises(ValueError, match="not on the device 'cuda'; for CUDA: pip install onnxruntime-gpu"):
            shoal.ModelService({"model": onnx(folder)}, context="thread", device="cuda")

    def test_a_missing_wheel_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "model.onnx").write_bytes(b"")
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        with pytest.raises(ImportError, match="pip install onnxruntime"):
            shoal.ModelService({"model": tmp_path / "model.onnx"}, context="thread")
