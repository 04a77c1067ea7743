"""Models of files: which kind a file is; ONNX models, run by the user's onnxruntime."""

from __future__ import annotations

import json
import os
import re
import shlex
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal.serve.loaded import Loaded
from shoal.serve.nesting import described, listed
from shoal.serve.package import Package
from shoal.serve.torchscript import TorchScript

__all__ = ["Onnx", "load_file"]

_OF_TORCH_EXPORT = re.compile(r"/models/[^/]+\.json$|(^|/)serialized_exported_program\.json$")
"""A name in what torch.export.save() writes: since torch 2.8, and before."""


def load_file(path: str | os.PathLike[str], device: str) -> Loaded:
    """By what the file is, whatever its name; ONNX by the ending .onnx.

    Raises:
        ValueError: for what is none of these, with what it is instead where that is known.
        ImportError: for a missing onnxruntime or torch.
    """
    file = os.fspath(path)
    if file.endswith(".onnx"):
        return Onnx(file, device)
    names = zipfile.ZipFile(file).namelist() if zipfile.is_zipfile(file) else []
    if any("data/aotinductor/" in name for name in names):
        return Package(file, device)
    if any(name.endswith("/constants.pkl") for name in names):
        return TorchScript(file, device)
    if any(map(_OF_TORCH_EXPORT.search, names)):
        given, compiled = map(json.dumps, (file, f"{os.path.splitext(file)[0]}-compiled.pt2"))
        program = f"import torch; torch._inductor.aoti_compile_and_package(torch.export.load({given}), package_path={compiled})"
        what = (
            "is what torch.export.save() wrote (`shoal export --to torch`, too), which AOTInductor has not compiled yet. This "
            f"compiles it, into the file to give instead: python -c {shlex.quote(program)}"
        )
    elif any(name.endswith("/data.pkl") for name in names):
        what = (
            "is what torch.save() wrote: give a function without arguments that makes the module and loads it, "
            "or what torch.jit.save() writes"
        )
    else:
        what = "is no TorchScript file, no package of AOTInductor (.pt2) and not named .onnx"
    raise ValueError(f"{file!r} {what}")


class Onnx(Loaded):
    """A model for ONNX Runtime, which is the user's own: the wheel onnxruntime or onnxruntime-gpu.

    Arguments are inputs by name, where they are keywords or in a dict, and the others in order. Several outputs are a tuple.
    """

    can_read = can_change = False

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
                f"{self._file!r} takes {listed(self._names)}; got {len(positional)} in that order and {listed(given)}"
            )
        given.update(zip(rest, positional, strict=True))
        for name, value in given.items():
            if not isinstance(value, np.ndarray):
                raise TypeError(f"{self._file!r} takes arrays; got {described(value)} for {name!r}")
        answers = self.model.run(None, given)
        return answers[0] if len(answers) == 1 else tuple(answers)

    def state(self) -> dict[str, Any]:
        raise TypeError(self._frozen())

    def set_state(self, state: Mapping[str, Any], version: int) -> None:
        raise TypeError(self._frozen())

    def _frozen(self) -> str:
        return (
            f"the weights of {self._file!r} cannot be updated: an ONNX file has them for good. Serve the "
            "torch.nn.Module itself, or TorchScript, where they are to change"
        )
