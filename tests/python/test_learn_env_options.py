"""What makes a run's environments (keyword arguments, time limit, frame stack, reward clip, wrappers): from the flags of
`shoal train` or the arguments of `train` into the run, and out of it again for evaluations, drawings and resuming."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import shoal
from cli_calls import assert_one_line
from shoal.cli import main

SHORT = ["--total-steps", "256", "--num-envs", "4", "--quiet"]
SHORT += [
    f"--set={s}" for s in ("final_episodes=6", "eval_episodes=2", "eval_envs=2", "eval_every=128", "num_steps=16")
]
TASK = """
    import gymnasium
    import numpy as np

    class Worth(gymnasium.Env):
        '''Never ends; every step is worth what it was told.'''
        metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
        observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, worth=1.0, colour=None, render_mode=None):
            self.worth, self.colour, self.render_mode = worth, colour, render_mode
            assert colour in (None, "dark red"), colour

        def reset(self, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(3, np.float32), {}

        def step(self, action):
            return np.zeros(3, np.float32), self.worth, False, False, {}

        def render(self):
            return np.zeros((8, 8, 3), np.uint8)

    class Times(gymnasium.RewardWrapper):
        def __init__(self, env, by=10.0):
            super().__init__(env)
            self.by = by

        def reward(self, reward):
            return self.by * reward

    gymnasium.register("Worth-v0", Worth)
"""
FLAGS = [
    "--env-kwargs",
    '{"worth": 2}',
    "--env-kwargs",
    "colour=dark red",
    "--max-episode-steps",
    "5",
    "--frame-stack",
    "4",
]
FLAGS += ["--reward-clip=-1,1", "--wrapper", "worth_task:Times(by=3)", "--wrapper", "worth_task:Times"]
A_STEP = 2 * 3 * 10


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls `shoal` in a folder with worth_task.py."""
    (tmp_path / "worth_task.py").write_text(textwrap.dedent(TASK))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "worth_task", raising=False)

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        status = main([str(argument) for argument in arguments])
        return (status, *capsys.readouterr())

    return call


def config_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "config.json").read_text())


def test_a_run_keeps_its_environment_for_eval_drawings_and_resuming(call: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train = ["train", "worth_task:Worth-v0", *SHORT, *FLAGS, "--num-workers", "2", "--run-dir", run]
    status, out, err = call(*train, "--set", "pause_at_step=128", "--json")
    assert status == 0, err
    kept = config_of(run)
    assert kept["env_kwargs"] == {"worth": 2, "colour": "dark red"}
    assert (kept["max_episode_steps"], kept["frame_stack"], kept["reward_clip"]) == (5, 4, [-1, 1])
    assert kept["wrappers"] == ["worth_task:Times(by=3)", "worth_task:Times"]

    status, out, err = call("train", "--resume", run, "--json", "--quiet")
    assert status == 0, err
    result = json.loads(out)
    assert (result["steps"], result["mean_return"], result["std_return"]) == (256, 5 * A_STEP, 0)
    training = [json.loads(line) for line in (run / "progress.jsonl").read_text().splitlines()]
    returns = {record["rollout/ep_rew_mean"] for record in training if "rollout/ep_rew_mean" in record}
    assert returns == {5.0}  # clipped to 1 a step, before and after the pause
    assert {key: config_of(run)[key] for key in ("env_kwargs", "frame_stack", "wrappers")} == {
        key: kept[key] for key in ("env_kwargs", "frame_stack", "wrappers")
    }

    status, out, err = call("eval", run, "--episodes", "3", "--gif", "episode.gif", "--num-workers", "1")
    assert status == 0, err
    assert f"mean return {5 * A_STEP:.1f} ± 0.0 over 3 episodes" in out
    assert f"an episode of return {5 * A_STEP:.1f}" in out
    assert shoal.learn.load_policy(run).observation_space.shape == (4, 3)
    assert call("plot", run)[0] == 0


def test_train_takes_them_and_evaluate_may_be_told_others(call: Any, tmp_path: Path) -> None:
    sys.path.append(str(tmp_path))
    import worth_task

    result = shoal.learn.train(
        "worth_task:Worth-v0",
        total_steps=64,
        num_envs=2,
        num_steps=16,
        num_workers=1,
        final_episodes=2,
        run_dir=tmp_path / "run",
        env_kwargs={"worth": 2},
        max_episode_steps=5,
        frame_stack=2,
        reward_clip=(0, 1),
        wrappers=[worth_task.Times],
    )
    assert result.mean_return == 5 * 20
    assert config_of(result.run_dir)["wrappers"] == ["worth_task:Times"]
    others = shoal.learn.evaluate(
        result.run_dir, 2, env_kwargs={"worth": 3}, max_episode_steps=4, wrappers=["worth_task:Times(by=2)"]
    )
    assert others.mean_return == 4 * 6
    with pytest.raises(ValueError, match="the policy was trained with"):
        shoal.learn.evaluate(result.run_dir, 2, frame_stack=3)


def test_what_cannot_be_recorded_is_warned_of_and_given_again(call: Any, tmp_path: Path) -> None:
    sys.path.append(str(tmp_path))
    import worth_task

    def times_four(env: Any) -> Any:
        return worth_task.Times(env, 4)

    with pytest.warns(RuntimeWarning, match="wrappers that no import path leads to are not recorded"):
        result = shoal.learn.train(
            "worth_task:Worth-v0",
            total_steps=32,
            num_envs=2,
            num_steps=16,
            num_workers=1,
            final_episodes=1,
            run_dir=tmp_path / "run",
            max_episode_steps=5,
            wrappers=[times_four],
        )
    assert result.mean_return == 20 and config_of(result.run_dir)["wrappers"] is None
    assert shoal.learn.evaluate(result.run_dir, 1).mean_return == 5
    assert shoal.learn.evaluate(result.run_dir, 1, wrappers=[times_four]).mean_return == 20


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--env-kwargs", "worht=2"], ["--env-kwargs", "takes no 'worht'"]),
        (["--env-kwargs", '{"worth": }'], ["--env-kwargs", "is not JSON"]),
        (["--env-kwargs", "worth"], ["--env-kwargs takes key=value, or a JSON object, not 'worth'"]),
        (["--wrapper", "worth_task:Time"], ["worth_task:Time", "did you mean 'Times'"]),
        (["--wrapper", "worth_tasks:Times"], ["there is no module 'worth_tasks'"]),
        (["--wrapper", "worth_task:Times(times=2)"], ["unexpected keyword argument 'times'"]),
        (["--wrapper", "worth_task:Times(2)"], ["package.module:Name(key=value, …)"]),
        (["--reward-clip", "1"], ["--reward-clip takes LOW,HIGH"]),
        (["--reward-clip", "1,0"], ["lower bound first"]),
        (["--frame-stack", "0"], ["--frame-stack"]),
        (["--max-episode-steps", "x"], ["--max-episode-steps"]),
    ],
)
def test_wrong_flags_are_one_line(call: Any, flags: list[str], parts: list[str]) -> None:
    assert_one_line(call("train", "worth_task:Worth-v0", *SHORT, "--num-workers", "1", *flags), 2, *parts)


def test_a_native_environment_takes_no_python_wrapper(call: Any) -> None:
    wrong = call("train", "shoal/CartPole-v1", *SHORT, "--wrapper", "worth_task:Times")
    assert_one_line(wrong, 2, "is stepped in C++")


def test_native_environments_take_the_rest(call: Any, tmp_path: Path) -> None:
    flags = ["--max-episode-steps", "7", "--frame-stack", "2"]
    status, out, err = call("train", "shoal/CartPole-v1", *SHORT, *flags, "--run-dir", tmp_path / "run")
    assert status == 0, err
    status, out, _ = call("eval", tmp_path / "run", "--episodes", "20", "--json")
    assert status == 0 and 0 < json.loads(out)["mean_return"] <= 7
