"""Runs the tests of tensors, and of policies that torch runs, with other releases of torch, on the extension modules that are built here.

    python tests/torch_releases.py                                  # 2.6.0, 2.9.1, 2.11.0 and the newest
    python tests/torch_releases.py 2.6.0 2.8.0 --keep               # these; their environments stay
    python tests/torch_releases.py newest -- -k storages            # arguments of pytest

Each release gets an environment in build/torch-releases, over the one of this interpreter: torch and what it asks for are its
own, all else is shared. An environment is deleted when its tests have run: on x86-64, PyPI's torch needs five gigabytes.
PIP_INDEX_URL and pip's other variables name another place to get torch from. The last lines have a count for each release.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RELEASES = ("2.6.0", "2.9.1", "2.11.0", "newest")
"""The oldest, and one for each way in which tensors are read and storages moved (docs/decisions/tensors-without-libtorch.md)."""
TESTS = (
    "test_mp_tensors.py",
    "test_mp_tensor_blocks.py",
    "test_mp_tensor_forms.py",
    "test_mp_tensor_storages.py",
    "test_mp_torch.py",
    "test_mp_hogwild.py",
    "test_mp_queues.py",
    "test_mp_pains.py",
    "test_mp_cuda.py",
    "test_mp_cuda_gpu.py",
    "test_learn_export.py",
    "test_learn_modules.py",
    "test_learn_policy.py",
    "test_serve_backends.py",
    "test_serve_package.py",
    "test_serve_weights.py",
)


def make(release: str, folder: Path) -> Path | None:
    """The interpreter of an environment with that release; None where it cannot be installed."""
    home = folder / release
    python = home / "bin" / "python"
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "--disable-pip-version-check",
        "--no-input",
        "install",
        "-q",
    ]
    requirement = "torch" if release == "newest" else f"torch=={release}"
    if subprocess.run([*pip, requirement], check=False).returncode:
        return None
    (site,) = home.glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(f"{ROOT / 'python'}\n{sysconfig.get_path('purelib')}\n")
    return python


def run(release: str, folder: Path, arguments: list[str]) -> tuple[int, str]:
    """The status of the tests with a release, and the line that tells of them."""
    python = make(release, folder)
    if python is None:
        return 0, f"left out: torch {release}: pip cannot install it"
    version = subprocess.run(
        [python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    tests = [f"tests/python/{name}" for name in TESTS]
    command = [python, "-m", "pytest", "-rs", "--color=no", "-p", "no:cacheprovider", *tests, *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    closing = ""
    for line in process.stdout:
        print(line, end="", flush=True)
        if re.search(r"\b\d+ \w+.* in [\d.]+s\b|no tests ran", line):
            closing = line.strip("=\n ")
    status = process.wait()
    return status, f"torch {version}: {closing or f'pytest left with status {status}'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="*", default=[], help="2.6.0, for example, or newest")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "torch-releases", help="where they are made")
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:at])
    failed, told = False, []
    for release in options.releases or RELEASES:
        status, line = run(release, options.folder, words[at + 1 :])
        failed |= status != 0
        told.append(line)
        if not options.keep:
            shutil.rmtree(options.folder / release, ignore_errors=True)
    print(*told, sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
