"""What one model for all workers is worth: memory, start time and steps/s of the same environment, with its model held in
different ways.

    python examples/segmentation/compare.py [--write] [--seconds 4] [--rounds 3] [--envs 1 4 16 64]

Every measurement is a fresh program with one environment a worker; the rounds alternate. Memory is the proportional set size (PSS) of all its
processes together, start time is until the first observations are there. `--write` puts the table into README.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from rich.progress import Progress
from segmented_world import SegmentedWorld, load_model

import shoal

sys.path.append(str(Path(__file__).resolve().parents[1]))
from measuring import memory_of_tree

HOLDERS = {
    "base": "in this process, a model each",
    "gymnasium-1": "Gymnasium's `AsyncVectorEnv` (`forkserver`), a model each, one thread each",
    "gymnasium": "the same as it comes, with as many threads in each worker as there are CPUs",
    "fork": "workers of `fork`, a model each",
    "forkserver": "workers of `forkserver`, a model each",
    "spawn": "workers of `spawn`, a model each",
    "service": "workers of `forkserver`, one `ModelService` with a server a CPU",
    "package": "the same service, the model compiled (AOTInductor)",
}
# Shoal's workers have one thread each; others' are told by these.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# Whom a service is compared with: first those that have as many threads as it gives its workers.
COMPARED = ("gymnasium-1", "forkserver", "gymnasium")
# Longer than this a start is not waited for; the next size would take longer still.
START_LIMIT = 100.0
README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- written by compare.py -->\n", "<!-- end -->\n"

Cell = dict[str, float] | None
"""What measure() returned; None where it did not start, or hardly stepped."""


def make(holder: str, envs: int, service: Any = None) -> gymnasium.vector.VectorEnv:
    if holder.startswith("gymnasium"):
        return gymnasium.vector.AsyncVectorEnv([own_model] * envs, context="forkserver")
    kwargs = {"segmenter": "own" if service is None else "service"}
    if holder == "base":
        return shoal.make_vec(SegmentedWorld, envs, backend="serial", env_kwargs=kwargs, max_episode_steps=100)
    options: dict[str, Any] = {"start_timeout": START_LIMIT}
    if service is not None:
        options["models"] = service
    elif holder != "spawn":
        options["preload"] = ["segmenter"]  # torch is imported once, and its memory shared
    return shoal.make_vec(
        SegmentedWorld,
        envs,
        num_workers=envs,
        backend="process",
        context="forkserver" if service is not None else holder,
        env_kwargs=kwargs,
        max_episode_steps=100,
        worker=shoal.WorkerOptions(**options),
    )


def own_model() -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(SegmentedWorld("own"), 100)


def serve(model: Any, instances: int) -> shoal.ModelService:
    """With a server a CPU and one thread each: two that share a model's arithmetic wait for each other where workers spin."""
    preload = ["segmenter"] if model is load_model else []  # torch is imported once for all of them
    return shoal.ModelService(
        {"segment": model}, max_batch=64, max_delay=0.005, threads=1, instances=instances, preload=preload
    )


def measure(holder: str, envs: int, seconds: float, package: str) -> dict[str, float]:
    """Of this process, which must not have done anything else before.

    Args:
        package: file of the compiled model.

    Returns:
        "start" [s], "memory" [MB], "rate" [steps/s].
    """
    began = time.monotonic()
    if holder == "base":
        import torch

        torch.set_num_threads(1)  # as in a worker
    service = None
    if holder in ("service", "package"):
        service = serve(load_model if holder == "service" else package, min(envs, len(os.sched_getaffinity(0))))
    try:
        vec = make(holder, envs, service)
        vec.reset(seed=0)
        start = time.monotonic() - began
        random = np.random.default_rng(0)
        for _ in range(3):
            vec.step(random.integers(4, size=envs))
        steps, began = 0, time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            vec.step(random.integers(4, size=envs))
            steps += envs
        memory = memory_of_tree()
        vec.close()
    finally:
        if service is not None:
            service.close()
    return {"start": start, "memory": memory / 1e6, "rate": steps / passed}


def measured_in_a_program(holder: str, envs: int, seconds: float, package: str) -> Cell:
    """None where it does not start, or does not step, in time."""
    command = [sys.executable, __file__, "--one", holder, "--envs", str(envs), "--seconds", str(seconds)]
    command += ["--package", package]
    pipe = subprocess.PIPE
    env = os.environ | (ONE_THREAD if holder == "gymnasium-1" else {})
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True, env=env) as program:
        try:
            out, errors = program.communicate(timeout=START_LIMIT + seconds + 60)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)  # with its workers
            return None
    if program.returncode != 0:
        if "StartFailed" in errors or "TimeoutError" in errors:
            return None
        raise RuntimeError(f"{holder} with {envs} environments failed:\n{errors}")
    measured: dict[str, float] = json.loads(out.splitlines()[-1])
    return measured


def table(figures: dict[str, dict[int, list[Cell]]], seconds: float) -> str:
    """As Markdown: steps/s with their range, memory and start time of each, in the median of its rounds; and how many times as
    fast the services were, round by round."""
    sizes = sorted(next(iter(figures.values())))
    rounds = max(len(cells) for row in figures.values() for cells in row.values())
    text = (
        f"{os.cpu_count()} CPUs ({platform.machine()}), {rounds} round{'s' if rounds > 1 else ''} of {seconds:g} s: steps/s (from – to) · MB · "
        "seconds until the first observations.\n\n"
    )
    text += "| the model | " + " | ".join(f"{n} env{'s' if n > 1 else ''}" for n in sizes) + " |\n"
    text += "|---|" + "---:|" * len(sizes) + "\n"
    for holder, row in figures.items():
        text += f"| {HOLDERS[holder]} | " + " | ".join(_text(row[n]) for n in sizes) + " |\n"
    if any(None in cells for row in figures.values() for cells in row.values()):
        text += f"\n–: not all workers had started after {START_LIMIT:.0f} s, or four steps took a minute.\n"
    most = 16 if 16 in sizes else sizes[-1]
    for mine, theirs in itertools.product(("service", "package"), COMPARED):
        pairs = zip(figures.get(mine, {}).get(most, []), figures.get(theirs, {}).get(most, []), strict=False)
        times = [ours["rate"] / other["rate"] for ours, other in pairs if ours and other]
        if times:
            text += (
                f"\n{most} environments, {HOLDERS[mine]}: {statistics.median(times):.1f} ({min(times):.1f} – "
                f"{max(times):.1f}) times as fast as {HOLDERS[theirs]}.\n"
            )
    return text


def _text(cells: list[Cell]) -> str:
    done = [cell for cell in cells if cell]
    if len(done) < len(cells) or not done:
        return "–"
    rate, memory, start = (statistics.median(cell[name] for cell in done) for name in ("rate", "memory", "start"))
    rates = [cell["rate"] for cell in done]
    reach = f" ({min(rates):,.0f} – {max(rates):,.0f})" if len(done) > 1 else ""
    return f"**{rate:,.0f}**{reach} · {memory:,.0f} · {start:.1f}"


def write(text: str) -> None:
    """Puts the table into README.md, in the place of the last one."""
    whole = README.read_text()
    before, _, rest = whole.partition(BEGIN)
    README.write_text(before + BEGIN + text + END + rest.partition(END)[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--holders", nargs="+", choices=HOLDERS, default=list(HOLDERS))
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each, alternating")
    parser.add_argument("--write", action="store_true", help="the table goes into README.md")
    parser.add_argument("--one", choices=HOLDERS, help=argparse.SUPPRESS)
    parser.add_argument("--package", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.envs[0], arguments.seconds, arguments.package)))
        return
    with tempfile.TemporaryDirectory() as folder:
        text = compare(arguments, Path(folder) / "unet.pt2")
    print(text)
    if arguments.write:
        write(text)


def compare(arguments: argparse.Namespace, package: Path) -> str:
    """The table."""
    if "package" in arguments.holders:
        program = f"import segmenter; segmenter.compile_package({str(package)!r})"
        subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent, check=True)
    figures: dict[str, dict[int, list[Cell]]] = {
        holder: {envs: [] for envs in sorted(arguments.envs)} for holder in arguments.holders
    }
    with Progress(transient=True) as progress:
        task = progress.add_task("measuring", total=arguments.rounds * len(figures) * len(arguments.envs))
        for _ in range(arguments.rounds):
            for envs in sorted(arguments.envs):
                for holder, row in figures.items():
                    progress.update(task, advance=1, description=f"{holder}, {envs}")
                    hopeless = any(None in cells for cells in row.values())  # larger ones take longer still
                    cell = None if hopeless else measured_in_a_program(holder, envs, arguments.seconds, str(package))
                    row[envs].append(cell)
    return table(figures, arguments.seconds)


if __name__ == "__main__":
    main()
