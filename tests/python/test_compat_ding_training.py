"""shoal.compat.ding: training over its managers.

`./shoal test --only ding` runs it in an environment of its own: DI-engine's requirements exclude ours.
"""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("ding") is None:
    pytest.skip(
        "there is no DI-engine (./shoal test --only ding makes an environment that has it)", allow_module_level=True
    )

import gymnasium
import torch
from ding.config import compile_config
from ding.envs import DingEnvWrapper
from easydict import EasyDict

from ding_calls import V2, closed, managers, settings


@pytest.fixture
def manager() -> Iterator[Callable[..., Any]]:
    with managers() as make:
        yield make


# Training


def trained(kind: Any, folder: Path, **more: Any) -> dict[str, torch.Tensor]:
    """The parameters after some updates of PPO."""
    from ding.framework import task
    from ding.framework.context import OnlineRLContext
    from ding.framework.middleware import StepCollector, gae_estimator, multistep_trainer
    from ding.model import VAC
    from ding.policy import PPOPolicy
    from ding.utils import set_pkg_seed
    from dizoo.classic_control.cartpole.config.cartpole_ppo_config import create_config, main_config

    main, create = (EasyDict(pickle.loads(pickle.dumps(config))) for config in (main_config, create_config))
    main.exp_name = str(folder / "run")
    main.policy.collect.n_sample = 64
    cfg = compile_config(main, create_cfg=create, auto=True, save_cfg=False)
    cfg.env.manager = settings(kind, **more)
    with task.start(async_mode=False, ctx=OnlineRLContext()):
        envs = kind([lambda: DingEnvWrapper(gymnasium.make("CartPole-v1"))] * 4, cfg.env.manager)
        set_pkg_seed(3, use_cuda=False)
        cfg.seed = 3
        model = VAC(**cfg.policy.model)
        policy = PPOPolicy(cfg.policy, model=model)
        envs.seed(3, dynamic_seed=False)
        task.use(StepCollector(cfg, policy.collect_mode, envs))
        task.use(gae_estimator(cfg, policy.collect_mode))
        task.use(multistep_trainer(policy.learn_mode, log_freq=50))
        task.run(max_step=3)
        closed(envs)
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("name", "more"), [("base", {}), ("subprocess", {"reset_inplace": True})])
def test_training_is_bit_identical(
    name: str, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mine, theirs = V2[name]
    got = trained(mine, tmp_path / "mine", **more)
    expected = trained(theirs, tmp_path / "theirs", **more)
    assert got.keys() == expected.keys()
    assert all(torch.equal(got[key], expected[key]) for key in got)


# The program that this began with


@pytest.mark.timeout(400)
@pytest.mark.parametrize("arguments", [[], ["--service"]], ids=["a model each", "one service"])
def test_ppo_runs_over_environments_that_hold_a_segmentation_model(arguments: list[str], tmp_path: Path) -> None:
    program = Path(__file__).parents[2] / "examples" / "segmentation" / "ding_ppo.py"
    command = [sys.executable, "-W", "ignore", str(program), "--envs", "2", "--iterations", "2", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=390)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mean reward of a step" in done.stdout
