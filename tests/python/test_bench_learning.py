"""`shoal bench learning`: every preset has a row, robust means, and seeds that are trained with what the rows say."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import bench_scripts
import shoal
from shoal.bench.learning import REFERENCES, ROWS, interquartile_mean, interval, run
from shoal.bench.learning.rows import SAME
from shoal.bench.learning.suite import Found

ROOT = Path(__file__).parents[2]


def test_every_preset_of_every_algorithm_has_a_row():
    presets = {
        (algorithm, name) for algorithm in shoal.learn.algorithm_names() for name in shoal.learn.preset_names(algorithm)
    }
    assert presets == {(row.algorithm, row.preset) for row in ROWS.values()} | set(SAME)
    for (algorithm, name), twin in SAME.items():
        assert shoal.learn.preset(name, algorithm) == shoal.learn.preset(twin, algorithm)


def test_references_are_of_tasks_that_have_a_row():
    tasks = {(row.algorithm, row.task.rpartition("/")[2]) for row in ROWS.values()}
    assert {(reference.algorithm, reference.task) for reference in REFERENCES} <= tasks


def test_the_interquartile_mean_leaves_out_a_quarter_at_either_end():
    assert interquartile_mean([1, 2, 3, 4, 5, 6, 7, 100]) == 4.5
    assert interquartile_mean([3, 1, 2]) == 2, "of three runs none is left out"
    assert interquartile_mean([-1000, 1, 2, 3, 1000]) == 2
    assert interquartile_mean([[1, 10], [2, 20]]) == 6, "the middle half of the four, whatever their tasks"
    with pytest.raises(ValueError, match="no scores"):
        interquartile_mean([])


def test_intervals_are_of_runs_drawn_anew_within_their_tasks():
    scores = np.random.default_rng(1).normal(100, 10, 20)
    low, high = interval(scores)
    assert low < interquartile_mean(scores) < high
    assert 5 < high - low < 20, "about 4 * 10 / sqrt(20), of a mean that half of the runs make"
    assert interval(scores) == (low, high), "a function of its arguments"
    assert interval(scores, seed=1) != (low, high)
    narrow = interval(scores, confidence=0.5)
    assert low < narrow[0] < narrow[1] < high
    # Tasks of one value each: whichever runs are drawn, the mean is the same, since none is drawn across tasks.
    assert interval([[1, 50], [1, 50]], resamples=100) == (25.5, 25.5)
    # Any statistic; of the largest, the upper end is the largest run.
    assert interval(scores, np.max, resamples=500)[1] == scores.max()


def test_runs_are_of_the_rows_that_are_named_and_tell_each_seed():
    from rich.console import Console

    console = Console(record=True, quiet=True)
    found = run(["ppo/CartPole-v1", "recurrent_ppo/CartPoleNoVel-v1"], 2, steps=512, jobs=1, console=console)
    json.dumps(found)
    assert [(row["row"], row["side"], len(row["seeds"])) for row in found["rows"]] == [
        ("ppo/CartPole-v1", "shoal", 2),
        ("recurrent_ppo/CartPoleNoVel-v1", "shoal", 2),
    ]
    first = found["rows"][0]
    returns = [seed["return"] for seed in first["seeds"]]
    assert returns[0] != returns[1] and first["iqm"] == np.mean(returns)
    assert first["interval"] == [min(returns), max(returns)] and first["solved"] == 0
    assert first["steps"] == 512 and first["seeds"][0]["evaluations"][-1][0] == 512
    assert first["training"] == np.mean([seed["training"][-1][1] for seed in first["seeds"]])


def test_what_is_no_row_is_refused():
    with pytest.raises(ValueError, match="no row 'ppo/CartPole'; choose from ppo/CartPole-v1"):
        run(["ppo/CartPole"])
    with pytest.raises(ValueError, match="at least 1"):
        run(["ppo/CartPole-v1"], 0)


def test_stable_baselines3_gets_the_same_settings_or_none():
    pytest.importorskip("stable_baselines3")
    from shoal.bench.learning import sb3_program as program

    settings = shoal.learn.preset("sb3", "ppo") | {"num_envs": 2, "num_steps": 32, "total_steps": 128}
    told = program.train({"env": "CartPole-v1", "settings": settings, "seed": 1, "steps": None})
    assert told["steps"] == 128 and 8 < told["return"] < 500
    for algorithm, preset, name in (
        ("dqn", "LunarLander-v3", "dueling=True"),
        ("ppo", "HalfCheetah-v5", "recompute_advantages=True"),
        ("recurrent_ppo", "CartPoleNoVel-v1", "algorithm=recurrent_ppo"),
    ):
        assert name in program.missing(shoal.learn.preset(preset, algorithm))
    for algorithm, option, value in (
        ("ppo", "value_gain", 0.01),
        ("ppo", "optimizer", "rmsprop"),
        ("dqn", "orthogonal_init", True),
        ("sac", "max_grad_norm", 0.5),
    ):
        assert program.missing(shoal.learn.preset("sb3", algorithm) | {option: value}) == [f"{option}={value}"]
    for algorithm in program.ALGORITHMS:
        assert program.missing(shoal.learn.preset("sb3", algorithm)) == [], algorithm


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return bench_scripts.script("learning")


def closing_line(tmp_path: Path, returns: list[float]) -> Path:
    seeds = [
        {"steps": 10_000, "seconds": 3.0, "return": value, "training": [[10_000, 90.0]], "evaluations": []}
        for value in returns
    ]
    row = {"row": "dqn/CartPole-v1", "side": "shoal", "missing": [], "seeds": seeds}
    row |= Found(ROWS["dqn/CartPole-v1"], "shoal", seeds).summary()
    other = {"row": "dqn/CartPole-v1", "side": "sb3", "missing": ["double_dqn=True"], "seeds": []}
    found = {"machine": {"cpu": "a CPU", "shoal": "1"}, "seeds": len(returns), "jobs": 2, "rows": [row, other]}
    path = tmp_path / "result.json"
    path.write_text("more\n" + json.dumps(found) + "\n")
    return path


def test_the_table_has_every_row_and_says_which_nobody_ran(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "KEPT", tmp_path / "kept/rows.json")
    script.keep(script.rows_of(closing_line(tmp_path, [500, 480, 470, 500])))
    script.keep(script.rows_of(closing_line(tmp_path, [500, 500, 470, 500])))  # in the place of the first
    table = script.pages(script.kept())[script.ROOT / "benchmarks/README.md"]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(ROWS)
    (row,) = (line for line in lines if line.startswith("| CartPole-v1 | dqn, `CartPole-v1`"))
    assert "| 500 (470 – 500) | 3 of 4 ≥ 475 | 90.0 | 10 k in 3.0 s, a CPU | has not double_dqn=True |" in row
    assert "rl-baselines3-zoo: 500 ± 0 after 50 k (one run, ± over episodes)" in row
    assert sum("not run here: about" in line for line in lines) == len(ROWS) - 1
    with pytest.raises(SystemExit, match="does not end with the JSON line"):
        script.rows_of(Path(__file__))


def test_the_picture_is_of_steps_that_all_seeds_have(script, tmp_path):
    seeds = [{"training": [[0, 0.0], [4, 4.0]]}, {"training": [[2, 10.0], [6, 10.0]]}]
    steps, returns = script.curves({"seeds": seeds}, points=3)
    assert list(steps) == [2, 3, 4]
    assert returns.tolist() == [[2, 3, 4], [10, 10, 10]]
    out = tmp_path / "learning.png"
    script.draw(script.SHORT, script.kept(), out)
    assert out.read_bytes()[:4] == b"\x89PNG"


def test_the_best_of_the_mean_curve_is_of_steps_that_all_seeds_have():
    runs = [
        {"evaluations": [[1, 10.0], [2, 0.0]], "return": 0, "training": [], "steps": 2, "seconds": 1},
        {"evaluations": [[1, 0.0], [2, 6.0], [3, 99.0]], "return": 0, "training": [], "steps": 3, "seconds": 1},
    ]
    assert Found(ROWS["ppo/CartPole-v1"], "shoal", runs).summary()["curve_best"] == 5


def test_stable_baselines3_has_the_optimizer_and_the_temperature_of_the_settings():
    pytest.importorskip("stable_baselines3")
    import gymnasium
    from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

    from shoal.bench.learning import sb3_program as program

    settings = {"seed": 0, "optimizer": "rmsprop_tf", "rmsprop_alpha": 0.9, "rmsprop_eps": 1e-3}
    model = program.learner(shoal.learn.preset("sb3", "a2c") | settings, gymnasium.make("CartPole-v1"))
    assert isinstance(model.policy.optimizer, RMSpropTFLike)
    assert (model.policy.optimizer.defaults["alpha"], model.policy.optimizer.defaults["eps"]) == (0.9, 1e-3)
    settings = {"entropy_coef": 0.2, "target_entropy": -3.0, "adam_beta1": 0.5, "buffer_size": 100}
    model = program.learner(shoal.learn.preset("sb3", "sac") | settings, gymnasium.make("Pendulum-v1"))
    assert model.log_ent_coef.exp().item() == pytest.approx(0.2) and model.target_entropy == -3.0
    assert model.actor.optimizer.defaults["betas"] == (0.5, 0.999)
