"""Models of files, run without Python. Use them through shoal.serve."""

from typing import Any

class TorchScript:
    """A file of torch.jit.save()."""

    def __init__(self, path: str, device: str) -> None:
        """RuntimeError says what LibTorch does not like in the file."""

    def run(self, args: list[Any], kwargs: dict[Any, Any]) -> Any:
        """
        forward() of C-contiguous arrays, tuples and dicts of them; its answer as arrays.
        """

    def state(self) -> dict[Any, Any]:
        """A copy of its parameters and buffers, by name."""

    def load_state(self, arrays: dict[Any, Any]) -> None:
        """New values of all of them, of their shapes."""

class Package:
    """A package of AOTInductor, unpacked."""

    def __init__(self, folder: str, device: int) -> None:
        """
        `device` is the number of a CUDA device; -1 on the CPU. The folder is not needed any more there.
        """

    @property
    def call_spec(self) -> list[str]:
        """
        How its arguments and its answer are nested, as torch's pytrees in JSON.
        """

    @property
    def device(self) -> str:
        """ "cpu" or "cuda", which it was compiled for."""

    def run(self, arrays: list[Any]) -> list[Any]:
        """The arrays of an answer for those of the arguments."""

    def state(self) -> dict[Any, Any]:
        """A copy of the weights that it has by name."""

    def load_state(self, arrays: dict[Any, Any]) -> None:
        """New values of them, of their shapes; all at once for the next run."""
