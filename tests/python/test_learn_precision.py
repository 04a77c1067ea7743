"""Networks for pictures that multiply bfloat16. Their bits and what they learn: test_learn_resume.py, test_learn_off_policy.py,
test_learn_tasks.py."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import learn_envs
import shoal
from learn_runs import BFLOAT16_IS_FASTER, learns_in_bfloat16

SMALL = {
    "preset": "sb3",
    "seed": 1,
    "num_envs": 4,
    "num_steps": 16,
    "total_steps": 128,
    "batch_size": 32,
    "epochs": 2,
    "eval_every": 0,
    "final_episodes": 4,
    "num_workers": 0,
}


def pictures(rows: int) -> np.ndarray:
    learn_envs.Spot.observation_space.seed(3)
    return np.stack([learn_envs.Spot.observation_space.sample() for _ in range(rows)])


@learns_in_bfloat16
def test_a_policy_that_was_trained_in_bfloat16_acts_and_is_exported(tmp_path: Path) -> None:
    run = shoal.learn.train(learn_envs.Spot, run_dir=tmp_path / "run", precision="bfloat16", **SMALL).run_dir
    assert json.loads((run / "config.json").read_text())["config"]["precision"] == "bfloat16"
    policy = shoal.learn.load_policy(run, "last")
    chosen = policy.predict(pictures(64))
    assert [policy.predict(one) for one in pictures(64)] == chosen.tolist()
    floats = shoal.learn.train(learn_envs.Spot, run_dir=tmp_path / "floats", **SMALL).run_dir
    weights = [path / "checkpoints/last/policy.safetensors" for path in (run, floats)]
    assert weights[0].stat().st_size == weights[1].stat().st_size  # float32, too
    assert weights[0].read_bytes() != weights[1].read_bytes()
    torch = pytest.importorskip("torch")
    module = shoal.learn.torch_policy(run, "last")  # in float32
    assert (module.predict(torch.as_tensor(pictures(64))).numpy() == chosen).mean() >= 0.9


@learns_in_bfloat16
def test_a_run_goes_on_in_another_precision(tmp_path: Path) -> None:
    for pause, precision in ((64, "bfloat16"), (None, "float32")):
        run = {"resume": True} if pause is None else SMALL
        run = {**run, "precision": precision, "pause_at_step": pause, "run_dir": tmp_path}
        assert shoal.learn.train(learn_envs.Spot, **run).steps == (pause or 128)
    assert shoal.learn.load_policy(tmp_path, "last").config["precision"] == "float32"


def test_a_policy_acts_on_any_processor(tmp_path: Path) -> None:
    run = shoal.learn.train(learn_envs.Spot, run_dir=tmp_path, **SMALL).run_dir
    before = shoal.learn.load_policy(run, "last").predict(pictures(64))
    state = run / "checkpoints/last/state.json"  # as where another processor had trained it
    content = json.loads(state.read_text())
    content["config"]["precision"] = "bfloat16"
    state.write_text(json.dumps(content))
    policy = shoal.learn.load_policy(run, "last")
    assert policy.config["precision"] == "bfloat16"
    assert (policy.predict(pictures(64)) == before).mean() >= 0.9


@pytest.mark.skipif(BFLOAT16_IS_FASTER, reason="the processor is made for it")
def test_learning_is_refused_where_it_would_be_slower(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"precision = bfloat16; on this processor it is slower .*AVX512_BF16.*choose float32"
    ):
        shoal.learn.train(learn_envs.Spot, run_dir=tmp_path, precision="bfloat16", **SMALL)


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_it_is_for_pictures(tmp_path: Path, algorithm: str) -> None:
    with pytest.raises(ValueError, match=r"precision = bfloat16; .*choose float32"):
        shoal.learn.train("shoal/CartPole-v1", algorithm, run_dir=tmp_path, num_workers=0, precision="bfloat16")


def test_a_word_that_is_none_is_told_the_choices(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='precision = "half"; it takes one of float32, bfloat16'):
        shoal.learn.train(learn_envs.Spot, run_dir=tmp_path, precision="half")
    with pytest.raises(ValueError, match='sac has no option "precision"'):
        shoal.learn.train(learn_envs.Aim, "sac", run_dir=tmp_path, precision="bfloat16")
