"""Models of files, run without Python: TorchScript and packages of AOTInductor in C++, ONNX by ONNX Runtime."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.serve.loaded import Loaded, check_names, check_shapes

__all__ = ["Onnx", "Package", "TorchScript", "load_file"]


def load_file(path: str | os.PathLike[str], device: str) -> Loaded:
    """By what the file is, whatever its name; ONNX by the ending .onnx.

    Raises:
        ValueError: for what is none of these, with what it is instead where that is known.
        ImportError: for a missing onnxruntime.
    """
    file = os.fspath(path)
    if file.endswith(".onnx"):
        return Onnx(file, device)
    names = zipfile.ZipFile(file).namelist() if zipfile.is_zipfile(file) else []
    if any("/data/aotinductor/" in name for name in names):
        return Package(file, device)
    if any(name.endswith("/constants.pkl") for name in names):
        return TorchScript(file, device)
    if any(name.endswith("/models/model.json") for name in names):
        what = (
            "is what torch.export.save() wrote, which is not compiled yet: give what "
            "torch._inductor.aoti_compile_and_package(exported_program, package_path=…) makes of it"
        )
    elif any(name.endswith("/data.pkl") for name in names):
        what = (
            "is what torch.save() wrote: give a function without arguments that makes the module and loads it, "
            "or what torch.jit.save() writes"
        )
    else:
        what = "is no TorchScript file, no package of AOTInductor (.pt2) and not named .onnx"
    raise ValueError(f"{file!r} {what}")


class TorchScript(Loaded):
    """A file of torch.jit.save(). An answer is nested as forward()'s is; a named tuple is a tuple."""

    def __init__(self, file: str, device: str) -> None:
        models = _models(device)
        try:
            super().__init__(models.TorchScript(file, device))
        except RuntimeError as error:
            raise ValueError(
                f"LibTorch cannot load {file!r}: {error}. Where operators are missing, give a function without arguments "
                "that imports what has them and returns torch.jit.load(…)"
            ) from None

    def __call__(self, args: list[np.ndarray[Any, Any]], kwargs: dict[str, Any]) -> Any:
        return self.model.run(args, kwargs)

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.model.state()
        return state

    def set_state(self, state: Mapping[str, Any], version: int) -> None:
        arrays, own = _arrays(state), self.model.state()
        check_names(own, arrays)
        check_shapes(own, arrays)
        self.model.load_state(arrays)
        self.version = version


class Package(Loaded):
    """A package of AOTInductor (.pt2). An answer is nested as that of the exported module.

    One row alone is computed as two where the package was compiled for two or more, as torch.export makes it of most modules.
    """

    def __init__(self, file: str, device: str) -> None:
        models = _models(device)
        # A package compares its arguments with what it was compiled for only when it is told to; else it would read
        # beyond them.
        os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
        self._file = file
        kind, _, number = device.partition(":")
        # Unpacked here, so that nothing is left of it should this process be killed. On a device, kernels are read later.
        self._folder = tempfile.TemporaryDirectory(prefix="shoal-package-")
        with zipfile.ZipFile(file) as packed:
            packed.extractall(self._folder.name)
        try:
            super().__init__(models.Package(self._folder.name, -1 if kind == "cpu" else int(number or 0)))
        except RuntimeError as error:
            raise ValueError(
                f"LibTorch cannot load {file!r}: {error}. Packages are for the torch and the kind of CPU or GPU that they were "
                "compiled with"
            ) from None
        finally:
            if kind == "cpu":
                self._folder.cleanup()
        if self.model.device != kind:
            raise ValueError(
                f"{file!r} was compiled for {self.model.device!r}, not for the device {device!r}: ModelService(device=…)"
            )
        try:
            takes, self._gives = (_nest(json.loads(text)[1]) for text in self.model.call_spec)
        except ValueError as error:
            raise ValueError(f"the call of {file!r} {error}") from None
        self._positional, self._by_keyword = takes.parts
        self._alone: bool | None = None  # whether it takes one row, once that is known

    def __call__(self, args: list[np.ndarray[Any, Any]], kwargs: dict[str, Any]) -> Any:
        arrays: list[np.ndarray[Any, Any]] = []
        _flatten(args, self._positional, "positional arguments", arrays)
        _flatten(kwargs, self._by_keyword, "keywords", arrays)
        return _nested(iter(self._run(arrays)), self._gives)

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


class Onnx(Loaded):
    """A model for ONNX Runtime, which is the user's own: the wheel onnxruntime or onnxruntime-gpu.

    Arguments are inputs by name, where they are keywords or in a dict, and the others in order. Several outputs are a tuple.
    """

    def __init__(self, file: str, device: str) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise ImportError(
                f"{file!r} needs ONNX Runtime, which cannot be imported ({error}): pip install onnxruntime"
            ) from error
        kind, _, number = device.partition(":")
        provider = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}.get(kind)
        if provider not in onnxruntime.get_available_providers():
            raise ValueError(
                f"this onnxruntime computes on {', '.join(onnxruntime.get_available_providers())}, not on the device {device!r}; "
                "for CUDA: pip install onnxruntime-gpu"
            )
        options = onnxruntime.SessionOptions()
        # As many threads as torch would use, which sleep while there is nothing to do: the workers need the CPUs.
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            session = onnxruntime.InferenceSession(
                file, options, providers=[(provider, {"device_id": number or "0"}) if kind == "cuda" else provider]
            )
        except Exception as error:
            raise ValueError(f"ONNX Runtime cannot load {file!r}: {error}") from None
        super().__init__(session)
        self._file = file
        self._names = [put.name for put in session.get_inputs()]

    def __call__(self, args: list[np.ndarray[Any, Any]], kwargs: dict[str, Any]) -> Any:
        given = dict(kwargs)
        for arg in args:
            if isinstance(arg, Mapping):
                given.update(arg)
        rest = [name for name in self._names if name not in given]
        positional = [arg for arg in args if not isinstance(arg, Mapping)]
        if len(positional) != len(rest) or not given.keys() <= set(self._names):
            raise TypeError(
                f"{self._file!r} takes {_listed(self._names)}; got {len(positional)} in that order and {_listed(given)}"
            )
        given.update(zip(rest, positional, strict=True))
        for name, value in given.items():
            if not isinstance(value, np.ndarray):
                raise TypeError(f"{self._file!r} takes arrays; got {_described(value)} for {name!r}")
        answers = self.model.run(None, given)
        return answers[0] if len(answers) == 1 else tuple(answers)

    def state(self) -> dict[str, Any]:
        raise TypeError(self._frozen())

    def set_state(self, state: Mapping[str, Any], version: int) -> None:
        raise TypeError(self._frozen())

    def _frozen(self) -> str:
        return (
            f"the weights of {self._file!r} cannot be updated or pinned: an ONNX file has them for good. Serve the "
            "torch.nn.Module itself, or TorchScript, where they are to change"
        )


def _models(device: str) -> Any:
    if device.partition(":")[0] != "cpu":
        import torch  # noqa: F401  # loads what LibTorch has for devices
    try:
        from shoal import _models
    except ImportError as error:
        raise ImportError(
            f"shoal._models, which runs models of files with LibTorch, cannot be loaded: {error}"
        ) from error
    return _models


def _arrays(state: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Those of unpack_state(): arrays, and tensors of dtypes that NumPy lacks, all of which float32 holds."""
    plain = {name: value.float() if hasattr(value, "detach") else value for name, value in state.items()}
    return {name: np.asarray(value, order="C") for name, value in plain.items()}


class Nest(NamedTuple):
    """How arrays are nested.

    Attributes:
        kind: "array", "tuple", "list" or "dict".
        keys: of a dict.
        parts: of all but an array.
    """

    kind: str
    keys: tuple[str, ...]
    parts: tuple[Nest, ...]


_KINDS = {
    None: "array",
    "builtins.tuple": "tuple",
    "builtins.list": "list",
    "builtins.dict": "dict",
    "collections.OrderedDict": "dict",
    "collections.namedtuple": "tuple",
}


def _nest(spec: Mapping[str, Any]) -> Nest:
    """Of a level of torch's pytrees in JSON: "type", "context" (of a dict: its keys) and "children_spec"."""
    kind = _KINDS.get(spec["type"])
    if kind is None:
        raise ValueError(f"has a {spec['type']} where rows are arrays, tuples, lists and dicts of them")
    keys = tuple(json.loads(spec["context"])) if kind == "dict" else ()
    return Nest(kind, keys, tuple(map(_nest, spec["children_spec"])))


def _flatten(tree: Any, nest: Nest, where: str, leaves: list[np.ndarray[Any, Any]]) -> None:
    """Appends the arrays of a call in their order. Raises TypeError where it is nested otherwise."""
    kind, keys, parts = nest
    if kind == "array":
        if not isinstance(tree, np.ndarray):
            raise TypeError(f"{where}: the package takes an array, got {_described(tree)}")
        leaves.append(tree)
    elif kind == "dict":
        if not isinstance(tree, Mapping) or tree.keys() != set(keys):
            raise TypeError(f"{where}: the package takes {_listed(keys)}, got {_described(tree)}")
        for key, part in zip(keys, parts, strict=True):
            _flatten(tree[key], part, f"{where}[{key!r}]", leaves)
    else:
        if not isinstance(tree, Sequence) or len(tree) != len(parts):
            raise TypeError(f"{where}: the package takes {len(parts)}, got {_described(tree)}")
        for given, part in zip(tree, parts, strict=True):
            _flatten(given, part, where, leaves)


def _nested(leaves: Iterator[np.ndarray[Any, Any]], nest: Nest) -> Any:
    kind, keys, parts = nest
    if kind == "array":
        return next(leaves)
    made = [_nested(leaves, part) for part in parts]
    if kind == "dict":
        return dict(zip(keys, made, strict=True))
    return made if kind == "list" else tuple(made)


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def _described(tree: Any) -> str:
    if isinstance(tree, Mapping):
        return _listed(tree)
    return str(len(tree)) if isinstance(tree, Sequence) else "an array"
