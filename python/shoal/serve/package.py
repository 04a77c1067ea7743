"""Packages of AOTInductor: what torch._inductor.aoti_compile_and_package() wrote, run by the user's torch."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shoal import _core
from shoal.serve.loaded import Loaded, check_names, check_shapes
from shoal.serve.nesting import flatten, nest_of, nested
from shoal.serve.structure import pack_answer

__all__ = ["Package"]


class Package(Loaded):
    """A package of AOTInductor (.pt2). An answer is nested as that of the exported module.

    It is run in C++ by torch's C interface (`shoal._core.models`), without the GIL and without an import of torch; what needs more
    than that interface, as _InTorch says, by Python's torch.

    One row alone is computed as two where the package was compiled for two or more, as torch.export makes it of most modules.
    """

    def __init__(self, file: str, device: str) -> None:
        # A package compares its arguments with what it was compiled for only when it is told to; else it would read
        # beyond them.
        os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
        self._file = file
        torch = _libraries_of_torch(file)
        # Unpacked here, so that nothing is left of it should this process be killed. On a device, kernels are read later.
        self._folder = tempfile.TemporaryDirectory(prefix="shoal-package-")
        try:
            with zipfile.ZipFile(file) as packed:
                packed.extractall(self._folder.name)
            library = _library_in(Path(self._folder.name), file)
            _check_device(library, file, device)
            try:
                super().__init__(_opened(library, torch, device))
            except RuntimeError as error:
                raise ValueError(
                    f"torch {_version_of_torch()} cannot load {file!r}: {error}. Packages are for the torch and the kind of CPU or GPU that "
                    "they were compiled with"
                ) from None
        finally:
            if device == "cpu":
                self._folder.cleanup()
        try:
            takes, self._gives = (nest_of(json.loads(text)[1]) for text in self.model.call_spec)
        except ValueError as error:
            raise ValueError(f"the call of {file!r} {error}") from None
        self._positional, self._by_keyword = takes.parts
        self._alone: bool | None = None  # whether it takes one row, once that is known

    def __call__(self, args: list[np.ndarray[Any, Any]], kwargs: dict[str, Any]) -> Any:
        arrays: list[np.ndarray[Any, Any]] = []
        flatten(args, self._positional, "positional arguments", arrays)
        flatten(kwargs, self._by_keyword, "keywords", arrays)
        return nested(iter(self._run(arrays)), self._gives)

    def _run(self, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        if self._alone or not arrays or arrays[0].shape[0] != 1:
            answers: list[np.ndarray[Any, Any]] = self.model.run(arrays)
            return answers
        if self._alone is None:
            try:
                answers = self.model.run(arrays)
                self._alone = True
                return answers
            except RuntimeError as error:
                first = error
        try:
            answers = self.model.run([np.repeat(array, 2, axis=0) for array in arrays])
        except RuntimeError as error:
            raise error if self._alone is False else first from None
        self._alone = False
        return [answer[:1] for answer in answers]

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.model.state()
        return state

    def set_state(self, state: Mapping[str, Any], version: int) -> None:
        arrays, own = _arrays(state), self.model.state()
        try:
            check_names({name: own[name] for name in own.keys() & arrays.keys()}, arrays)
        except ValueError as error:
            raise ValueError(
                f"{error}: compiling makes numbers of small weights, and drops what is not used. Compile {self._file!r} with "
                "inductor_configs={'always_keep_tensor_constants': True}, and update what is used"
            ) from None
        check_shapes(own, arrays)
        try:
            self.model.load_state(arrays)
        except RuntimeError:
            check_names(own, arrays)  # it alone knows which of them, constants of the program, may be missing
            raise
        self.version = version


class _InTorch:
    """The library of a package by Python's own loader, which holds the GIL: what has kernels from outside the package, or has
    weights and was compiled by torch 2.8 to 2.12, or is for devices beside CPUs and CUDA's.

    The same methods as `_core.models.Package`.
    """

    def __init__(self, library: Path, device: str) -> None:
        import torch

        self._torch = torch
        self._device = torch.device(device)
        kind = device.partition(":")[0]
        runner = getattr(torch._C._aoti, f"AOTIModelContainerRunner{kind.capitalize()}")
        self._runner = runner(str(library), 1, *(() if kind == "cpu" else (device, str(library.parent))))
        self._has_weights = hasattr(ctypes.CDLL(str(library)), "AOTInductorModelContainerExtractConstantsMap")

    @property
    def call_spec(self) -> list[str]:
        spec: list[str] = self._runner.get_call_spec()
        return spec

    def run(self, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        with self._torch.inference_mode():
            answers = self._runner.run([self._tensor(array) for array in arrays])
        return pack_answer(list(answers))[0]

    def state(self) -> dict[str, Any]:
        return {name: np.array(pack_answer(value)[0][0]) for name, value in self._weights().items()}

    def load_state(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        weights, new = self._weights(), {}
        for inside, name in self._runner.get_constant_names_to_original_fqns().items():
            if name in weights and name in arrays:  # what is copied are bytes
                new[inside] = self._torch.empty_like(weights[name]).copy_(self._torch.from_numpy(arrays[name]))
        self._runner.update_constant_buffer(new, True, True)
        self._runner.swap_constant_buffer()

    def _weights(self) -> dict[str, Any]:
        if not self._has_weights:
            raise RuntimeError(
                "the weights of a package that torch before 2.8 compiled can be neither read nor changed: compile it with a newer torch"
            )
        weights: dict[str, Any] = self._runner.extract_constants_map(False)
        return weights

    def _tensor(self, array: np.ndarray[Any, Any]) -> Any:
        """A package trusts the number of dimensions: of a tensor that has fewer it would read what stood there before. Now ones
        stand there."""
        tensor = self._torch.from_numpy(array).to(self._device)
        sizes, strides = tensor.shape, tensor.stride()
        return tensor.reshape(*sizes, *(1 for _ in range(5 - len(sizes)))).as_strided_(sizes, strides)


def _libraries_of_torch(file: str) -> str:
    """The folder of the installed torch, which is not imported for that."""
    try:
        spec = importlib.util.find_spec("torch")
    except ValueError:  # None in sys.modules
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(
            f"{file!r} is a package of AOTInductor, which torch runs, and that is not installed: pip install 'shoal[torch]'"
        )
    return str(Path(spec.submodule_search_locations[0]) / "lib")


def _version_of_torch() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "(of a version that is not recorded)"


def _library_in(folder: Path, file: str) -> Path:
    """The compiled model of an unpacked package."""
    models: dict[str, list[Path]] = {}
    for library in sorted(folder.glob("**/data/aotinductor/*/*.so")):
        models.setdefault(library.parent.name, []).append(library)
    if not models:
        raise ValueError(f"{file!r} has sources only: compile it without package_cpp_only")
    libraries = next(iter(models.values())) if len(models) == 1 else models.get("model")
    if libraries is None:
        raise ValueError(
            f"{file!r} has the models {', '.join(map(repr, models))}: one is served, or that named 'model'"
        )
    return next((library for library in libraries if _metadata_of(library).is_file()), libraries[0])


def _metadata_of(library: Path) -> Path:
    return library.with_name(f"{library.stem}_metadata.json")


def _check_device(library: Path, file: str, device: str) -> None:
    metadata = _metadata_of(library)
    compiled_for = json.loads(metadata.read_text()).get("AOTI_DEVICE_KEY") if metadata.is_file() else None
    if compiled_for not in (None, device.partition(":")[0]):
        raise ValueError(
            f"{file!r} was compiled for {compiled_for!r}, not for the device {device!r}: ModelService(device=…)"
        )


def _opened(library: Path, torch: str, device: str) -> Any:
    outside = library.with_suffix(".json")  # kernels that are not in the package
    needs_more = outside.is_file() and json.loads(outside.read_text()).get("nodes")
    if not needs_more and device.partition(":")[0] in ("cpu", "cuda"):
        package = _core.models.Package(torch, str(library), device)
        if package.is_complete:
            return package
    return _InTorch(library, device)


def _arrays(state: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Those of unpack_state(): arrays, and tensors of dtypes that NumPy lacks, all of which float32 holds."""
    plain = {name: value.float() if hasattr(value, "detach") else value for name, value in state.items()}
    return {name: np.asarray(value, order="C") for name, value in plain.items()}
