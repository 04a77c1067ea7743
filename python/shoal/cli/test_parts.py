"""The parts of `shoal test --all`: the suite, then what is rare, long, or needs more than a clean clone."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from shoal.cli.test_job import Failed, Job, LeftOut, skips

KILL_ROUNDS = 100
RANK_KILLS = 50
SOAK_STEPS = 10_000_000
RANDOM_PROGRAMS = 5000
FUZZ_RUNS = 10_000_000
FUZZ_SECONDS = 2000  # of a target at most: those that start processes or segments for each input are slow
WHEEL_MINORS = (10, 11, 12, 13, 14)
"""Of Python 3: those that wheels are made for."""
_RANKS = "tests/crash/test_ranks.py"
SOLVED = 475.0
"""Mean return at which CartPole-v1 counts as solved."""


@dataclass(frozen=True)
class Part:
    name: str
    what: str
    minutes: float  # its deadline, several times what two cores take
    run: Callable[[Job], str]  # returns its closing count


def suite(job: Job) -> str:
    return _shoal_test(job)


def kills(job: Job) -> str:
    cpp = _shoal_test(job, "-k", "AtRandom", SHOAL_CRASH_ROUNDS=str(KILL_ROUNDS))
    return f"{cpp}; {job.pytest('tests/crash', '--ignore', _RANKS, '--crash-rounds', KILL_ROUNDS)}"


def soak(job: Job, *arguments: object) -> str:
    lines = job.run([sys.executable, "benchmarks/soak.py", "--steps", SOAK_STEPS, *arguments])
    result = json.loads(lines[-1])
    closing = f"{result['steps']:,} steps, {sum(result['reported'].values()):,} faults, each told once; nothing grew"
    return closing + (f"; {result['worker_recycles']:,} workers replaced" if result["worker_recycles"] else "")


def random_programs(job: Job) -> str:
    closing = job.pytest("tests/python/test_vector_random.py", "--random-programs", RANDOM_PROGRAMS)
    return f"{RANDOM_PROGRAMS:,} programs; {closing}"


def sanitizer(job: Job, name: str) -> str:
    return _shoal_test(job, "--sanitize", name)


def _shoal_test(job: Job, *arguments: str, **variables: str) -> str:
    """The closing counts of `shoal test`."""
    status, lines = job.outcome([sys.executable, "-m", "shoal.cli", "test", *arguments], cwd=None, **variables)
    job.left_out += skips(lines)
    job.left_out += [line.removeprefix("left out: ") for line in lines if line.startswith("left out: ")]
    counts = [line.split(maxsplit=1)[1] for line in lines if re.match(r"(C\+\+|Python) +\S", line)]
    if status or not counts:
        raise Failed("; ".join(counts) or f"shoal test left with status {status}")
    return "; ".join(counts)


def fuzz(job: Job) -> str:
    build = job.source / "build" / "fuzz"
    job.run(["cmake", "-S", job.source, "--preset", "fuzz", f"-DPython_EXECUTABLE={sys.executable}"])
    job.run(["ninja", "-C", build, "-j", len(os.sched_getaffinity(0)), "fuzzers"])
    status, lines = job.outcome(
        [
            sys.executable,
            "tests/fuzz/run.py",
            build,
            "--runs",
            FUZZ_RUNS,
            "--seconds",
            FUZZ_SECONDS,
            "--found",
            job.folder,
        ]
    )
    counts = {
        found[1]: int(found[2])
        for line in lines
        if (found := re.match(r"(\w+): (\d+) inputs made of .*; nothing found$", line))
    }
    if status or not counts:
        failed = [line for line in lines if re.match(r"\w+: left with status", line)]
        raise Failed("; ".join(failed) or f"the runner left with status {status}")
    whole = [name for name, count in counts.items() if count >= FUZZ_RUNS]
    fewer = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count < FUZZ_RUNS)
    return f"{len(whole)} targets with {FUZZ_RUNS:,} inputs" + (f"; {fewer}" if fewer else "") + ": nothing found"


def cpython(job: Job) -> str:
    if importlib.util.find_spec("test._test_multiprocessing") is None:
        raise LeftOut("this interpreter comes without its package `test` (Debian: libpython3-testsuite)")
    status, lines = job.outcome([sys.executable, "tests/conformance/cpython_multiprocessing.py"])
    counts = [line for line in lines if re.match(r"(fork|forkserver|spawn): \d", line)]
    if status or len(counts) != 3:
        raise Failed("; ".join(counts) or f"the runner left with status {status}")
    return "; ".join(counts)


def torch(job: Job) -> str:
    files = ("test_multiprocessing.py", "test_multiprocessing_spawn.py")
    there = f"https://raw.githubusercontent.com/pytorch/pytorch/v{version('torch').partition('+')[0]}/test/{files[0]}"
    sources = _copies(job, files, there)
    arguments = [word for source in sources for word in ("--source", source)]
    return job.count([sys.executable, "tests/conformance/torch_multiprocessing.py", *arguments, "--", "-rs"])


def torch_releases(job: Job) -> str:
    status, lines = job.outcome([sys.executable, "tests/torch_releases.py"])
    job.left_out += skips(lines)
    job.left_out += [line.removeprefix("left out: ") for line in lines if line.startswith("left out: ")]
    counts = [line for line in lines if re.match(r"torch \d\S*: ", line)]
    if status:
        raise Failed("; ".join(counts) or f"the runner left with status {status}")
    if not counts:
        raise LeftOut("; ".join(job.left_out) or "no release of torch was tested")
    return "; ".join(counts)


def gymnasium(job: Job) -> str:
    there = f"https://github.com/Farama-Foundation/Gymnasium/archive/refs/tags/v{version('gymnasium')}.tar.gz"
    sources = _copies(job, ("gymnasium.tar.gz",), there)
    arguments = ["--source", sources[0]] if sources else []
    return job.count([sys.executable, "tests/conformance/gymnasium_vector.py", *arguments, "--", "-rs"])


def sb3(job: Job) -> str:
    name = f"stable_baselines3-{version('stable_baselines3')}.tar.gz"
    copy = job.copies and job.copies / name
    arguments = ["--source", copy] if copy and copy.is_file() else []
    python = job.environment_over("sb3", "-r", job.source / "requirements-sb3.txt")
    return job.count([python, "tests/conformance/sb3_vec_env.py", *arguments, "--", "-rs"])


def ding(job: Job) -> str:
    """Our tests of the adapter, and DI-engine's own, in the environment of the benchmarks' peer."""
    python, paths = _peer(job, "ding")
    own = job.pytest("-W", "ignore", *_tests(job, "ding"), python=python, **paths)
    theirs = job.count([python, "tests/conformance/ding_managers.py", "--", "-rs"], **paths)
    return f"DI-engine's own: {theirs}; ours: {own}"


def tianshou(job: Job) -> str:
    return _adapter(job, "tianshou", "tianshou", "thu-ml/tianshou", "tianshou_vector.py")


def torchrl(job: Job) -> str:
    return _adapter(job, "torchrl", "TorchRL", "pytorch/rl", "torchrl_envs.py")


def envpool(job: Job) -> str:
    """Our tests of the adapter, some of them beside EnvPool itself."""
    python, paths = _peer(job, "envpool")
    return job.pytest(*_tests(job, "envpool"), python=python, **paths)


def ray(job: Job) -> str:
    """Our tests of the adapter, and of the examples, in the environment of the benchmarks' peer."""
    python, paths = _peer(job, "ray")
    examples = (f"tests/python/test_example_{name}.py" for name in ("rllib", "ray"))
    return job.pytest(*_tests(job, "ray"), *examples, python=python, **paths)


def tracking(job: Job) -> str:
    python = job.environment_over("tracking", "-r", job.source / "requirements-tracking.txt")
    return job.pytest("tests/python/test_examples_tracking.py", python=python)


def _adapter(job: Job, peer: str, name: str, repository: str, runner: str) -> str:
    """Our tests of an adapter, and its peer's own out of a repository, in the environment of the benchmarks' peer."""
    (requirement,) = re.findall(rf"^{peer}==(.+)$", (job.source / f"benchmarks/peers/{peer}.txt").read_text(), re.M)
    there = f"https://github.com/{repository}/archive/refs/tags/v{requirement}.tar.gz"
    sources = _copies(job, (f"{repository.partition('/')[2]}-{requirement}.tar.gz",), there)
    python, paths = _peer(job, peer)
    own = job.pytest(*_tests(job, peer), python=python, **paths)
    arguments = ["--source", sources[0]] if sources else []
    theirs = job.count([python, f"tests/conformance/{runner}", *arguments, "--", "-rs"], **paths)
    return f"{name}'s own: {theirs}; ours: {own}"


def _peer(job: Job, name: str) -> tuple[Path, dict[str, str]]:
    """The interpreter of the environment of a benchmarks' peer, and the variables by which it finds Shoal."""
    job.run(["benchmarks/peers/setup", name])
    peers = Path(job.environment.get("SHOAL_PEERS") or job.source / "build" / "peers")
    return peers / name / "bin" / "python", {"PYTHONPATH": str(job.source / "python")}


def _tests(job: Job, peer: str) -> list[Path]:
    """Of an adapter."""
    return sorted((job.source / "tests" / "python").glob(f"test_compat_{peer}*.py"))


def _copies(job: Job, names: tuple[str, ...], address: str) -> list[Path]:
    """The files in the folder of copies; none where they can be fetched."""
    found = [job.copies / name for name in names] if job.copies else []
    if found and all(path.is_file() for path in found):
        return found
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=30):
            return []
    except (urllib.error.URLError, OSError) as error:
        raise LeftOut(
            f"cannot fetch {address} ({error}); --copies names a folder that has {' and '.join(names)}"
        ) from None


def mpi(job: Job) -> str:
    counts = []
    for name, library in (("mpi", "Open MPI"), ("mpich", "MPICH")):
        python = job.environment_over(name, "-r", job.source / f"requirements-{name}.txt")
        path = f"{python.parent}{os.pathsep}{job.environment.get('PATH', os.defpath)}"
        counts.append(f"{library}: {job.pytest('tests/python/test_mpi.py', python=python, PATH=path)}")
    return "; ".join(counts)


def hosts(job: Job) -> str:
    with contextlib.suppress(LeftOut):  # test_srun.py says what is missing, and the rest runs
        job.need_program("slurmctld", "slurm-wlm", "munge")
    return job.pytest("tests/hosts")


def ranks(job: Job) -> str:
    return job.pytest(_RANKS, "--crash-rounds", 2 * RANK_KILLS)


def video(job: Job) -> str:
    python = job.environment_over("video", "-r", job.source / "requirements-video.txt")
    return job.pytest("tests/python/test_vector_wrappers.py", python=python)


def docs(job: Job) -> str:
    job.run([sys.executable, "-m", "shoal.cli", "docs"])  # installs what it needs
    return job.pytest("tests/site")


def install(job: Job) -> str:
    """`pip install .` into an empty environment, which then trains and evaluates CartPole."""
    return f"installed; CartPole-v1 trained to {_trained(job, sys.executable, 'install', job.source)}"


def wheels(job: Job) -> str:
    """The wheel of every Python that is found, in an empty environment, which then trains and evaluates CartPole."""
    out = job.folder / "wheels"
    shutil.rmtree(out, ignore_errors=True)
    found = _pythons()
    results = []
    for minor in WHEEL_MINORS:
        if minor not in found:
            job.left_out.append(f"no Python 3.{minor} was found")
            continue
        job.run([job.source / ".ci/wheel", "--new", "--out", out, found[minor]])
        (wheel,) = out.glob(f"*-cp3{minor}-*.whl")
        trained = _trained(job, found[minor], f"wheel-3.{minor}", wheel)
        results.append(f"3.{minor}: {wheel.stat().st_size / 1e6:.1f} MB, {trained}")
    return "CartPole-v1 trained by each wheel. " + "; ".join(results)


def _pythons() -> dict[int, str]:
    """An interpreter of each Python 3 that is on the path or that pyenv has installed, by its minor version."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {}
    for minor in WHEEL_MINORS:
        name = f"python3.{minor}"
        for candidate in (shutil.which(name), *sorted(versions.glob(f"3.{minor}.*/bin/{name}"))):
            if candidate is None:
                continue
            probe = [candidate, "-c", "import sys, venv, ensurepip; print(sys._base_executable)"]
            done = subprocess.run(probe, capture_output=True, text=True)
            if done.returncode == 0:
                found[minor] = done.stdout.strip()
    return found


_SENDS_AN_ARRAY = """
import numpy
import shoal.multiprocessing as mp

with mp.Pool(1) as pool:
    print(pool.apply(lambda array: array.sum(), (numpy.ones(3),)))
"""
"""With whichever NumPy pip takes there: the newest, and not the one that the other tests are pinned to."""


def _trained(job: Job, python: str, name: str, package: Path) -> str:
    """Installs a package into an empty environment, trains and evaluates CartPole there: its mean return and steps."""
    home, elsewhere = job.folder / f"environment-{name}", job.folder / f"installed-{name}"
    for folder in (home, elsewhere):
        shutil.rmtree(folder, ignore_errors=True)
    elsewhere.mkdir()
    job.run([python, "-m", "venv", home])
    job.run([home / "bin/python", "-m", "pip", "--disable-pip-version-check", "--no-input", "install", package])
    away = {"PYTHONPATH": "", "PATH": f"{home / 'bin'}{os.pathsep}{os.defpath}"}
    (where,) = job.run([home / "bin/python", "-c", "import shoal; print(shoal.__file__)"], cwd=elsewhere, **away)
    if not Path(where).is_relative_to(home):
        raise Failed(f"the installed package is not used, but {where}")
    (sent,) = job.run([home / "bin/python", "-c", _SENDS_AN_ARRAY], cwd=elsewhere, **away)
    if sent != "3.0":
        raise Failed(f"a process that was sent an array answered {sent!r}")
    train = [home / "bin/shoal", "train", "CartPole-v1", "--seed", "1", "--run-dir", "run", "--quiet", "--json"]
    trained = json.loads(job.run(train, cwd=elsewhere, **away)[-1])
    evaluate = [home / "bin/shoal", "eval", "run", "--episodes", "20", "--seed", "2", "--json"]
    mean = json.loads(job.run(evaluate, cwd=elsewhere, **away)[-1])["mean_return"]
    if mean < SOLVED:
        raise Failed(f"the installed package trained CartPole-v1 to a mean return of {mean:.1f}, below {SOLVED:g}")
    return f"a mean return of {mean:.1f} in {trained['steps']:,} steps"


def peers(job: Job) -> str:
    _, lines = job.outcome(["benchmarks/peers/setup"])
    job.left_out += [line for line in lines if line.startswith("peers: could not be made")]
    return job.pytest("tests/python/test_bench_adapters.py", "tests/python/test_bench.py")


def weights(job: Job) -> str:
    found = json.loads(job.run([sys.executable, "benchmarks/weights.py"])[-1])
    return (
        f"{found['reads']:,} reads under {found['updates']:,} updates ({found['updates_per_second']:,} a second): "
        f"{found['torn']} torn, {found['older']} older than one before"
    )


def gpu(job: Job) -> str:
    return job.pytest("-m", "gpu", "tests/python")


PARTS = (
    Part("suite", "`./shoal test`", 120, suite),
    Part("kills", f"{KILL_ROUNDS} kills of each kind in `tests/crash` and in C++", 600, kills),
    Part("soak-sync", "`benchmarks/soak.py`: ten million steps among faults", 240, soak),
    Part("soak-async", "the same by `send` and `recv`", 240, lambda job: soak(job, "--mode", "async")),
    Part("soak-memory", "the same, with environments that leak", 240, lambda job: soak(job, "--memory-limit", "150")),
    Part("random", f"{RANDOM_PROGRAMS:,} random programs against Gymnasium", 240, random_programs),
    Part("weights", "`benchmarks/weights.py`: a million reads of weights that change", 60, weights),
    Part("thread", "the C++ tests under ThreadSanitizer", 300, lambda job: sanitizer(job, "thread")),
    Part("address", "the C++ tests under AddressSanitizer", 300, lambda job: sanitizer(job, "address")),
    Part(
        "fuzz",
        f"{FUZZ_RUNS:,} inputs that nobody would write for each reader (`tests/fuzz`), or as many as {FUZZ_SECONDS} s have",
        340,
        fuzz,
    ),
    Part("cpython", "CPython's tests of `multiprocessing`, three start methods", 180, cpython),
    Part("torch", "PyTorch's tests of `torch.multiprocessing`", 60, torch),
    Part("torch-releases", "the tests of tensors with other releases of torch", 240, torch_releases),
    Part("gymnasium", "Gymnasium's tests of vector environments", 60, gymnasium),
    Part("sb3", "Stable-Baselines3's tests that build vectorised environments", 120, sb3),
    Part(
        "tianshou", "tianshou's vectorised environments: our tests, and its own of them and of collectors", 90, tianshou
    ),
    Part("torchrl", "TorchRL's batched environments and collectors: our tests, and its own", 120, torchrl),
    Part("ding", "DI-engine's environment managers: our tests, and its own of managers and collectors", 90, ding),
    Part("envpool", "EnvPool's names: our tests, Atari's games beside EnvPool itself", 60, envpool),
    Part(
        "ray",
        "Ray's actors as collectors, killed and on two nodes, Ray Train's workers as ranks, trials of Tune; RLlib over Shoal's vector environment",
        90,
        ray,
    ),
    Part("tracking", "training that Weights & Biases, MLflow and Optuna follow", 30, tracking),
    Part("mpi", "workers, processes, and ranks that train, under `mpirun -n 2` of Open MPI and of MPICH", 30, mpi),
    Part(
        "hosts",
        "network namespaces as hosts: `torchrun --nnodes 2` and `srun -N 2` train CartPole-v1 to 475",
        60,
        hosts,
    ),
    Part("ranks", f"{RANK_KILLS} random kills of ranks that train together", 60, ranks),
    Part("video", "Gymnasium's wrappers, with moviepy", 30, video),
    Part("peers", "the adapters of all peers of the benchmarks", 90, peers),
    Part("docs", "`./shoal docs`, and what its pages link to", 60, docs),
    Part("install", "`pip install .` into an empty environment, CartPole trained there", 120, install),
    Part("wheels", "the wheel of each Python that is found, CartPole trained with it", 180, wheels),
    Part("gpu", "what needs a CUDA device", 60, gpu),
)
