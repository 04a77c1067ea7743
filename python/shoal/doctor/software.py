"""Which Python, which packages, and whether the extension modules load and fit them."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
import platform
import shlex
import sys
from pathlib import Path

from shoal.doctor.finding import Finding

_AREA = "software"
_MINIMUM_KERNEL = (5, 10)  # pidfd_getfd, close_range, memfd seals
_MINIMUM_TORCH = (2, 6)


def examine() -> list[Finding]:
    return [_kernel(), _python(), _core(), _torch(), *_packages()]


def _kernel() -> Finding:
    release = platform.release()
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    value = f"{platform.system()} {release} {platform.machine()}"
    if platform.system() != "Linux" or numbers < _MINIMUM_KERNEL:
        return Finding(_AREA, "kernel", value, "fail", "Shoal needs Linux 5.10 or newer")
    return Finding(_AREA, "kernel", value)


def _python() -> Finding:
    value = f"{platform.python_version()} at {sys.executable}"
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        remedy = f"python{sys.version_info.major}.{sys.version_info.minor} -m venv .venv"
        return Finding(_AREA, "Python", value, "warn", "a build without the GIL: Shoal is not tested on it", remedy)
    return Finding(_AREA, "Python", value)


def _core() -> Finding:
    from shoal._version import __version__

    advice = "build it: call ./shoal in a source folder, or pip install the package again"
    build = how_to_build()
    if not _is_built():
        python = ".".join(platform.python_version_tuple()[:2])
        return Finding(_AREA, "extension modules", f"not built for Python {python}", "fail", advice, build)
    try:
        core = importlib.import_module("shoal._core")
    except ImportError as error:
        return Finding(_AREA, "extension modules", f"_core does not load: {error}", "fail", advice, build)
    if core.version != __version__:
        advice = "call ./shoal, or pip install the package again, so that both are of one version"
        value = f"_core {core.version}, Python files {__version__}"
        return Finding(_AREA, "extension modules", value, "fail", advice, build)
    return Finding(_AREA, "extension modules", f"shoal {__version__}")


def how_to_build() -> str:
    """The command that makes the extension modules anew: of the source folder that this is, or of the package."""
    source = Path(__file__).resolve().parents[3]
    if (source / "shoal").is_file() and (source / "CMakeLists.txt").is_file():
        return f"{shlex.quote(str(source / 'shoal'))} doctor"
    return "pip install --force-reinstall --no-deps shoal"


def _is_built() -> bool:
    """Whether there is an extension module for this Python, be it one that does not load. Else `_core.py` is in its place."""
    spec = importlib.util.find_spec("shoal._core")
    return spec is not None and (spec.origin or "").endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))


def _torch() -> Finding:
    version = _version_of("torch")
    if version is None:
        return Finding(
            _AREA,
            "torch",
            "not installed",
            advice="tensors in queues and torch modules need it",
            remedy="pip install 'shoal[torch]'",
        )
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    if numbers < _MINIMUM_TORCH:
        remedy = "pip install --upgrade torch"
        return Finding(_AREA, "torch", version, "warn", "Shoal is tested with 2.6 and newer", remedy)
    return Finding(_AREA, "torch", version)


def _packages() -> list[Finding]:
    findings = []
    for name, need in (("gymnasium", "Python environments"), ("numpy", "everything")):
        version = _version_of(name)
        findings.append(_package(name, version, need, name, "fail"))
    findings.append(
        _package("safetensors", _version_of("safetensors"), "training torch modules", "safetensors", "warn")
    )
    for name, some, package in (
        ("Box2D", "LunarLander", "'shoal[box2d]'"),
        ("mujoco", "HalfCheetah", "'shoal[mujoco]'"),
        ("ale-py", "Atari", "'shoal[atari]'"),
        ("onnxruntime", "a model service of .onnx files", "onnxruntime"),
    ):
        version = _version_of(name)
        findings.append(_package(name, version, some, package, "ok"))
    return findings


def _package(name: str, version: str | None, who: str, package: str, status_without: str) -> Finding:
    if version is not None:
        return Finding(_AREA, name, version)
    return Finding(_AREA, name, "not installed", status_without, f"{who} needs it", f"pip install {package}")


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
