"""Which GPUs this process could see. Opens no driver: a CUDA context here would cost memory and forbid fork."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from shoal.doctor import containers
from shoal.doctor.finding import Finding

_AREA = "accelerators"


def examine() -> list[Finding]:
    return [_gpus(), _visible(), _this_process(), _holders()]


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
        remedy = containers.run("--gpus all")
        return Finding(_AREA, "GPUs", value, "warn", "no device file in this container", remedy)
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
        return Finding(_AREA, "loaded libraries", ", ".join(loaded))
    return Finding(_AREA, "loaded libraries", "none of CUDA, MPI, NCCL")


class Holder(NamedTuple):
    """A process that holds memory of a GPU."""

    pid: int
    command: str
    devices: tuple[str, ...]  # device files that it has open; none where it could not be looked into
    mebibytes: int | None = None  # as nvidia-smi says, where it does


def holders(proc: Path = Path("/proc"), used: dict[int, int] | None = None) -> list[Holder]:
    """The processes that have a GPU open, which whoever has a CUDA or HIP context does, and those that `used` names.

    Args:
        proc: where processes are.
        used: MiB of GPU memory by process, as nvidia-smi tells.
    """
    used = used or {}
    found = []
    for folder in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        pid = int(folder.name)
        devices = _open_devices(folder / "fd")
        if devices or pid in used:
            found.append(Holder(pid, _command(folder), devices, used.get(pid)))
    seen = {holder.pid for holder in found}
    return found + [Holder(pid, "not of this container", (), used[pid]) for pid in sorted(used) if pid not in seen]


def _open_devices(folder: Path) -> tuple[str, ...]:
    devices = set()
    try:
        for link in folder.iterdir():
            try:
                target = os.readlink(link)
            except OSError:
                continue  # closed meanwhile
            # Not nvidiactl, which those who only ask for figures have open as well.
            if re.fullmatch(r"/dev/(nvidia\d+|nvidia-uvm|kfd)", target):
                devices.add(target)
    except OSError:
        pass  # ended, or another user's
    return tuple(sorted(devices))


def _command(folder: Path) -> str:
    try:
        text = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        text = ""
    return text if len(text) <= 60 else text[:59] + "…"


def _used_memory() -> dict[int, int]:
    """MiB of GPU memory by process, from nvidia-smi; empty without it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    query = [program, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    used: dict[int, int] = {}
    for pid, memory in re.findall(r"^(\d+),\s*(\d+)\s*$", text, re.MULTILINE):
        used[int(pid)] = used.get(int(pid), 0) + int(memory)
    return used


def _holders() -> Finding:
    found = holders(used=_used_memory())
    if not found:
        return Finding(_AREA, "GPU memory", "held by no process that can be seen from here")
    lines = []
    for holder in found:
        memory = "" if holder.mebibytes is None else f" {holder.mebibytes} MiB"
        where = f" on {', '.join(holder.devices)}" if holder.devices else ""
        lines.append(f"{holder.pid} ({holder.command}){memory}{where}")
    return Finding(
        _AREA, "GPU memory", "; ".join(lines), advice='workers hold none unless they are given gpu="own" or gpu="lease"'
    )
