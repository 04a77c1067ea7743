"""The GPUs that this process may give to workers, without asking a driver."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["visible_gpus"]


def visible_gpus(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> list[str]:
    """The NVIDIA GPUs that CUDA would show here, as CUDA_VISIBLE_DEVICES names them: its own list where it is set, else
    "0", "1", … for those of the kernel's driver.

    Args:
        environ: the variables.
        root: of /proc and /dev.
    """
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        files = [path for path in (root / "dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
        known = list((root / "proc/driver/nvidia/gpus").glob("*"))
        return [str(i) for i in range(min(len(files), len(known)) if known else len(files))]
    names: list[str] = []
    for name in (part.strip() for part in listed.split(",")):
        if not re.fullmatch(r"\d+|(GPU|MIG)-[\w/-]+", name) or name in names:
            break  # as CUDA does: what follows is not seen either
        names.append(name)
    return names
