"""Packages of AOTInductor, on a stand-in for torch: what its C interface is asked for, and what is said where that is not enough."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal import _core
from shoal.errors import ModelError
from shoal.serve import package as packages

SOURCE = Path(__file__).with_name("stand_in_torch.cc")
DEVICES = ["cpu", "cuda:1"]


@pytest.fixture(scope="module")
def torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its libraries. There is one in a process, as of the real ones."""
    folder = tmp_path_factory.mktemp("torch") / "lib"
    folder.mkdir()
    cpu = folder / "libtorch_cpu.so"
    compile_library(cpu, "-Wl,-soname,libtorch_cpu_stand_in.so")
    shutil.copy(cpu, folder / "libtorch_cuda.so")
    return folder


@pytest.fixture(scope="module")
def library(torch: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_package(tmp_path_factory.mktemp("package"), torch)


def compile_library(output: Path, *options: str, source: str = str(SOURCE)) -> None:
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("it needs a C++ compiler")
    command = [compiler, "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", "-o", str(output)]
    subprocess.run([*command, "-x", "c++", source, "-x", "none", *options], check=True, timeout=200)


def compile_package(folder: Path, torch: Path, *variant: str) -> Path:
    output = folder / "x.wrapper.so"
    compile_library(output, "-DPACKAGE", *variant, str(torch / "libtorch_cpu.so"))
    return output


def packed(file: Path, library: Path, *, device: str = "cpu", **more: str) -> Path:
    """A .pt2 of the library, as torch lays it out; `more` files beside it, by name and text."""
    with zipfile.ZipFile(file, "w") as archive:
        inside = "model/data/aotinductor/model/x.wrapper"
        archive.write(library, f"{inside}.so")
        archive.writestr(f"{inside}_metadata.json", json.dumps({"AOTI_DEVICE_KEY": device.partition(":")[0]}))
        for name, text in more.items():
            archive.writestr(f"model/data/aotinductor/model/{name}", text)
    return file


@pytest.fixture
def installed(torch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in is the torch of this process."""
    spec = ModuleSpec("torch", None, is_package=True)
    spec.submodule_search_locations = [str(torch.parent)]
    monkeypatch.setattr(packages.importlib.util, "find_spec", lambda name: {"torch": spec}[name])


def live_tensors(torch: Path) -> int:
    count: int = ctypes.CDLL(str(torch / "libtorch_cpu.so")).live_tensors()
    return count


def rows(count: int) -> np.ndarray:
    return np.arange(1, 2 * count + 1, dtype=np.float32).reshape(count, 2)


class TestRun:
    @pytest.mark.parametrize("device", DEVICES)
    def test_answers_become_arrays(self, torch: Path, library: Path, device: str) -> None:
        package = _core.models.Package(str(torch), str(library), device)
        x = rows(3)
        product, again, small, turned, same, weight = package.run([x])
        expected = x * np.float32([2, 3])
        for made in (product, again, small, turned):
            np.testing.assert_array_equal(made, expected)
            assert made.dtype == np.float32 and made.flags.c_contiguous
        assert again is product
        np.testing.assert_array_equal(same, x)
        np.testing.assert_array_equal(weight, [2, 3])

    @pytest.mark.parametrize("device", DEVICES)
    def test_answers_share_no_memory_that_changes(self, torch: Path, library: Path, device: str) -> None:
        package = _core.models.Package(str(torch), str(library), device)
        x = rows(2)
        product, *_, same, weight = package.run([x])
        assert not np.shares_memory(same, x)
        x[:] = 0
        for value in (5.0, 7.0):  # both buffers of the weights
            package.load_state({"scale.by": np.full(2, value, np.float32)})
        del package
        np.testing.assert_array_equal(same, rows(2))
        np.testing.assert_array_equal(weight, [2, 3])
        np.testing.assert_array_equal(product, rows(2) * np.float32([2, 3]))

    def test_nothing_is_left_of_answers_and_failures(self, torch: Path, library: Path) -> None:
        before = live_tensors(torch)
        package = _core.models.Package(str(torch), str(library), "cpu")
        for _ in range(3):
            package.run([rows(2)])
            for wrong in (-rows(2), np.zeros((2, 3), np.float32)):
                with pytest.raises(RuntimeError):
                    package.run([wrong])
        package.load_state(package.state())
        del package
        assert live_tensors(torch) == before

    def test_a_failure_is_told_without_its_stack(self, torch: Path, library: Path) -> None:
        package = _core.models.Package(str(torch), str(library), "cpu")
        with pytest.raises(RuntimeError, match=r"^unmatched dim value at 1, expected: 2, but got: 3$"):
            package.run([np.zeros((2, 3), np.float32)])
        with pytest.raises(RuntimeError, match="^a negative row$"):
            package.run([-rows(1)])
        with pytest.raises(RuntimeError, match="^it takes 1 arrays, got 2$"):
            package.run([rows(1), rows(1)])
        with pytest.raises(RuntimeError, match="^torch takes no array of dtype float128$"):
            package.run([np.zeros((2, 2), np.longdouble)])

    @pytest.mark.parametrize("device", DEVICES)
    def test_missing_dimensions_are_ones(self, torch: Path, library: Path, device: str) -> None:
        package = _core.models.Package(str(torch), str(library), device)
        for array in (np.float32(1), np.zeros(2, np.float32)):
            with pytest.raises(RuntimeError, match="but got: 1$"):
                package.run([np.asarray(array)])


class TestWeights:
    @pytest.mark.parametrize("device", DEVICES)
    def test_they_are_read_and_changed_by_their_names_in_the_module(
        self, torch: Path, library: Path, device: str
    ) -> None:
        package = _core.models.Package(str(torch), str(library), device)
        before = package.state()
        np.testing.assert_array_equal(before["scale.by"], [2, 3])
        for value in (5.0, 7.0, 9.0):
            package.load_state({"scale.by": np.full(2, value, np.float32), "unknown": np.zeros(1)})
            np.testing.assert_array_equal(package.run([rows(1)])[0], rows(1) * np.float32(value))
            np.testing.assert_array_equal(package.state()["scale.by"], [value, value])
        np.testing.assert_array_equal(before["scale.by"], [2, 3])

    def test_those_of_an_old_package_stay(self, torch: Path, tmp_path: Path) -> None:
        old = compile_package(tmp_path, torch, "-DWITHOUT_WEIGHTS")
        package = _core.models.Package(str(torch), str(old), "cpu")
        assert package.is_complete
        *_, weight = package.run([rows(2)])
        for change, arguments in ((package.state, ()), (package.load_state, ({"scale.by": np.zeros(2, np.float32)},))):
            with pytest.raises(RuntimeError, match=r"torch before 2\.8 compiled can be neither read nor changed"):
                change(*arguments)
        del package, change
        np.testing.assert_array_equal(weight, [2, 3])


class TestFiles:
    @pytest.mark.usefixtures("installed")
    def test_a_service_runs_one(self, library: Path, tmp_path: Path) -> None:
        file = packed(tmp_path / "model.pt2", library)
        with shoal.ModelService({"model": file}, context="thread") as service:
            model = service.model("model")
            np.testing.assert_array_equal(model(rows(1)[0])[3], rows(1)[0] * np.float32([2, 3]))
            service.update("model", {"scale.by": np.float32([4, 4])})
            np.testing.assert_array_equal(model(rows(1)[0])[0], 4 * rows(1)[0])
            with pytest.raises(ModelError, match="a negative row"):
                model(-rows(1)[0])

    @pytest.mark.usefixtures("installed")
    def test_one_for_another_device_is_refused_before_it_is_loaded(self, library: Path, tmp_path: Path) -> None:
        file = packed(tmp_path / "model.pt2", library, device="cuda")
        with pytest.raises(ValueError, match=r"model.pt2' was compiled for 'cuda', not for the device 'cpu'"):
            packages.Package(str(file), "cpu")
        on_device = packages.Package(str(file), "cuda:1")
        np.testing.assert_array_equal(on_device([rows(2)], {})[0], rows(2) * np.float32([2, 3]))

    @pytest.mark.usefixtures("installed")
    def test_one_of_a_newer_torch_is_told_from_a_broken_one(self, torch: Path, tmp_path: Path) -> None:
        newer = compile_package(tmp_path, torch, "-DCOMPILED_BY_A_NEWER_TORCH")
        file = packed(tmp_path / "newer.pt2", newer)
        with pytest.raises(
            ValueError, match="cannot load .*: compiled by a newer torch: this one has no aoti_torch_from_the_future"
        ):
            packages.Package(str(file), "cpu")
        newer.write_bytes(b"\x7fELF")
        with pytest.raises(ValueError, match="cannot load .*newer.pt2': .*file too short"):
            packages.Package(str(packed(file, newer)), "cpu")

    @pytest.mark.usefixtures("installed")
    def test_one_with_sources_only(self, tmp_path: Path) -> None:
        file = tmp_path / "sources.pt2"
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("model/data/aotinductor/model/x.wrapper.cpp", "int main() {}")
        with pytest.raises(ValueError, match=r"sources.pt2' has sources only: compile it without package_cpp_only"):
            packages.Package(str(file), "cpu")

    @pytest.mark.usefixtures("installed")
    def test_one_of_several_models_is_served(self, library: Path, tmp_path: Path) -> None:
        file = tmp_path / "models.pt2"
        for names, served in ((["other"], True), (["model", "other"], True), (["one", "two"], False)):
            with zipfile.ZipFile(file, "w") as archive:
                for name in names:
                    archive.write(library, f"data/aotinductor/{name}/x.so")  # as torch 2.6 lays it out
            if served:
                assert packages.Package(str(file), "cpu").model.is_complete
            else:
                with pytest.raises(
                    ValueError, match="has the models 'one', 'two': one is served, or that named 'model'"
                ):
                    packages.Package(str(file), "cpu")

    @pytest.mark.usefixtures("installed")
    def test_what_the_c_interface_cannot_serve_goes_to_pythons_loader(
        self, torch: Path, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = []

        def in_torch(library: Path, device: str) -> Any:
            asked.append(device)
            return _core.models.Package(str(torch), str(library), device)

        monkeypatch.setattr(packages, "_InTorch", in_torch)
        old = compile_package(tmp_path, torch, "-DWEIGHTS_OF_CPP")
        assert not _core.models.Package(str(torch), str(old), "cpu").is_complete
        packages.Package(str(packed(tmp_path / "old.pt2", old)), "cpu")
        nodes = {"x.wrapper.json": json.dumps({"nodes": [{"name": "buf0"}]})}
        packages.Package(str(packed(tmp_path / "outside.pt2", library, **nodes)), "cpu")
        assert asked == ["cpu", "cpu"]
        none = {"x.wrapper.json": json.dumps({"nodes": []})}
        packages.Package(str(packed(tmp_path / "inside.pt2", library, **none)), "cpu")
        assert len(asked) == 2


class TestWithoutTorch:
    @pytest.mark.parametrize("kind", ["package", "script"])
    def test_the_fix_is_named(self, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        names = {"package": "model/data/aotinductor/model/x.so", "script": "model/constants.pkl"}
        file = tmp_path / "model.pt2"
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(names[kind], b"")
        monkeypatch.setitem(sys.modules, "torch", None)  # type: ignore[arg-type]
        with pytest.raises(ImportError, match=r"model.pt2' is .*pip install 'shoal\[torch\]'") as caught:
            shoal.ModelService({"model": file}, context="thread")
        assert "\n" not in str(caught.value)

    def test_a_torch_that_is_too_old_is_told(self, tmp_path: Path, library: Path) -> None:
        compile_library(tmp_path / "libtorch_cpu.so", source=os.devnull)
        with pytest.raises(
            RuntimeError, match="this torch has no aoti_torch_device_type_cpu: 2.6 and younger ones have"
        ):
            _core.models.Package(str(tmp_path), str(library), "cpu")

    def test_a_torch_without_libraries_is_told(self, tmp_path: Path, library: Path) -> None:
        with pytest.raises(RuntimeError, match="cannot open .*libtorch_cpu.so"):
            _core.models.Package(str(tmp_path), str(library), "cpu")
