"""Programs as the libraries' tutorials have them, with the import changed: docs/migrating/programs.md says which originals were run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


def printed(folder: Path, text: str) -> list[str]:
    """The lines of a script."""
    script = folder / "program.py"
    script.write_text(textwrap.dedent(text))
    environment = {**os.environ, "SDL_VIDEODRIVER": "dummy", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, script], cwd=folder, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_tasks_over_queues_and_a_queue_that_is_read_after_its_writer(tmp_path: Path) -> None:
    assert printed(
        tmp_path,
        """
        from shoal.multiprocessing import Process, Queue, current_process, freeze_support

        def work(tasks, results):
            for function, arguments in iter(tasks.get, None):
                results.put((current_process().name.partition("-")[0], function(*arguments)))

        def power(base, exponent):
            return base**exponent

        def fill(queue):
            queue.put("x" * 500_000)

        if __name__ == "__main__":
            freeze_support()
            tasks, results = Queue(), Queue()
            for n in range(6):
                tasks.put((power, (n, 2)))
            workers = [Process(target=work, args=(tasks, results)) for _ in range(2)]
            for worker in workers:
                worker.start()
            print(sorted(results.get() for _ in range(6)))
            for _ in workers:
                tasks.put(None)
            queue = Queue()
            writer = Process(target=fill, args=(queue,))
            writer.start()
            writer.join()
            print(len(queue.get()))
        """,
    ) == [str([("Process", n * n) for n in range(6)]), "500000"]


def test_managers_of_ones_own_and_lists_in_shared_memory(tmp_path: Path) -> None:
    assert printed(
        tmp_path,
        """
        from shoal.multiprocessing import Lock, Process
        from shoal.multiprocessing.managers import BaseManager, BaseProxy, SharedMemoryManager
        from shoal.multiprocessing.sharedctypes import Array, Value

        class Ledger:
            def __init__(self): self.sums = {}
            def add(self, name, amount): self.sums[name] = self.sums.get(name, 0) + amount
            def total(self): return sum(self.sums.values())

        def countdown():
            yield from (3, 2, 1)

        class Counting(BaseProxy):
            _exposed_ = ["__next__"]
            def __iter__(self): return self
            def __next__(self): return self._callmethod("__next__")

        class Books(BaseManager):
            pass

        Books.register("Ledger", Ledger)
        Books.register("countdown", countdown, proxytype=Counting)

        def fill(numbers, first, last, total, names):
            for i in range(first, last):
                numbers[i] = i * i
            with total.get_lock():
                total.value += last - first
            names.value = names.value.upper()

        if __name__ == "__main__":
            with Books() as books:
                ledger = books.Ledger()
                ledger.add("a", 4)
                ledger.add("b", 5)
                print(ledger.total(), list(books.countdown()))
            total, names = Value("i", 0), Array("c", b"shoal", lock=Lock())
            with SharedMemoryManager() as memory:
                numbers = memory.ShareableList([0] * 8)
                halves = [Process(target=fill, args=(numbers, i, i + 4, total, names)) for i in (0, 4)]
                for half in halves:
                    half.start()
                for half in halves:
                    half.join()
                print(list(numbers), total.value, names.value)
        """,
    ) == ["9 [3, 2, 1]", "[0, 1, 4, 9, 16, 25, 36, 49] 8 b'SHOAL'"]


def test_a_pool_is_asked_in_all_ways(tmp_path: Path) -> None:
    assert printed(
        tmp_path,
        """
        import time
        import shoal.multiprocessing as mp

        pool = mp.Pool(2)

        def half(number):
            return number / 2

        with pool:  # made before the function, without a guard
            print(pool.map(half, range(3)), pool.apply(half, (5,)), sorted(pool.imap_unordered(half, [4, 2])))
            steps = pool.imap(half, range(2))
            print(next(steps), steps.next(timeout=60))
            try:
                pool.apply_async(time.sleep, (60,)).get(timeout=0.05)
            except mp.TimeoutError:
                print("late")
        """,
    ) == ["[0.0, 0.5, 1.0] 2.5 [1.0, 2.0]", "0.0 0.5", "late"]


def test_processes_train_a_module_that_torch_has_shared(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert printed(
        tmp_path,
        """
        import torch
        import shoal.multiprocessing as mp

        def train(model):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(30):
                rows = torch.randn(16, 2)
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(rows), rows.sum(1, keepdim=True)).backward()
                optimizer.step()

        if __name__ == "__main__":
            model = torch.nn.Linear(2, 1)
            model.share_memory()
            processes = [mp.Process(target=train, args=(model,)) for _ in range(2)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            print([process.exitcode for process in processes], torch.allclose(model.weight, torch.ones(1, 2), atol=0.05))
        """,
    ) == ["[0, 0] True"]


def test_stable_baselines3_trains_in_processes_and_normalises(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    assert printed(
        tmp_path,
        """
        import gymnasium as gym
        from stable_baselines3 import PPO
        from stable_baselines3.common.evaluation import evaluate_policy
        from shoal.compat.sb3 import DummyVecEnv, SubprocVecEnv, VecNormalize, make_vec_env

        def make_env(env_id, rank, seed=0):
            def init():
                env = gym.make(env_id)
                env.reset(seed=seed + rank)
                return env
            return init

        if __name__ == "__main__":
            envs = VecNormalize(SubprocVecEnv([make_env("Pendulum-v1", i) for i in range(2)]), clip_obs=10.0)
            model = PPO("MlpPolicy", envs, n_steps=32, batch_size=32, n_epochs=1, device="cpu").learn(64)
            model.save("pendulum")
            envs.save("statistics.pkl")
            envs.close()
            again = VecNormalize.load("statistics.pkl", make_vec_env("Pendulum-v1", n_envs=1))
            again.training = again.norm_reward = False
            model = PPO.load("pendulum", env=again, device="cpu")
            mean, _ = evaluate_policy(model, again, n_eval_episodes=1)
            print(type(again.unwrapped) is DummyVecEnv, model.num_timesteps, mean < 0)
        """,
    ) == ["True 64 True"]


def test_gymnasiums_randomised_environments_in_processes(tmp_path: Path) -> None:
    assert printed(
        tmp_path,
        """
        import gymnasium as gym
        import numpy as np
        from shoal.compat.gymnasium import AsyncVectorEnv

        lengths = np.random.default_rng(0).uniform(0.2, 0.8, 3)
        envs = AsyncVectorEnv([lambda length=length: gym.make("CartPole-v1", max_episode_steps=20) for length in lengths])
        envs.set_attr("length", list(lengths))
        envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
        envs.reset(seed=42)
        for step in range(60):
            states, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample())
        print(states.shape, len(envs.return_queue) >= 6, envs.env.get_attr("length") == tuple(lengths))
        envs.close()
        """,
    ) == ["(3, 4) True True"]
