"""Models of files, run by the user's torch."""

from typing import Any

class Package:
    """The library of a package of AOTInductor, run by torch's C interface."""

    def __init__(self, torch_folder: str, path: str, device: str) -> None:
        """
        `torch_folder` has libtorch_cpu.so; `device` is "cpu", "cuda" or "cuda:0", which it was compiled for. The file is not needed any more on the CPU. RuntimeError says what torch does not like in it.
        """

    @property
    def is_complete(self) -> bool:
        """Whether no other loader does more with it. Only then may it be used."""

    @property
    def call_spec(self) -> tuple[str, str]:
        """
        How its arguments and its answer are nested, as torch's pytrees in JSON.
        """

    def run(self, arrays: list[Any]) -> list[Any]:
        """The arrays of an answer for those of the arguments, without the GIL."""

    def state(self) -> dict[Any, Any]:
        """A copy of the weights that it has by name."""

    def load_state(self, arrays: dict[Any, Any]) -> None:
        """New values of them, of their shapes; all at once for the next run."""
