"""What makes a run's environments (keyword arguments, time limit, frame stack, reward clip, wrappers): from the flags of
`shoal train` or the arguments of `train` into the run, and out of it again for evaluations, drawings and resuming."""

from __future__ import annotations

import gc
import json
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal
from cli_calls import assert_one_line
from shoal.atari.preprocessing import preprocessing_of
from shoal.cli import main
from shoal.learn.environments import EnvOptions
from shoal.learn.ranks import Ranks
from shoal.learn.run_plan import Request, RunPlan

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


def name_as_resumed(*asked: Any, **options: Any) -> str:
    """What the environment of a run is called that would go on now."""
    with shoal.learn.Trainer(*asked, num_workers=0, **options) as trainer:
        name = trainer.env
    del trainer
    gc.collect()  # which gives the folder to the next
    return name


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
    run = result.run_dir
    assert result.mean_return == 20
    assert (config_of(run)["wrappers"], config_of(run)["unrecorded"]) == (None, ["wrappers"])
    again = r"wrappers= that its config.json could not hold: give them again, shoal.learn.{}, wrappers=…\)"
    with pytest.raises(ValueError, match=again.format(r"evaluate\(…")):
        shoal.learn.evaluate(run, 1)
    for flags in ([], ["--gif", tmp_path / "episode.gif"]):
        assert_one_line(call("eval", run, *flags), 1, "wrappers= that its config.json could not hold")
    assert not (tmp_path / "episode.gif").exists()
    assert shoal.learn.evaluate(run, 1, wrappers=[times_four]).mean_return == 20
    assert shoal.learn.evaluate(run, 1, wrappers=[]).mean_return == 5
    for resume in (True, "auto"):
        with pytest.raises(ValueError, match=again.format(r"train\(…, resume=True")):
            shoal.learn.train("worth_task:Worth-v0", run_dir=run, resume=resume)
        with pytest.warns(RuntimeWarning, match="wrappers that no import path leads to are not recorded"):
            name_as_resumed("worth_task:Worth-v0", run_dir=run, resume=resume, wrappers=[times_four])
        assert config_of(run)["unrecorded"] == ["wrappers"]
    assert_one_line(call("train", "--resume", run), 2, "wrappers= that its config.json could not hold")
    name_as_resumed(run_dir=run, resume=True, wrappers=["worth_task:Times(by=4)"])
    assert config_of(run)["unrecorded"] == []
    assert shoal.learn.evaluate(run, 1).mean_return == 20


def test_all_that_could_not_be_recorded_is_asked_for_again_but_what_evaluations_do_without(
    call: Any, tmp_path: Path
) -> None:
    sys.path.append(str(tmp_path))
    lost = {"env_kwargs": {"worth": np.float32(2)}, "reward_clip": (np.float32(0), np.float32(1))}
    kept = {"num_envs": 2, "num_steps": 16, "num_workers": 0, "final_episodes": 0, "max_episode_steps": 5}
    with pytest.warns(RuntimeWarning, match="that JSON cannot hold are not recorded"):
        run = shoal.learn.train("worth_task:Worth-v0", total_steps=32, run_dir=tmp_path / "run", **kept, **lost).run_dir
    with pytest.raises(ValueError, match="env_kwargs= and reward_clip= that its config.json could not hold"):
        shoal.learn.train(run_dir=run, resume=True)
    with pytest.raises(ValueError, match="with env_kwargs= that its config.json could not hold"):
        shoal.learn.evaluate(run, 1)
    assert shoal.learn.evaluate(run, 1, env_kwargs=lost["env_kwargs"]).mean_return == 10


@pytest.mark.parametrize("rewards", [{0: 5.0, 1: 5.0}, {"all": (5.0, 0)}, {"all": [(5.0,)]}])
def test_arguments_that_json_would_change_are_given_again(tmp_path: Path, rewards: dict[Any, Any]) -> None:
    class Exact(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, told: Any) -> None:
            self.worth = 5.0 if repr(told) == repr(rewards) else 0.0

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            super().reset(seed=seed)
            return np.zeros(2, np.float32), {}

        def step(self, action: Any) -> Any:
            return np.zeros(2, np.float32), self.worth, False, False, {}

    given = {"env": Exact, "env_kwargs": {"told": rewards}}
    kept = {"num_envs": 2, "num_steps": 16, "num_workers": 0, "final_episodes": 0, "max_episode_steps": 10}
    with pytest.warns(RuntimeWarning, match="env_kwargs that JSON cannot hold are not recorded"):
        run = shoal.learn.train(total_steps=32, run_dir=tmp_path / "run", **kept, **given).run_dir
    assert (config_of(run)["env_kwargs"], config_of(run)["unrecorded"]) == (None, ["env_kwargs"])
    lost = "with env_kwargs= that its config.json could not hold"
    with pytest.raises(ValueError, match=lost):
        shoal.learn.evaluate(run, 1, env=Exact)
    with pytest.raises(ValueError, match=lost):
        shoal.learn.train(Exact, run_dir=run, resume=True)
    assert shoal.learn.evaluate(run, 1, num_workers=0, **given).mean_return == 50


def test_what_json_holds_as_it_is_is_recorded() -> None:
    held = {"a": [1, 2.0, None, True, "x"], "b": {"c": [[]]}, "d": np.float64(0.1)}
    record = EnvOptions(env_kwargs=held, reward_clip=(-1.0, 1.0), atari=True).record()
    assert record["unrecorded"] == []
    assert (record["env_kwargs"], record["reward_clip"]) == (held, [-1, 1])
    for changed in ({"a": (1,)}, {"a": {1: 2}}, {"a": {None: 2}}, {"a": [{"b": ()}]}):
        with pytest.warns(RuntimeWarning, match="that JSON cannot hold"):
            assert EnvOptions(env_kwargs=changed).record()["unrecorded"] == ["env_kwargs"]


def test_a_run_of_before_they_were_named_is_evaluated_as_it_says(call: Any, tmp_path: Path) -> None:
    status, _, err = call("train", "worth_task:Worth-v0", *SHORT, *FLAGS, "--num-workers", "0", "--run-dir", "run")
    assert status == 0, err
    config = config_of(Path("run"))
    del config["unrecorded"]
    Path("run/config.json").write_text(json.dumps({**config, "wrappers": None}))
    assert shoal.learn.evaluate("run", 1).mean_return == 5 * 2
    name_as_resumed(run_dir="run", resume=True)
    assert config_of(Path("run"))["unrecorded"] == []


# --- a run that goes on


def test_a_run_that_goes_on_by_itself_has_the_environment_that_it_was_told(call: Any, tmp_path: Path) -> None:
    train = ["train", "worth_task:Worth-v0", *SHORT, "--num-workers", "0", "--run-dir", "run", "--continue"]
    assert call(*train, "--max-episode-steps", "5", "--set", "pause_at_step=128")[0] == 0
    others = ["--max-episode-steps", "3", "--wrapper", "worth_task:Times", "--frame-stack", "2"]
    status, out, err = call(*train, *others, "--json")
    assert status == 0, err
    assert json.loads(out)["mean_return"] == 5
    told = config_of(Path("run"))
    assert (told["max_episode_steps"], told["wrappers"], told["frame_stack"]) == (5, None, None)


def test_a_run_goes_on_with_no_other_id_than_its_own(call: Any, tmp_path: Path) -> None:
    train = ["train", *SHORT, "--num-workers", "0", "--run-dir", "run", "--continue"]
    settings = ["--max-episode-steps", "5", "--set", "pause_at_step=128"]
    assert call(*train, "worth_task:Worth-v0", *settings)[0] == 0
    both = "was trained on worth_task:Worth-v0, and does not go on with {}: a run on that needs a run_dir"
    for resume in (True, "auto"):
        for env, name in (("CartPole-v1", "CartPole-v1"), (lambda: None, "<lambda>")):
            with pytest.raises(ValueError, match=both.format(name)):
                shoal.learn.train(env, run_dir="run", resume=resume)
        assert name_as_resumed("Worth-v0", run_dir="run", resume=resume) == "worth_task:Worth-v0"
    assert_one_line(call(*train, "CartPole-v1"), 2, both.format("CartPole-v1"))


def test_a_run_on_a_class_goes_on_with_none_of_another_name(call: Any, tmp_path: Path) -> None:
    sys.path.append(str(tmp_path))
    import worth_task

    class Other(worth_task.Worth):
        pass

    given = {"num_envs": 2, "num_steps": 16, "num_workers": 0, "final_episodes": 0, "max_episode_steps": 5}
    shoal.learn.train(worth_task.Worth, total_steps=32, run_dir="run", **given)
    for resume in (True, "auto"):
        for env in (Other, [Other]):
            with pytest.raises(ValueError, match="was trained on Worth, and does not go on with Other"):
                shoal.learn.train(env, run_dir="run", resume=resume)
        for env in (worth_task.Worth, [worth_task.Worth], "worth_task:Worth-v0"):
            assert name_as_resumed(env, run_dir="run", resume=resume) == "Worth"


def plan_of_resume(run_dir: Path, resume: bool | str, asked: Any) -> RunPlan:
    """Of a run of "sb3"'s preprocessing that does not take the sign of rewards."""
    config = {**shoal.learn.preset("zoo_atari"), "sign_reward": False}
    options = EnvOptions(atari="sb3").record()
    run = {"format": "shoal.run", "env": "ALE/Pong-v5", "algorithm": "ppo", "config": config, **options}
    (run_dir / "checkpoints/last").mkdir(parents=True)
    (run_dir / "config.json").write_text(json.dumps(run))
    nothing = dict.fromkeys(("algorithm", "preset", "config", "policy", "device", "nproc", "num_workers", "listen"))
    request = Request(
        **nothing, env="ALE/Pong-v5", run_dir=run_dir, resume=resume, options=EnvOptions(atari=asked), overrides={}
    )
    return request.plan(Ranks(1))


@pytest.mark.parametrize(
    ("resume", "asked", "sign"),
    [
        ("auto", "sb3", False),
        ("auto", "gymnasium", False),
        (True, "sb3", False),
        (True, {"like": "sb3", "noop_max": 7}, True),
    ],
)
def test_the_sign_of_rewards_stays_unless_another_preprocessing_is_asked_for(
    tmp_path: Path, resume: bool | str, asked: Any, sign: bool
) -> None:
    plan = plan_of_resume(tmp_path, resume, asked)
    assert plan.config["sign_reward"] is sign
    assert preprocessing_of(plan.options.atari) == preprocessing_of("sb3" if resume == "auto" else asked)


def test_switches_of_a_resume_are_recorded_over_those_of_the_run(tmp_path: Path) -> None:
    plan = plan_of_resume(tmp_path, True, {"noop_max": 7})
    assert plan.about["atari"] == {**EnvOptions(atari="sb3").record()["atari"], "noop_max": 7}
    assert plan.changed == ["atari"]


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


@pytest.mark.parametrize(
    ("more", "longest"),
    [
        ({"replay_limit": 1}, "10,000"),  # the least
        ({"replay_limit": 60_000}, "15,000"),
        ({"replay_limit": 80_000}, None),
        ({"replay_limit": 0}, None),
        ({"replay_limit": 1, "total_steps": 40_000}, None),  # none has as many
        ({"replay_limit": 1, "max_episode_steps": 10_000}, None),
    ],
)
@pytest.mark.parametrize("own_network", [False, True])
def test_a_time_limit_that_no_episode_reaches_before_all_are_reset_is_warned_of(
    own_network: bool, more: dict[str, Any], longest: str | None, tmp_path: Path
) -> None:
    if own_network:
        pytest.importorskip("torch")
        more = {**more, "policy": "learn_modules:ActorCritic"}
    options = {"max_episode_steps": 20_000, "num_envs": 4, "total_steps": 1_000_000, "preset": "sb3", **more}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        shoal.learn.Trainer("CartPole-v1", num_workers=0, run_dir=tmp_path / "run", **options).close()
    texts = [str(warning.message) for warning in told if warning.category is RuntimeWarning]
    if longest is None:
        assert not texts
    else:
        (text,) = texts
        assert "may have 20,000 steps" in text and f"every {longest} steps of each" in text and "replay_limit=0" in text
