"""Which GPUs this process could see. Opens no driver: a CUDA context here would cost memory and forbid fork."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

from shoal.doctor.finding import Finding

_AREA = "accelerators"


def examine() -> list[Finding]:
    return [_gpus(), _visible(), _this_process()]


def gpus(proc: Path = Path("/proc/driver/nvidia/gpus")) -> list[str]:
    """The models of the NVIDIA GPUs that the kernel's driver shows."""
    names = []
    for file in sorted(proc.glob("*/information")):
        try:
            model = [
                line.partition(":")[2].strip() for line in file.read_text().splitlines() if line.startswith("Model")
            ]
        except OSError:
            continue
        names.append(model[0] if model else "unknown")
    return names


def _gpus() -> Finding:
    names = gpus()
    nodes = list(Path("/dev").glob("nvidia[0-9]*"))
    if not names and not nodes:
        return Finding(_AREA, "GPUs", "none", advice="nothing in Shoal needs one")
    value = f"{len(names) or len(nodes)}" + (f": {', '.join(names)}" if names else "")
    if names and not nodes:
        return Finding(_AREA, "GPUs", value, "warn", "no device file in this container: docker run --gpus all")
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    if version.endswith("+cpu"):
        return Finding(_AREA, "GPUs", value, "ok", f"not used: torch {version} is built for the CPU")
    return Finding(_AREA, "GPUs", value)


def _visible() -> Finding:
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return Finding(
            _AREA, "CUDA_VISIBLE_DEVICES", "not set", advice="all GPUs for this process, none for the workers"
        )
    count = 0 if value in ("", "-1", "NoDevFiles") else len([part for part in value.split(",") if part.strip()])
    advice = "hides every GPU from this process" if count == 0 else f"{count} for this process, none for the workers"
    return Finding(_AREA, "CUDA_VISIBLE_DEVICES", repr(value), "ok", advice)


def _this_process() -> Finding:
    maps = Path("/proc/self/maps").read_text()
    loaded = [library for library in ("libcuda.so", "libmpi.so", "libnccl.so") if library in maps]
    if loaded:
        return Finding(
            _AREA, "loaded libraries", ", ".join(loaded), "ok", "fork of this process is unsafe; auto does not fork it"
        )
    return Finding(_AREA, "loaded libraries", "none of CUDA, MPI, NCCL")
