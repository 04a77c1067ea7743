"""One contestant in a process of its own: builds a vector environment, then steps it for as long as it is told.

Run by path with the interpreter of the contestant, which may have no Shoal. The first line of stdin is the task as JSON
(adapter, mode, workload, num_envs, num_workers); each further line is a number of seconds to step for. Every line is answered
by one of stdout: {"versions": …, "settings": …}, then {"steps": …, "seconds": …}. End of input ends the process.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent


def provide_package() -> None:
    """Makes this folder `shoal.bench` where there is no Shoal, without what the package imports for others."""
    if sys.path and Path(sys.path[0]).resolve() == HERE:
        del sys.path[0]  # no peer shall find these files under names of its own
    try:
        import shoal.bench  # noqa: F401
    except ImportError:
        for name, paths in (("shoal", []), ("shoal.bench", [str(HERE)])):
            package = ModuleType(name)
            package.__path__ = paths
            sys.modules[name] = package


def versions(peer: str) -> dict[str, str]:
    """What the contestant is made of."""
    found = {"python": sys.version.split()[0]}
    for name in ("shoal", "gymnasium", "numpy", "torch", peer):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    return found


def main() -> None:
    # What environments print must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    provide_package()
    from shoal.bench.measuring import Task

    asked = json.loads(sys.stdin.readline())
    with ExitStack() as closing:
        adapter = importlib.import_module(f"shoal.bench.adapters.{asked.pop('adapter')}")
        task = Task(**asked, closing=closing)
        measure = adapter.MODES[task.mode](task)
        print(json.dumps({"versions": versions(adapter.PACKAGE), "settings": task.settings}), file=answers)
        for line in sys.stdin:
            steps, seconds = measure(float(line))
            print(json.dumps({"steps": steps, "seconds": seconds}), file=answers)


if __name__ == "__main__":
    main()
