"""A3C from Python: actors in processes, what every run has, going on after a stop and after deaths, and the same bits where there is
one actor in this process."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import shoal
from learn_runs import arrays

SMALL = {
    "num_steps": 5,
    "num_envs": 4,
    "total_steps": 4000,
    "log_interval": 3,
    "policy_hidden": [8],
    "value_hidden": [8],
    "normalize_reward": True,
    "eval_every": 1000,
    "eval_episodes": 3,
    "eval_envs": 2,
    "final_episodes": 4,
    "target_return": None,
}
ROLLOUT = 5 * 2
"""Steps of a rollout of each of two actors with `SMALL`."""


def lines(run_dir: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run_dir / "progress.jsonl").read_text().splitlines()]


def learner_state(run_dir: Path) -> dict[str, float]:
    state: dict[str, float] = json.loads((run_dir / "checkpoints/last/state.json").read_text())["learner"]
    return state


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("env", ["CartPole-v1", "shoal/CartPole-v1"])
def test_cartpole_is_learned_and_its_policy_acts(tmp_path, env):
    for seed in (3, 4, 5):  # which actor is first depends on timing, and some one run in twenty does not get there
        result = shoal.learn.train(
            env, "a3c", seed=seed, num_workers=2, run_dir=tmp_path / f"run{seed}", target_return=475
        )
        if result.ending == "target":
            break
    assert result.ending == "target"
    assert result.mean_return >= 475 and result.evaluated_episodes == 100
    run = json.loads((result.run_dir / "config.json").read_text())
    assert (run["algorithm"], run["preset"], run["config"]["algorithm"]) == ("a3c", "CartPole-v1", "a3c")
    assert shoal.learn.evaluate(result.run_dir, episodes=20, seed=12).mean_return >= 450
    policy = shoal.learn.load_policy(result.run_dir)
    assert policy.config["algorithm"] == "a3c"
    batch = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    assert np.array_equal(shoal.learn.torch_policy(result.run_dir).predict(batch), policy.predict(batch))


def test_a_run_leaves_what_every_run_leaves_and_says_how_old_weights_were(tmp_path):
    with shoal.learn.Trainer("CartPole-v1", "a3c", num_workers=2, run_dir=tmp_path, **SMALL) as trainer:
        pids = trainer._actors.pids
        assert len(pids) == 2
        assert trainer.status()["phase"] == "ready"
        trainer.start()
        assert trainer.wait()
        status, result = trainer.status(), trainer.result()
    assert not any(map(alive, pids))
    assert status["step"] == 4000
    assert result.steps == status["step"] == status["iteration"] * ROLLOUT
    assert status["policy_lag"] >= 0 and status["approx_kl"] is None
    assert status["episodes"] == result.episodes > 0 and status["ep_return_mean"] > 0
    assert result.evaluated_episodes == 4 and result.ending == "budget"
    records = lines(tmp_path)
    assert [record["step"] for record in records] == sorted(record["step"] for record in records)
    losses = [record for record in records if "train/loss" in record]
    assert 0 <= losses[-1]["train/learning_rate"] < trainer.config["learning_rate"]
    assert losses and all(record["train/policy_lag"] >= 0 for record in losses)
    assert any("charts/episodic_return" in record for record in losses)
    assert any("eval/mean_reward" in record for record in records)
    state = learner_state(tmp_path)
    assert state["iteration"] == state["optimizer_steps"] == status["iteration"]
    assert set(arrays(tmp_path)) == {"policy.safetensors", "optim.safetensors", "envs.safetensors"}


def test_a_run_that_was_stopped_goes_on_from_its_checkpoint(tmp_path):
    options = SMALL | {"total_steps": 10**9}  # actors do not wait while the run evaluates
    shoal.learn.train("CartPole-v1", "a3c", num_workers=2, run_dir=tmp_path, pause_at_step=1500, **options)
    stopped = learner_state(tmp_path)
    assert stopped["steps"] >= 1500
    total = int(stopped["steps"]) + 2000
    with shoal.learn.Trainer(run_dir=tmp_path, resume=True, num_workers=3, total_steps=total) as trainer:
        assert len(trainer._actors.pids) == 3
        assert trainer.status()["step"] == stopped["steps"]
        trainer.start()
        trainer.wait()
        assert trainer.status()["resume"] == "anew"
        assert trainer.result().steps >= total
        assert trainer.status()["episodes"] > stopped["episodes"]
    assert learner_state(tmp_path)["optimizer_steps"] > stopped["optimizer_steps"]


def test_in_this_process_one_actor_gives_the_same_bits_and_goes_on_exactly(tmp_path):
    for name in ("first", "second"):
        shoal.learn.train("CartPole-v1", "a3c", seed=9, num_workers=0, run_dir=tmp_path / name, **SMALL)
    assert arrays(tmp_path / "first") == arrays(tmp_path / "second")
    shoal.learn.train(
        "CartPole-v1", "a3c", seed=9, num_workers=0, run_dir=tmp_path / "parts", pause_at_step=700, **SMALL
    )
    with shoal.learn.Trainer(run_dir=tmp_path / "parts", resume=True) as trainer:
        assert trainer._actors is None, "as the run began"
        trainer.start()
        trainer.wait()
        assert trainer.status()["resume"] == "exact"
    assert arrays(tmp_path / "parts") == arrays(tmp_path / "first")


def test_a_run_with_actors_does_not_go_on_without(tmp_path):
    shoal.learn.train("CartPole-v1", "a3c", num_workers=2, run_dir=tmp_path, pause_at_step=500, **SMALL)
    with pytest.raises(ValueError, match="has actors in processes.*leave out num_workers=0"):
        shoal.learn.train(run_dir=tmp_path, resume=True, num_workers=0)


class Numbered(gymnasium.Env):
    """Says in its observation which environment of all it is, and how long its episode has been going on."""

    observation_space = gymnasium.spaces.Box(-1000, 1000, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, log: str | None = None) -> None:
        self.number = shoal.worker().env_index
        self.log = log
        self.steps = 0

    def observation(self) -> np.ndarray:
        return np.array([self.number, self.steps], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.log is not None:
            with open(f"{self.log}/{self.number}", "a") as file:
                file.write(f"{seed} {os.getpid()}\n")
        self.steps = 0
        return self.observation(), {}

    def step(self, action):
        self.steps += 1
        return self.observation(), 1.0, self.steps == 10 + self.number, False, {}

    def close(self) -> None:
        if self.log is not None:
            with open(f"{self.log}/closed-{self.number}", "a") as file:
                file.write("1\n")


def test_each_actor_has_its_share_of_the_environments_with_seeds_of_their_own(tmp_path):
    log = tmp_path / "log"
    log.mkdir()
    options = SMALL | {"num_envs": 5, "eval_envs": 1, "total_steps": 1000, "normalize_reward": False}
    run = {"num_workers": 2, "env_kwargs": {"log": str(log)}, "run_dir": tmp_path / "run"}
    with shoal.learn.Trainer(Numbered, "a3c", seed=4, **run, **options) as trainer:
        pids = trainer._actors.pids
        trainer.start()
        trainer.wait()
    firsts = {}
    for number in range(5):
        of_actors = [line.split() for line in (log / str(number)).read_text().splitlines()]
        of_actors = [(seed, int(pid)) for seed, pid in of_actors if int(pid) in pids]
        firsts[number] = of_actors[0]
        assert (log / f"closed-{number}").exists()
    assert [pids.index(pid) for _, pid in firsts.values()] == [0, 0, 0, 1, 1]
    assert len({seed for seed, _ in firsts.values()}) == 5 and "None" not in dict(firsts.values())
    returns = {record["eval/mean_reward"] for record in lines(tmp_path / "run") if "eval/mean_reward" in record}
    assert returns == {10.0}


class Failing(Numbered):
    def step(self, action):
        if self.number == 3 and self.steps == 5:
            raise ArithmeticError("the simulator is out of order")
        return super().step(action)


def test_what_an_environment_raises_ends_the_run_and_nothing_is_left(tmp_path):
    options = SMALL | {"eval_every": 0, "eval_envs": 1, "total_steps": 10**9}
    with shoal.learn.Trainer(Failing, "a3c", num_workers=2, run_dir=tmp_path, **options) as trainer:
        pids = trainer._actors.pids
        trainer.start()
        with pytest.raises(ArithmeticError, match="out of order"):
            trainer.wait(60)
    assert not any(map(alive, pids))


class Hanging(Numbered):
    def step(self, action):
        if self.number == 3 and self.steps == 5:
            time.sleep(600)
        return super().step(action)


def test_an_environment_that_hangs_ends_the_run_and_the_error_says_where(tmp_path):
    options = SMALL | {"eval_every": 0, "eval_envs": 1, "total_steps": 10**9, "step_timeout": 0.5}
    with shoal.learn.Trainer(Hanging, "a3c", num_workers=2, run_dir=tmp_path, **options) as trainer:
        pids = trainer._actors.pids
        trainer.start()
        with pytest.raises(TimeoutError, match=rf"actor 1 \(pid {pids[1]}\) has not stepped .* for 0.5 s") as caught:
            trainer.wait(60)
    assert "in step" in str(caught.value) and Path(__file__).name in str(caught.value)
    assert not any(map(alive, pids))


class LongGames(Numbered):
    """Where it is evaluated."""

    def step(self, action):
        if shoal.worker().num_workers == 1:  # there are two actors
            time.sleep(0.01)
        return super().step(action)


@pytest.mark.parametrize("forgiven", [3, 0])
def test_a_death_is_seen_while_the_run_evaluates(tmp_path, forgiven):
    options = SMALL | {"eval_envs": 1, "eval_episodes": 10_000, "total_steps": 10**9, "max_restarts": forgiven}
    with shoal.learn.Trainer(LongGames, "a3c", num_workers=2, run_dir=tmp_path, **options) as trainer:
        trainer.start()
        while trainer.status()["phase"] != "evaluating":
            assert not trainer.wait(0.01)
        os.kill(trainer._actors.pids[0], signal.SIGKILL)
        if forgiven:
            while trainer._actors.handle.replaced == 0:
                assert not trainer.wait(0.01)
            assert trainer.status()["phase"] == "evaluating"
        else:
            with pytest.raises(shoal.WorkerDied, match="SIGKILL"):
                trainer.wait(60)


def test_actors_that_were_never_needed_are_ended(tmp_path):
    trainer = shoal.learn.Trainer("CartPole-v1", "a3c", num_workers=2, run_dir=tmp_path, **SMALL)
    pids = trainer._actors.pids
    trainer.close()
    assert not any(map(alive, pids))


def test_a_trainer_that_nobody_holds_ends_its_actors(tmp_path):
    trainer = shoal.learn.Trainer(
        "CartPole-v1", "a3c", num_workers=2, run_dir=tmp_path, **SMALL | {"total_steps": 10**9}
    )
    pids = trainer._actors.pids
    trainer.start()
    while trainer.status()["step"] < 100:
        assert not trainer.wait(0.01)
    trainer.stop()
    trainer.wait(30)
    del trainer
    until = time.monotonic() + 30
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(map(alive, pids))


def test_actors_hold_no_gpu_and_one_thread(tmp_path):
    with shoal.learn.Trainer("CartPole-v1", "a3c", num_workers=1, run_dir=tmp_path, **SMALL) as trainer:
        trainer.start()
        while trainer.status()["step"] == 0:
            assert not trainer.wait(0.01)
        (pid,) = trainer._actors.pids
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        maps = Path(f"/proc/{pid}/maps").read_text()
        trainer.stop()
        trainer.wait()
    assert b"CUDA_VISIBLE_DEVICES=" in environment
    assert "libcuda" not in maps and "libtorch" not in maps


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip_range": 0.1}, 'a3c has no option "clip_range", which is one of ppo'),
        ({"max_restarts": -1}, "max_restarts"),
        ({"restart_window": 0}, "restart_window"),
        ({"step_timeout": -1}, "step_timeout"),
        ({"preset": "sb3"}, 'a3c has no preset "sb3"'),
        ({"normalize_obs": True}, "a3c's actors share no running mean"),
        ({"backend": "thread"}, 'backend=.thread. is not for a3c|backend="thread"'),
        ({"backend": "process"}, "step their environments themselves"),
        ({"num_workers": -1}, "num_workers"),
    ],
)
def test_a_wrong_option_is_one_clear_error(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        shoal.learn.train("CartPole-v1", "a3c", run_dir=tmp_path / "run", **options)


def test_a_task_without_a_preset_takes_the_first():
    assert shoal.learn.preset_for("Mine-v0", "a3c") == shoal.learn.preset_names("a3c")[0] == "default"
    assert set(shoal.learn.config_names("a3c")) == set(shoal.learn.preset("default", "a3c"))
