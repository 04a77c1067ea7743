"""What a model of a file costs: microseconds a call, seconds and memory until it answers; TorchScript, and a package of AOTInductor.

    python benchmarks/models_of_files.py                      # --rounds 5
    python benchmarks/models_of_files.py --against ../before  # and another, built checkout, in turns

The model has two layers, 64-64-4, and is asked for 8 rows, in a fresh interpreter for each figure. A ratio is of one round's two
figures. Memory is what the process holds at its peak, without what the two have in common: a process that has imported shoal.serve.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KINDS = {"torchscript": "model.pt", "package": "model.pt2"}
CALLS = 200
"""In a row: short enough that some rows are disturbed by nobody."""


def write(folder: Path) -> None:
    """In a process of its own: compiling leaves threads."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4)).eval()
    torch.jit.script(model).save(str(folder / KINDS["torchscript"]))
    shapes = ({0: torch.export.Dim("rows", min=2, max=64)},)
    exported = torch.export.export(model, (torch.zeros(8, 64),), dynamic_shapes=shapes)
    configs = {"always_keep_tensor_constants": True}
    package = str(folder / KINDS["package"])
    torch._inductor.aoti_compile_and_package(exported, package_path=package, inductor_configs=configs)


def measure(file: str) -> None:
    """Prints a line of JSON."""
    import resource
    import time

    import numpy as np

    from shoal.serve.loading import load

    rows = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    model = load(file)
    model([rows], {})
    loaded = time.perf_counter() - start
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    for _ in range(1000):
        model([rows], {})
    times = []
    for _ in range(100):
        start = time.perf_counter()
        for _ in range(CALLS):
            model([rows], {})
        times.append((time.perf_counter() - start) / CALLS)
    print(json.dumps({"us": min(times) * 1e6, "seconds": loaded, "mib": memory}))


def child(tree: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree / "python"), "OMP_NUM_THREADS": "1"}
    command = [str(tree / ".venv/bin/python"), __file__, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path, help="another checkout, built and with its .venv")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.write)
    elif arguments.measure:
        measure(arguments.measure)
    else:
        compare(arguments.rounds, [ROOT, *([arguments.against.resolve()] if arguments.against else [])])


def compare(rounds: int, trees: list[Path]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        child(ROOT, "--write", folder)
        for kind, name in KINDS.items():
            found: list[list[dict[str, Any]]] = []
            for i in range(rounds):
                order = trees if i % 2 == 0 else trees[::-1]
                by_tree = {tree: json.loads(child(tree, "--measure", str(Path(folder) / name))) for tree in order}
                found.append([by_tree[tree] for tree in trees])
            for what, unit in (("us", "µs a call"), ("seconds", "s until it answers"), ("mib", "MiB")):
                print(f"{kind:12} {unit:20} {told(found, what)}", flush=True)


def told(found: list[list[dict[str, Any]]], what: str) -> str:
    """The least of each tree, and the median and range of the ratios."""
    columns = list(zip(*([each[what] for each in round_] for round_ in found), strict=True))
    text = "   ".join(f"{min(column):8.2f}" for column in columns)
    if len(columns) == 2:
        ratios = sorted(mine / other for mine, other in zip(*columns, strict=True))
        text += f"   ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} - {ratios[-1]:.2f})"
    return text


if __name__ == "__main__":
    main()
