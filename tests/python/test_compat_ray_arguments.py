"""shoal.compat.ray where Ray is not asked for anything: what it refuses, and how a run is copied and reported as it goes on."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.compat.ray.arguments import (
    actor_options,
    check_collector_options,
    check_listens,
    check_options,
    even_share,
    plain,
)
from shoal.compat.ray.reported_run import conduct, report_period
from shoal.compat.ray.run_copies import RunCopies

SMALL: dict[str, Any] = {
    "num_workers": 0,
    "num_envs": 4,
    "num_steps": 32,
    "batch_size": 64,
    "policy_hidden": [8],
    "value_hidden": [8],
    "eval_every": 0,
    "eval_envs": 1,
    "final_episodes": 2,
    "target_return": None,
    "save_every_seconds": 0,
}


def test_without_ray_the_extra_is_named() -> None:
    program = """
import sys
sys.modules["ray"] = None
import shoal.compat.ray
for name in shoal.compat.ray.__all__:
    try:
        getattr(shoal.compat.ray, name)
    except ModuleNotFoundError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["shoal.compat.ray needs Ray:  pip install 'shoal[ray]'"] * 5, done.stderr


def test_ray_is_not_imported_before_it_is_used() -> None:
    program = "import sys, shoal, shoal.compat.ray; print('ray' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False False\n", done.stderr


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: check_listens("ppo"), ValueError, "'appo' and 'impala', not for 'ppo'; .*TorchTrainer: .*train_loop"),
        (lambda: check_listens("sac"), ValueError, "'appo' and 'impala', not for 'sac'$"),
        (lambda: check_listens("apo"), ValueError, "there is no algorithm 'apo'; there is ppo, "),
        (lambda: actor_options(0, None), ValueError, "num_collectors= takes a number of actors, 1 or more, got 0"),
        (lambda: actor_options(2, [{}]), ValueError, "one for each of the 2 collectors; got 1"),
        (lambda: check_options({"learning_rat": 1}, "trainable"), ValueError, "no 'learning_rat'.*: learning_rate"),
        (
            lambda: check_options({"num_worker": 1}, "trainable"),
            ValueError,
            "no 'num_worker'; the nearest: num_workers",
        ),
        (lambda: check_options({"algorithm": "pp0"}, "trainable"), ValueError, "there is no algorithm 'pp0'"),
        (
            lambda: check_options({"run_dir": "x"}, "train_loop"),
            ValueError,
            "run_dir= is not for train_loop: .*storage",
        ),
        (lambda: check_options({"resume": True}, "trainable"), ValueError, "from the checkpoint that Ray hands it"),
        (lambda: check_options({"nproc": 2}, "trainable"), ValueError, "ScalingConfig.num_workers=. of a TorchTrainer"),
        (lambda: check_options({"listen": "x:0"}, "trainable"), ValueError, "train.num_collectors=."),
        (lambda: check_options({"callback": print}, "trainable"), ValueError, "what is measured is reported to Ray"),
        (lambda: check_collector_options({"next_ob": 1}), TypeError, "no 'next_ob'; the nearest: next_obs"),
        (lambda: check_collector_options({"output": "torch"}), TypeError, "read-only views of Ray's object store"),
        (lambda: check_collector_options({"mode": "multi_async"}), TypeError, "sync= says whether"),
        (
            lambda: even_share("num_envs", 5, 2, ", the collectors"),
            ValueError,
            "a multiple of 2, the collectors, got 5",
        ),
    ],
)
def test_what_does_not_fit_is_one_clear_error(call: Callable[[], object], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


def test_options_that_fit_pass() -> None:
    check_options(
        {"env": "CartPole-v1", "algorithm": "dqn", "buffer_size": 100, "env_kwargs": {}, "num_workers": 2}, "x"
    )
    check_collector_options({"next_obs": True, "num_workers": 0, "wrappers": []})
    check_listens("impala")
    assert (
        actor_options(2, {"num_cpus": 3, "resources": {"far": 1}})
        == [{"num_cpus": 3, "max_restarts": -1, "max_task_retries": -1, "resources": {"far": 1}}] * 2
    )
    assert [each["max_restarts"] for each in actor_options(2, [{"max_restarts": 0}, {}])] == [0, -1]
    assert even_share("num_envs", 6, 2) == 3
    sampled = {"a": plain(np.int64(3)), "b": plain(np.float32(0.5)), "c": plain([1, 2]), "d": plain("x")}
    assert json.dumps(sampled) == '{"a": 3, "b": 0.5, "c": [1, 2], "d": "x"}'


def trainer(run_dir: Path, **options: Any) -> shoal.learn.Trainer:
    return shoal.learn.Trainer("CartPole-v1", run_dir=run_dir, **{**SMALL, "total_steps": 20_000, **options})


def test_a_run_is_reported_as_it_goes_on_and_its_copies_are_runs(tmp_path: Path) -> None:
    reports: list[tuple[dict[str, float], Path | None]] = []

    def report(measured: dict[str, float], copy: Path | None) -> None:
        if copy is not None:
            kept = tmp_path / f"copy-{len(reports)}"
            shutil.copytree(copy, kept)
            copy = kept
        reports.append((measured, copy))

    with trainer(tmp_path / "run", total_steps=60_000) as run:
        assert report_period(None, run) == 1_200
        conduct(run, 1_200, report)
        result = run.result()
    steps = [measured["steps"] for measured, _ in reports]
    assert steps == sorted(steps) and steps[-1] == result.steps and len(reports) >= 2
    assert len({tuple(measured) for measured, _ in reports}) == 1
    first, last = reports[0][0], reports[-1][0]
    assert not math.isnan(first["episode_return_mean"]) and math.isnan(first["eval_return_mean"])
    assert last["eval_return_mean"] == result.mean_return and last["episode_len_mean"] > 0
    assert all(isinstance(value, int | float) for value in last.values())
    copies = [copy for _, copy in reports if copy is not None]
    assert reports[-1][1] is not None and len(copies) >= 2
    assert json.loads((copies[-1] / "result.json").read_text())["steps"] == result.steps
    assert shoal.learn.load_policy(copies[0], which="last").predict(np.zeros(4, np.float32)) in (0, 1)
    at = json.loads((copies[0] / "checkpoints/last/state.json").read_text())["step"]
    assert 0 < at < result.steps
    with shoal.learn.Trainer(run_dir=copies[0], resume=True, num_workers=0) as again:
        conduct(again, 1_200, lambda *_: None)
        assert again.status()["resume"] == "exact"
        assert again.result().mean_return == result.mean_return  # the same policy as of the run that went on


def test_ranks_report_as_often_as_the_first_however_far_they_are(tmp_path: Path) -> None:
    told: list[int] = []  # by the first, each time when it reports
    reports: list[list[float]] = [[], []]

    def first(step: int) -> int:
        told.append(step)
        return step

    with trainer(tmp_path / "first", total_steps=30_000) as run:
        conduct(run, 1_000, lambda measured, _: reports[0].append(measured["steps"]), first)
        steps = run.result().steps
    assert reports[0][-1] == steps and len(reports[0]) == len(told) + 1 <= 31
    assert all(step // 1_000 > before // 1_000 for before, step in itertools.pairwise([0, *told]))
    answers = iter(told)  # which another rank, at other steps then, is answered
    with trainer(tmp_path / "another", total_steps=30_000) as run:
        conduct(run, 1_000, lambda measured, _: reports[1].append(measured["steps"]), lambda _: next(answers))
    assert len(reports[1]) == len(reports[0]) and next(answers, None) is None


def test_a_report_that_ends_the_trial_stops_the_run(tmp_path: Path) -> None:
    def stop(measured: dict[str, float], copy: Path | None) -> None:
        raise SystemExit

    with pytest.raises(SystemExit), trainer(tmp_path / "run", total_steps=10**9) as run:
        conduct(run, 1_000, stop)
    assert run.status()["phase"] == "ended"
    assert run.result().ending == "stopped"


def test_a_report_period_is_a_number_of_steps(tmp_path: Path) -> None:
    with trainer(tmp_path / "run") as run:
        assert report_period(7, run) == 7
        with pytest.raises(ValueError, match="report_every= takes a number of steps, 1 or more, got 0"):
            report_period(0, run)


def test_what_is_copied_while_it_is_replaced_is_one_whole_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.json").write_text("{}")
    files = [f"part-{i}" for i in range(20)]
    ended = threading.Event()

    def replace(number: int) -> None:
        new = run / "checkpoints" / "new"
        new.mkdir()
        for name in files:
            (new / name).write_text(str(number))
        last = run / "checkpoints" / "last"
        if last.exists():
            last.rename(run / "checkpoints" / "last.old")
        new.rename(last)
        shutil.rmtree(run / "checkpoints" / "last.old", ignore_errors=True)

    def replace_all() -> None:
        for number in range(1, 300):
            replace(number)
        ended.set()

    copies = RunCopies(run)
    assert not copies.newer(tmp_path / "none")
    replace(0)
    writing = threading.Thread(target=replace_all)
    writing.start()
    seen = []
    while not ended.is_set():
        copy = tmp_path / f"copy-{len(seen)}"
        if copies.newer(copy):
            parts = {(copy / "checkpoints" / "last" / name).read_text() for name in files}
            assert len(parts) == 1
            seen.append(int(parts.pop()))
    writing.join()
    assert seen == sorted(seen)
    assert copies.newer(tmp_path / "final") == (seen[-1:] != [299])
    assert not copies.newer(tmp_path / "no more")


def test_what_cannot_be_copied_is_an_error_and_not_tried_forever(tmp_path: Path) -> None:
    run = tmp_path / "run"
    copies = RunCopies(run)
    last = run / "checkpoints" / "last"
    last.mkdir(parents=True)
    os.mkfifo(last / "pipe")  # which nobody can copy
    with pytest.raises(shutil.Error, match="named pipe"):
        copies.newer(tmp_path / "copy")


def test_a_result_that_comes_after_the_last_checkpoint_is_copied(tmp_path: Path) -> None:
    run = tmp_path / "run"
    copies = RunCopies(run)
    (run / "checkpoints" / "last").mkdir(parents=True)
    assert copies.newer(tmp_path / "first") and not copies.newer(tmp_path / "second")
    (run / "result.json").write_text("{}")
    assert copies.newer(tmp_path / "second") and not copies.newer(tmp_path / "third")
    assert (tmp_path / "second" / "result.json").exists() and not (tmp_path / "first" / "result.json").exists()
