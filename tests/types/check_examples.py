#!/usr/bin/env python3
"""What a user's own `mypy --strict` says of the examples: each folder is a program whose modules find each other by its path.

python tests/types/check_examples.py [ROOT]     `original.py` of a story is left out: others wrote such programs
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    failed = checked = 0
    for folder in sorted(path for path in (root / "examples").iterdir() if path.is_dir()):
        files = [str(file.relative_to(root)) for file in sorted(folder.glob("*.py")) if file.name != "original.py"]
        if not files:
            continue
        path = os.pathsep.join(("python", "examples", str(folder.relative_to(root))))
        told = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *files],
            cwd=root,
            env={**os.environ, "MYPYPATH": path},
        )
        failed += told.returncode != 0
        checked += len(files)
    print(f"{failed} examples have errors" if failed else f"no errors in {checked} files of examples")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
