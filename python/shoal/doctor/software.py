"""Which Python, which packages, and whether the extension modules load and fit them."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
import platform
import sys

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
        return Finding(_AREA, "Python", value, "warn", "a build without the GIL: Shoal is not tested on it")
    return Finding(_AREA, "Python", value)


def _core() -> Finding:
    from shoal._version import __version__

    advice = "build it: call ./shoal in a source folder, or pip install the package again"
    if not _is_built():
        python = ".".join(platform.python_version_tuple()[:2])
        return Finding(_AREA, "extension modules", f"not built for Python {python}", "fail", advice)
    try:
        core = importlib.import_module("shoal._core")
    except ImportError as error:
        return Finding(_AREA, "extension modules", f"_core does not load: {error}", "fail", advice)
    if core.version != __version__:
        advice = "call ./shoal, or pip install the package again, so that both are of one version"
        return Finding(_AREA, "extension modules", f"_core {core.version}, Python files {__version__}", "fail", advice)
    return Finding(_AREA, "extension modules", f"shoal {__version__}")


def _is_built() -> bool:
    """Whether there is an extension module for this Python, be it one that does not load. Else `_core.py` is in its place."""
    spec = importlib.util.find_spec("shoal._core")
    return spec is not None and (spec.origin or "").endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))


def _torch() -> Finding:
    version = _version_of("torch")
    if version is None:
        return Finding(
            _AREA, "torch", "not installed (tensors in queues and torch modules need it: pip install 'shoal[torch]')"
        )
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    if numbers < _MINIMUM_TORCH:
        return Finding(
            _AREA, "torch", version, "warn", "Shoal is tested with 2.6 and newer: pip install --upgrade torch"
        )
    return Finding(_AREA, "torch", version)


def _packages() -> list[Finding]:
    findings = []
    for name, need in (("gymnasium", "Python environments"), ("numpy", "everything")):
        version = _version_of(name)
        advice = "" if version else f"{need} needs it: pip install {name}"
        findings.append(Finding(_AREA, name, version or "not installed", "ok" if version else "fail", advice))
    for name, some, package in (
        ("Box2D", "LunarLander", "'shoal[box2d]'"),
        ("mujoco", "HalfCheetah", "'shoal[mujoco]'"),
        ("ale-py", "Atari", "'shoal[atari]'"),
        ("onnxruntime", "a model service of .onnx files", "onnxruntime"),
    ):
        version = _version_of(name)
        advice = "" if version else f"{some} needs it: pip install {package}"
        findings.append(Finding(_AREA, name, version or "not installed", "ok", advice))
    return findings


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
