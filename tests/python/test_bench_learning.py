"""`shoal bench learning`: every preset has a row, robust means, and seeds that are trained with what the rows say."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import bench_scripts
import shoal
from shoal.bench.learning import REFERENCES, ROWS, interquartile_mean, interval, pool, program, row_named, run
from shoal.bench.learning.rows import SAME
from shoal.bench.learning.suite import Found
from shoal.cli import main

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


def test_tasks_of_others_have_references_and_each_figure_stands_once():
    others = {"ppo", "a2c", "dqn", "sac", "recurrent_ppo"}
    tasks = {(row.algorithm, row.task.rpartition("/")[2]) for row in ROWS.values() if row.algorithm in others}
    published = {(reference.algorithm, reference.task) for reference in REFERENCES}
    assert tasks - published == {("ppo", "SegmentedWorld-v0")}, "a task of our own"
    figures = [(r.algorithm, r.task, r.source, r.steps, r.kind) for r in REFERENCES]
    assert len(figures) == len(set(figures))


def test_references_of_other_versions_say_so():
    games = [reference for reference in REFERENCES if reference.task in ("Pong-v5", "Breakout-v5")]
    assert all("sticky actions" in reference.kind for reference in games)
    for task in ("Pong-v5", "Breakout-v5"):
        first = next(r for r in games if (r.algorithm, r.task) == ("ppo", task))
        assert first.source == "SLM-Lab" and first.kind.startswith("with sticky actions"), "as ALE/…-v5 has them"
    older = [r for r in REFERENCES if r.source in ("rl-baselines3-zoo", "CleanRL", "tianshou", "Sample Factory")]
    tasks = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5")
    assert all(r.kind.startswith(("v3, ", "v4, ")) for r in older if r.task in tasks)
    said = {(r.algorithm, r.task): r.said() for r in REFERENCES if r.source == "rl-baselines3-zoo"}
    assert said["ppo", "LunarLander-v3"] == "rl-baselines3-zoo: 242.1 ± 31.8 after 1 M (v2, one run, ± over episodes)"
    assert said["a2c", "Pong-v5"] == (
        "rl-baselines3-zoo: 17.3 ± 3.2 after 10 M (without sticky actions, one run, ± over episodes)"
    )


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


@pytest.fixture
def seeds_by(tmp_path, monkeypatch):
    """Has each seed trained by these lines, which know its `task`."""

    def write(lines: str) -> Path:
        program = tmp_path / "program.py"
        program.write_text("import json, os, sys, time\ntask = json.loads(sys.argv[1])\n" + textwrap.dedent(lines))
        monkeypatch.setitem(pool.PROGRAMS, "shoal", program)
        return program

    return write


def test_a_seed_that_fails_is_told_and_the_others_go_on(seeds_by):
    from rich.console import Console

    seeds_by("""
        if task["seed"] == 1 or task["env"] == "shoal/Acrobot-v1":
            sys.exit(f"Traceback\\n\\nKeyError: {task['seed']}\\n")
        if task["seed"] == 3:
            os.kill(os.getpid(), 9)
        if task["seed"] != 4:
            print(json.dumps({"return": 100.0 + task["seed"], "training": [], "evaluations": [], "steps": 1, "seconds": 1}))
    """)
    console = Console(record=True, file=io.StringIO(), width=500)
    found = run(["ppo/CartPole-v1", "ppo/Acrobot-v1", "ppo/Pendulum-v1"], 5, jobs=2, console=console)
    first, second, third = found["rows"]
    assert [seed["return"] for seed in first["seeds"]] == [100, 102]
    assert first["iqm"] == 101 and first["solved"] == 0
    assert first["failed"] == ["seed 1: KeyError: 1", "seed 3: killed by SIGKILL", "seed 4: it said nothing at its end"]
    assert second["seeds"] == [] and "iqm" not in second and len(second["failed"]) == 5
    assert len(third["seeds"]) == 2
    lines = console.export_text().splitlines()
    assert lines[0].endswith("; 3 of 5 seeds failed: seed 1: KeyError: 1")
    assert lines[1].split("Shoal")[1].strip() == "5 of 5 seeds failed: seed 0: KeyError: 0"
    json.dumps(found)


def test_the_command_ends_with_status_1_and_all_of_the_json(seeds_by, capsys):
    seeds_by("sys.exit('KeyError: 7')")
    assert main(["bench", "learning", "--row", "ppo/CartPole-v1", "--seeds", "2", "--json"]) == 1
    out, err = capsys.readouterr()
    (row,) = json.loads(out)["rows"]
    assert row["failed"] == ["seed 0: KeyError: 7", "seed 1: KeyError: 7"]
    assert err.splitlines()[-1] == "shoal: 2 seeds failed; the lines of their rows say why"


def test_rows_with_failed_seeds_are_not_kept(script, tmp_path, capsys):
    path = closing_line(tmp_path, [500, 480])
    result = json.loads(path.read_text().splitlines()[-1])
    result["rows"][0]["failed"] = ["seed 2: KeyError: 7"]
    path.write_text(json.dumps(result))
    assert ("dqn/CartPole-v1", "shoal") not in script.rows_of(path)
    assert "left out, since seeds failed: dqn/CartPole-v1" in capsys.readouterr().err


def test_packages_that_rows_need_are_told_before_the_first_is_trained(seeds_by, monkeypatch, tmp_path):
    seeds_by("sys.exit('trained')")
    (tmp_path / "requirements-mujoco.txt").touch()
    monkeypatch.setattr("shoal.bench.learning.suite.PACKAGES", tmp_path / "python")
    needs = {"LunarLander-v3": "shoal[box2d]", "Hopper-v5": "shoal[mujoco]", "Walker2d-v5": "shoal[mujoco]"}
    monkeypatch.setattr("shoal.bench.learning.suite.lacks", needs.get)
    with pytest.raises(shoal.errors.Error) as refused:
        run(["ppo/CartPole-v1", "ppo/Hopper-v5", "ppo/Walker2d-v5", "ppo/LunarLander-v3"], 1)
    said = str(refused.value)
    assert said.startswith("rows on LunarLander-v3, Hopper-v5, Walker2d-v5 need shoal[box2d] and shoal[mujoco], not ")
    assert f"{sys.executable} -m pip install 'shoal[box2d]' -r {tmp_path}/requirements-mujoco.txt  (or" in said


RUNS = """
import sys
from pathlib import Path
from shoal.bench.learning import pool, run
pool.PROGRAMS["shoal"] = Path(sys.argv[1])
run(["ppo/CartPole-v1"], 3, jobs=1)
"""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_seed_outlives_who_trains_them(tmp_path, seeds_by, sent):
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    program = seeds_by(f"""
        held = open({str(alive)!r}, "w")
        print("begun", file=held, flush=True)
        time.sleep(100)
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", RUNS, program],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    with alive.open() as held:
        assert held.readline() == "begun\n"
        process.send_signal(sent)
        assert held.read() == "", "the seed has ended, and none has begun after it"
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (143 if sent == signal.SIGTERM else -sent), errors
    assert list(tmp_path.glob("shoal-bench-*")) == [] or sent == signal.SIGKILL


def test_runs_that_are_kept_are_not_made_again(seeds_by, tmp_path, capsys):
    seeds_by("""
        with open(task["run_dir"] + ".begun", "a") as begun:
            print(task["seed"], task["steps"], file=begun)
        if task["seed"] == 1 and not os.path.exists(task["run_dir"]):
            os.mkdir(task["run_dir"])
            sys.exit("KeyError: 1")
        print(json.dumps({"return": 100.0 + task["seed"], "training": [], "evaluations": [], "steps": 1, "seconds": 1}))
    """)
    kept = tmp_path / "kept/here"
    (kept / "ppo-CartPole-v1-CartPole-v1-100000").mkdir(parents=True)  # the program does not make it
    command = ["bench", "learning", "--row", "ppo/CartPole-v1", "--runs", str(kept), "--json"]
    assert main([*command, "--seeds", "2"]) == 1
    first = json.loads(capsys.readouterr().out)["rows"][0]
    assert main([*command, "--seeds", "3"]) == 0
    second = json.loads(capsys.readouterr().out)["rows"][0]
    assert [seed["return"] for seed in first["seeds"]] == [100]
    assert [seed["return"] for seed in second["seeds"]] == [100, 101, 102] and second["failed"] == []
    begun = {path.stem: path.read_text() for path in kept.glob("*/*.begun")}
    assert begun == {"shoal-0": "0 100000\n", "shoal-1": "1 100000\n" * 2, "shoal-2": "2 100000\n"}
    (damaged,) = kept.glob("*/shoal-0.json")
    damaged.write_text(damaged.read_text()[:20])
    assert main([*command, "--seeds", "1"]) == 1
    assert f"{damaged} is damaged: remove it, and the seed goes on from its run" in capsys.readouterr().err


def test_a_seed_that_was_ended_goes_on(tmp_path, monkeypatch):
    task = {"env": "shoal/Pendulum-v1", "algorithm": "ppo", "preset": "Pendulum-v1", "num_workers": 0, "seed": 3}
    task |= {"steps": 40_960, "kept": True}
    whole, parts = ({**task, "run_dir": str(tmp_path / name)} for name in ("whole", "parts"))

    process = subprocess.Popen(
        [sys.executable, pool.PROGRAMS["shoal"], json.dumps(parts)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    records = Path(parts["run_dir"], "progress.jsonl")
    while not (records.exists() and records.stat().st_size):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()  # before anything was saved
    process.wait()

    class Enough(Exception):
        pass

    def stop(status):
        if status["iteration"] > 0:
            raise Enough

    with monkeypatch.context() as patched, pytest.raises(Enough):
        patched.setattr(shoal.learn, "train", partial(shoal.learn.train, callback=stop))
        program.train(parts)
    told, same = program.train(parts), program.train(whole)
    assert told["return"] == same["return"] and told["steps"] == same["steps"] == 40_960
    again = program.train(parts)  # as after an end in its evaluation
    assert again["return"] == same["return"] and again["training"] == same["training"]


SEGMENTATION = ROOT / "examples" / "segmentation"


def test_what_is_no_row_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if Path(entry) != SEGMENTATION])
    monkeypatch.delitem(sys.modules, "segmented_world", raising=False)
    with pytest.raises(ValueError, match="no row 'ppo/CartPole'; choose from ppo/CartPole-v1"):
        run(["ppo/CartPole"])
    with pytest.raises(ValueError, match="no row 'ppo/sb3:Pong'; choose from"):
        run(["ppo/sb3:Pong"])
    with pytest.raises(ValueError, match="run it in the folder of segmented_world.py, in examples/ of the source"):
        run(["ppo/SegmentedWorld-v0"])
    with pytest.raises(ValueError, match="at least 1"):
        run(["ppo/CartPole-v1"], 0)


def test_a_row_of_a_module_that_is_found_here_is_trained(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(SEGMENTATION)
    (row,) = run(["ppo/SegmentedWorld-v0"], 1, steps=256)["rows"]
    assert not row["failed"] and row["steps"] >= 256


def test_a_row_may_be_named_without_its_task_where_there_is_one():
    assert row_named("dqn/zoo_lunarlander") == "dqn/zoo_lunarlander:LunarLander-v3"
    assert row_named("ppo/CartPole-v1") == "ppo/CartPole-v1"
    assert row_named("ppo/sb3") == "ppo/sb3", "there are several"


def test_stable_baselines3_gets_the_same_settings_or_none():
    pytest.importorskip("stable_baselines3")
    from shoal.bench.learning import sb3_program as program

    settings = shoal.learn.preset("sb3", "ppo") | {"num_envs": 2, "num_steps": 32}
    told = program.train({"env": "CartPole-v1", "settings": settings, "seed": 1, "steps": 128})
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


def test_what_stable_baselines3_has_not_is_known_without_it():
    lines = """
        import sys
        sys.modules |= dict.fromkeys(["stable_baselines3", "torch"])
        from shoal.bench.learning.sb3_program import missing
        from shoal.runs import preset
        print(missing(preset("Walker2d-v5")), missing(preset("sb3", "sac")))
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(lines)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("['recompute_advantages=True', 'normalize_returns=True', ")
    assert ended.stdout.endswith(" []\n")


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
    assert "| 500 (470 – 500) | 3 of 4 ≥ 475 | 90.0 | 10 k in 3.0 s, a CPU | has not double_dqn=True, " in row
    assert "rl-baselines3-zoo: 500 ± 0 after 50 k (one run, ± over episodes)" in row
    assert sum("not run here: about" in line for line in lines) == len(ROWS) - 1 - len(script.ONE_SEED)
    assert set(script.ONE_SEED) <= set(ROWS)
    with pytest.raises(SystemExit, match="does not end with the JSON line"):
        script.rows_of(Path(__file__))


def of_table(script: ModuleType, name: str, found: dict, figures: int | None = None) -> dict[str, str]:
    heading, _, line = script.table([name], found, figures).splitlines()
    return dict(zip(heading.strip("| ").split(" | "), line[2:-2].split(" | "), strict=True))


def test_the_table_says_what_stable_baselines3_has_not_and_what_was_not_run(script):
    def beside(name: str) -> str:
        return of_table(script, name, {})["Stable-Baselines3, same settings"]

    assert beside("ppo/Acrobot-v1") == "not run"
    assert beside("ppo/cleanrl:CartPole-v1") == "has not bootstrap_truncated=False, pessimistic_value_clip=True"
    assert beside("a3c/CartPole-v1") == "has not algorithm=a3c"
    assert beside("ppo/atari:ALE/Pong-v5") == "not run", "its AtariWrapper learns signs of rewards"


def test_games_that_the_guide_tells_of_are_marked_as_one_seed(script):
    told = of_table(script, "ppo/cleanrl_atari:ALE/Breakout-v5", {})["last policy"]
    assert told == "331 after 10 M, one seed of `shoal train` ([guide](../docs/guides/atari.md#train))"
    guide = (ROOT / "docs/guides/atari.md").read_text()
    assert all(told.split()[0] in guide for told in script.ONE_SEED.values())
    assert "not run here: about 4 h" in of_table(script, "ppo/atari:ALE/Breakout-v5", {})["last policy"]


def test_tianshous_statistic_of_our_seeds_stands_beside_its_own(script):
    def seed(*values: float) -> dict:
        curve = [[500_000 * (k + 1), value] for k, value in enumerate(values)]
        return {"steps": 1_000_000, "seconds": 3.0, "return": values[-1], "training": curve, "evaluations": curve}

    seeds = [seed(1000, 4000), seed(3000, 2000), seed(2000, 3000, 9000)]
    name = "ppo/Hopper-v5"
    own = {"row": name, "side": "shoal", "seeds": seeds, "cpu": "a CPU", **Found(ROWS[name], "shoal", seeds).summary()}
    published = of_table(script, name, {(name, "shoal"): own})["published"].split("; ")
    assert published[0].startswith("tianshou: 2609 ± 701 after 1 M (v3, ")
    assert published[0].endswith(" of 3 M), of ours 3,000 (2,667 – 4,000)"), "of steps that all seeds have"
    assert not any("of ours" in said for said in published[1:])
    assert of_table(script, name, {(name, "shoal"): own}, 2)["published"] == "; ".join(published[:2])


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
