"""TorchScript: what torch.jit.save() wrote, run by the user's torch."""

from __future__ import annotations

import warnings
from typing import Any

from shoal.serve.in_python import InPython, device_of

__all__ = ["TorchScript"]


class TorchScript(InPython):
    """A file of torch.jit.save(). An answer is nested as forward()'s is; a named tuple is a tuple.

    The GIL is free while the model computes.
    """

    def __init__(self, file: str, device: str) -> None:
        try:
            import torch
        except ImportError as error:
            raise ImportError(
                f"{file!r} is TorchScript, which torch runs, and that cannot be imported ({error}): pip install 'shoal[torch]'"
            ) from error
        place = device_of(device)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # whoever has such a file has been told
                model: Any = torch.jit.load(file, map_location=place)
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"torch {torch.__version__} cannot load {file!r}: {error}. Where operators are missing, give a function "
                "without arguments that imports what has them and returns torch.jit.load(…)"
            ) from None
        super().__init__(model, device)
