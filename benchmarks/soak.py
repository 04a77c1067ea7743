"""Steps environments that crash, hang and raise at random, and accounts for every step and every fault.

    python benchmarks/soak.py                      # 10 million steps
    python benchmarks/soak.py --steps 100000 --mean 40
    python benchmarks/soak.py --mode async         # send() and recv(), half of the environments a batch
    python benchmarks/soak.py --memory-limit 150   # environments leak, and workers are replaced at 150 MiB

Every row of every batch must be what its environment's history says (a step, a reset, or a row that is no transition for a
fault that is known); every fault that is injected must be reported once, by its kind; memory, descriptors and processes of
this process and of the zygote must be at the end what they were after the warm-up. Prints one JSON line, and ends with 1
when anything is amiss.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import shoal

STEP, RAISE, KILL, EXIT, SEGFAULT, HANG = range(6)
KIND = {RAISE: "exception", KILL: "killed", EXIT: "exit", SEGFAULT: "killed", HANG: "hang"}
WEIGHT = {RAISE: 10, KILL: 4, EXIT: 4, SEGFAULT: 4, HANG: 1}
EXTERNAL = 4
"""Weight of a kill from outside, at any moment of a step or between two."""

LENGTH = 200
"""Steps of an episode."""


class Unstable(gymnasium.Env):
    """Observes how many steps its episode has; does what its action says. Its process keeps `leak` bytes an episode."""

    observation_space = spaces.Box(0, LENGTH, (1,), np.int64)
    action_space = spaces.Discrete(6)

    leaked: list[bytearray] = []

    def __init__(self, leak: int = 0) -> None:
        self.observation = np.zeros(1, np.int64)
        self.leak = leak

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.observation[0] = 0
        if self.leak:
            self.leaked.append(bytearray(b"x" * self.leak))
        return self.observation, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if action:
            self._misbehave(int(action))
        self.observation[0] += 1
        return self.observation, 1.0, bool(self.observation[0] >= LENGTH), False, {}

    @staticmethod
    def _misbehave(action: int) -> None:
        if action == RAISE:
            raise RuntimeError("injected")
        if action == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == EXIT:
            os._exit(3)
        if action == SEGFAULT:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGSEGV)
        while True:
            time.sleep(1)


class Books:
    """What every row must be next, and what was found."""

    def __init__(self, num_envs: int) -> None:
        self.length = np.zeros(num_envs, np.int64)  # of each row's episode
        self.over = np.zeros(num_envs, bool)  # its next row is a reset, or no transition
        self.rows = collections.Counter[str]()
        self.injected = collections.Counter[str]()
        self.reported = collections.Counter[str]()
        self.numbers = set[int]()
        self.pending: tuple[int, str] | None = None  # the environment that is to fail by its next action, and how

    @property
    def outstanding(self) -> bool:
        """Whether a fault was injected that nobody has told of yet."""
        return self.injected.total() > self.reported.total()

    def check(self, result: tuple[Any, ...], ids: np.ndarray) -> None:
        """`ids`: the environments of the rows."""
        observations, rewards, terminated, truncated, infos = result
        length, over = self.length[ids], self.over[ids]
        fault = infos.get("_fault", False)
        down = infos.get("down", False)
        lost = np.logical_or(fault, down) if "fault" in infos or "down" in infos else np.zeros(len(over), bool)
        observed = observations[:, 0]
        steps, resets = ~lost & ~over, ~lost & over
        assert (observed[steps] == length[steps] + 1).all() and (rewards[steps] == 1).all()
        assert (terminated[steps] == (observed[steps] >= LENGTH)).all() and not truncated[~lost].any()
        assert (observed[resets] == 0).all() and not (rewards[~steps].any() or terminated[~steps].any())
        assert truncated[lost].all()
        self.rows.update(step=int(steps.sum()), reset=int(resets.sum()), lost=int(lost.sum()))
        self.length[ids] = observed
        self.over[ids] = terminated | truncated
        for record in infos["fault"][fault] if "fault" in infos else ():
            if record.number not in self.numbers:
                self.reported[record.kind] += 1
                self.numbers.add(record.number)
        if not self.outstanding:
            self.pending = None
        elif self.pending and (row := ids == self.pending[0]).any() and not steps[row].any():
            # Its worker had ended before: the row tells of that, and nobody has seen the action.
            self.injected[self.pending[1]] -= 1
            self.pending = None


class Steps:
    """Steps all environments at a time."""

    def __init__(self, envs: shoal.VectorEnv, books: Books) -> None:
        self.envs, self.books = envs, books
        self.ids = np.arange(envs.num_envs)  # whose actions come next
        self.rows_a_batch = envs.num_envs

    def advance(self, actions: np.ndarray) -> None:
        self.books.check(self.envs.step(actions), self.ids)

    def round(self) -> None:
        """One harmless step of every environment."""
        self.advance(np.zeros(self.envs.num_envs, np.int64))


class Arrivals:
    """Steps whoever is ready; all are in flight but for those of the last batch."""

    def __init__(self, envs: Any, books: Books) -> None:
        self.envs, self.books = envs, books
        self.rows_a_batch = envs.batch_size
        everybody = np.arange(envs.num_envs)
        envs.send(np.zeros(len(everybody), np.int64), everybody)
        self._receive()

    def advance(self, actions: np.ndarray) -> None:
        self.envs.send(actions, self.ids)
        self._receive()

    def round(self) -> None:
        for _ in range(self.envs.num_envs // self.rows_a_batch):
            self.advance(np.zeros(self.rows_a_batch, np.int64))

    def _receive(self) -> None:
        result = self.envs.recv()
        self.ids = result[4]["env_id"].copy()
        self.books.check(result, self.ids)


def usage() -> dict[str, int]:
    """Of this process and its zygotes: own memory in MiB, descriptors, processes."""
    zygotes = [launcher.zygote_pid for launcher in sys.modules["shoal.process._launcher"]._launchers.values()]
    found = {}
    for name, pid in [("parent", os.getpid()), *[(f"zygote{i}", pid) for i, pid in enumerate(zygotes)]]:
        resident, shared = map(int, Path(f"/proc/{pid}/statm").read_text().split()[1:3])
        found[f"{name}_mib"] = (resident - shared) * os.sysconf("SC_PAGE_SIZE") >> 20
        found[f"{name}_descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))
        found[f"{name}_children"] = sum(
            len((task / "children").read_text().split()) for task in Path(f"/proc/{pid}/task").iterdir()
        )
    return found


def settle(driver: Steps | Arrivals, alone: bool) -> dict[str, int]:
    """Steps until every environment is back, and looks; `alone`: at a moment when no worker has a successor."""
    books, envs = driver.books, driver.envs
    while True:
        driver.round()
        if not (books.over.any() or books.outstanding) and all(
            worker["state"] in ("idle", "stepping") for worker in envs.health()
        ):
            time.sleep(0.3)  # for what the ended workers have left to be collected
            found = usage()
            if not alone or sum(
                found[key] for key in found if key.startswith("zygote") and key.endswith("children")
            ) == len(envs.health()):
                return found


def inject(dice: random.Random, driver: Steps | Arrivals, actions: np.ndarray) -> None:
    """At most one fault at a time, so that each is seen: another one of the same worker would not happen."""
    books = driver.books
    choice = dice.choices([*WEIGHT, None], [*WEIGHT.values(), EXTERNAL])[0]
    row = dice.randrange(len(driver.ids))
    if choice is not None:
        if not books.over[driver.ids[row]]:  # else its action is ignored
            actions[row] = choice
            books.injected[KIND[choice]] += 1
            books.pending = (int(driver.ids[row]), KIND[choice])
        return
    worker = dice.choice(driver.envs.health())
    if worker["state"] in ("idle", "stepping") and worker["pid"]:
        os.kill(worker["pid"], signal.SIGKILL)
        books.injected["killed"] += 1


def soak(arguments: argparse.Namespace) -> dict[str, Any]:
    dice = random.Random(arguments.seed)
    policy = shoal.FaultPolicy("restart", max_restarts=10**9, backoff=0.0, step_timeout=arguments.step_timeout)
    a_batch = {"batch_size": arguments.envs // 2} if arguments.mode == "async" else {}
    limit = arguments.memory_limit * 2**20 or None
    leak = 2**20 if limit else 0
    worker = shoal.WorkerOptions(memory_limit=limit, memory_hard_limit=limit and 2**40)
    envs: Any = shoal.make_vec(
        lambda: Unstable(leak), arguments.envs, num_workers=arguments.workers, on_fault=policy, worker=worker, **a_batch
    )
    books = Books(arguments.envs)
    envs.reset(seed=arguments.seed)
    driver = Arrivals(envs, books) if a_batch else Steps(envs, books)
    warm_up, before = max(1, arguments.steps // 20), None
    start, next_note = time.monotonic(), arguments.steps // 10
    until_next = 1
    while books.rows["step"] < arguments.steps:
        actions = np.zeros(driver.rows_a_batch, np.int64)
        until_next -= 1
        if until_next <= 0 and not books.outstanding:
            inject(dice, driver, actions)
            until_next = 1 + int(dice.expovariate(1 / arguments.mean))
        driver.advance(actions)
        if before is None and books.rows["step"] >= warm_up:
            before = settle(driver, bool(limit))
        if books.rows["step"] >= next_note:
            next_note += arguments.steps // 10
            print(f"{books.rows['step']:>11,} steps, {sum(books.reported.values())} faults", usage(), file=sys.stderr)
    seconds = time.monotonic() - start
    after = settle(driver, bool(limit))
    health = collections.Counter[str]()
    for worker in envs.health():
        health.update(worker["faults"])
    restarts = sum(worker["restarts"] for worker in envs.health())
    recycles = sum(worker["recycles"] for worker in envs.health())
    batches = envs.stats()["steps"]
    envs.close()
    result = {
        "mode": arguments.mode,
        "steps": books.rows["step"],
        "resets": books.rows["reset"],
        "lost_rows": books.rows["lost"],
        "batches": batches,
        "seconds": round(seconds, 1),
        "injected": dict(sorted(books.injected.items())),
        "reported": dict(sorted(books.reported.items())),
        "worker_restarts": restarts,
        "worker_recycles": recycles,
        "before": before,
        "after": after,
    }
    problems = []
    if limit and not recycles:
        problems.append("no worker was replaced for its memory")
    if books.injected != books.reported or +health != books.reported:
        problems.append(f"injected {books.injected}, reported {books.reported}, counted by health() {+health}")
    if sum(books.rows.values()) != batches * driver.rows_a_batch:
        problems.append(f"{sum(books.rows.values())} rows in {batches} batches of {driver.rows_a_batch}")
    for key, value in after.items():
        if value > before[key] + (arguments.mib if key.endswith("_mib") else 0):
            problems.append(f"{key} rose from {before[key]} to {value}")
    return {**result, "problems": problems}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["sync", "async"], default="sync")
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mean", type=float, default=100.0, help="batches between two faults, in the mean")
    parser.add_argument("--step-timeout", type=float, default=0.3)
    parser.add_argument("--mib", type=int, default=4, help="by how much memory may rise (default: %(default)s)")
    parser.add_argument(
        "--memory-limit", type=int, default=0, help="MiB of a worker whose environments leak 1 MiB an episode"
    )
    parser.add_argument("--seed", type=int, default=1)
    result = soak(parser.parse_args())
    print(json.dumps(result))
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
