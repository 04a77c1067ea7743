"""Processes that train together: started by `nproc=`, or by hand with a launcher's variables; killed, stopped and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import learn_envs
import shoal
from bench_scripts import script
from learn_runs import arrays, lines
from shoal.learn.ranks import Ranks

SMALL: dict[str, Any] = {
    "num_envs": 8,
    "total_steps": 1600,
    "num_steps": 40,
    "batch_size": 64,
    "epochs": 2,
    "policy_hidden": [8],
    "value_hidden": [8],
    "normalize_obs": True,
    "normalize_reward": True,
    "eval_every": 800,
    "eval_episodes": 2,
    "eval_envs": 2,
    "final_episodes": 0,
    "shards": 2,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of Python environments in this process alone."""
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    shoal.learn.train(learn_envs.Drift, run_dir=run_dir, num_workers=0, **SMALL)
    return run_dir


@pytest.mark.parametrize("split", ["auto", "never"])
def test_two_processes_give_the_bits_of_one(tmp_path: Path, whole: Path, split: str) -> None:
    options = {**SMALL, "split_update": split}
    with shoal.learn.Trainer(learn_envs.Drift, run_dir=tmp_path / "run", nproc=2, **options) as trainer:
        trainer.start()
        trainer.wait()
        assert trainer.result().steps == 1600
        assert (
            isinstance(trainer.status()["splits_update"], bool)
            if split == "auto"
            else not trainer.status()["splits_update"]
        )
    assert arrays(tmp_path / "run") == arrays(whole)
    assert lines(tmp_path / "run") == lines(whole)


def test_a_stopped_run_goes_on_with_another_number_of_processes(tmp_path: Path, whole: Path) -> None:
    shoal.learn.train(learn_envs.Drift, run_dir=tmp_path / "run", nproc=2, pause_at_step=640, **SMALL)
    shoal.learn.train(learn_envs.Drift, run_dir=tmp_path / "run", resume=True, num_workers=0)
    assert arrays(tmp_path / "run") == arrays(whole)


def test_a_list_of_factories_is_shared_out(tmp_path: Path, whole: Path) -> None:
    shoal.learn.train([learn_envs.Drift] * 2, run_dir=tmp_path / "run", nproc=2, **SMALL)
    assert arrays(tmp_path / "run") == arrays(whole)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_killed_or_stopped_ends_the_run_with_one_error(tmp_path: Path, how: signal.Signals) -> None:
    trainer = shoal.learn.Trainer(
        learn_envs.Drift, run_dir=tmp_path / "run", nproc=2, **{**SMALL, "total_steps": 100_000_000, "eval_every": 0}
    )
    with trainer:
        assert [rank for rank, _, _ in trainer.members] == [0, 1]
        assert trainer.members[0][2] == os.getpid()
        pid = trainer.members[1][2]
        trainer.start()
        while trainer.status()["step"] == 0:
            assert not trainer.wait(0.05)
        os.kill(pid, how)
        with pytest.raises(shoal.PeerLost) as caught:
            trainer.wait(30)
    assert (caught.value.rank, caught.value.pid) == (1, pid)
    assert caught.value.host == os.uname().nodename
    assert "no checkpoint yet" in str(caught.value) and "on_fault" not in str(caught.value)
    if how == signal.SIGKILL:
        assert "signal 9 (SIGKILL)" in str(caught.value)
    else:
        assert "it does not answer" in str(caught.value)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_slow_rank_is_not_waited_for_where_a_part_of_them_is_enough(tmp_path: Path) -> None:
    options = {**SMALL, "shards": 0, "sync_fraction": 0.5, "total_steps": 640, "eval_every": 0}
    with shoal.learn.Trainer(learn_envs.SlowInAWorker, run_dir=tmp_path / "run", nproc=2, **options) as trainer:
        trainer.start()
        trainer.wait()
        assert trainer.result().steps >= 640
    records = [record for record in lines(tmp_path / "run") if "train/loss" in record]
    cut = [record["rollout/steps_cut"] for record in records]
    assert max(cut) > 0 and all(0 <= steps <= 3 * 160 / 4 for steps in cut)
    assert records[-1]["step"] == sum(320 - steps for steps in cut)
    with pytest.raises(ValueError, match="sync_fraction = 1.5; it must be above 0"):
        shoal.learn.train("CartPole-v1", run_dir=tmp_path / "no", sync_fraction=1.5)


def test_a_rank_that_fails_ends_the_run_with_its_traceback_and_last_lines(tmp_path: Path) -> None:
    with pytest.raises(shoal.PeerLost, match="is the one that fails") as caught:
        shoal.learn.train(learn_envs.FailsInAWorker, run_dir=tmp_path / "run", nproc=2, **SMALL)
    assert caught.value.rank == 1
    assert "last words" in str(caught.value)


def test_a_rank_that_cannot_begin_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(shoal.Error, match="nowhere to be found"):
        shoal.learn.train(learn_envs.AbsentInAWorker, run_dir=tmp_path / "run", nproc=2, **SMALL)


def test_ranks_far_above_the_cpus_are_refused_before_any_starts() -> None:
    most = 16 * len(os.sched_getaffinity(0))
    with pytest.raises(
        ValueError, match=f"nproc={most + 1} is more than 16 processes for each CPU .*: give at most {most}, or"
    ):
        Ranks(most + 1)
    assert Ranks(most).size == most  # which start() would start


def test_what_does_not_go_together_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(match: str, **arguments: Any) -> None:
        with pytest.raises(ValueError, match=match):
            shoal.learn.train("CartPole-v1", run_dir=tmp_path / "run", **arguments)

    refused("nproc is 0, it has to be", nproc=0)
    refused("dqn does not learn on 2 ranks together", nproc=2, algorithm="dqn")
    refused("which does not go into 3 ranks", nproc=3, num_envs=8)
    refused("a policy= .* is not trained on 3 ranks together: with nproc=1", nproc=3, policy="some:policy")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused("leave nproc out to train with those", nproc=2)
    refused("a policy= .* is not trained on 2 ranks together: with nproc=1", policy="some:policy")
    assert not (tmp_path / "run").exists()


def programs(
    tmp_path: Path, variables: dict[str, str], options: list[dict[str, Any]], hosts: Any = None
) -> list[subprocess.Popen[str]]:
    """One for each rank with its options, which find each other by their variables, each on its host where there are hosts."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, learn_envs, shoal, json\n"
        "result = shoal.learn.train(learn_envs.Drift, run_dir=sys.argv[1], num_workers=0, **json.loads(sys.argv[2]))\n"
        "print(result.steps)\n"
    )
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(shoal.__file__).parents[1])])
    ranks = []
    for rank, own in enumerate(options):
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "RANK": str(rank),
            "WORLD_SIZE": str(len(options)),
            "SHOAL_GROUP_ATTEMPT": str(tmp_path),
            **variables,
        }
        command = [sys.executable, str(program), str(tmp_path / f"run{rank}"), json.dumps(own)]
        command = hosts.command(rank, command) if hosts else command
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        ranks.append(subprocess.Popen(command, env=environment, text=True, **pipes))
    return ranks


def joined(tmp_path: Path, whole: Path, variables: dict[str, str], hosts: Any = None) -> None:
    """Two programs train as one."""
    for rank in programs(tmp_path, variables, [SMALL, SMALL], hosts):
        assert rank.communicate(timeout=60)[0] == "1600\n"
        assert rank.returncode == 0
    assert arrays(tmp_path / "run0") == arrays(whole)
    assert not (tmp_path / "run1").exists()


@pytest.mark.parametrize("other", [{"learning_rate": 0.5}, {"num_steps": 80}, {"algorithm": "a2c"}])
def test_ranks_with_different_arguments_are_refused(tmp_path: Path, other: dict[str, Any]) -> None:
    ours = {**SMALL, **other}
    if "algorithm" in other:  # which has not all of these options
        ours = {name: ours[name] for name in ("algorithm", "num_envs", "total_steps")}
    first, second = programs(tmp_path, {}, [SMALL, ours])
    name, value = next(iter(other.items()))
    said = second.communicate(timeout=60)[1]
    assert second.returncode != 0 and f"ValueError: rank 1 has {name}={value!r}, and rank 0 has" in said
    said = first.communicate(timeout=60)[1]
    assert first.returncode != 0 and f"rank 1 has {name}={value!r}" in said, "rank 0 is told"


def test_ranks_of_a_launcher_join_by_its_variables(tmp_path: Path, whole: Path) -> None:
    joined(tmp_path, whole, {})


def test_ranks_in_two_network_namespaces_are_on_two_hosts(tmp_path: Path, whole: Path) -> None:
    namespaces = script("namespaces")
    if reason := namespaces.why_not():
        pytest.skip(reason)
    with namespaces.Namespaces(2) as hosts:
        local = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        where = {"MASTER_ADDR": hosts.address(0), "SHOAL_GROUP_SECRET": "known to both"}
        joined(tmp_path, whole, {**local, **where}, hosts)


def test_the_same_command_begins_a_run_and_then_goes_on_with_it(tmp_path: Path, whole: Path) -> None:
    """As a launcher starts it again: what the run was told goes before what the options say."""
    for seed in (0, 1):
        shoal.learn.train(
            learn_envs.Drift,
            "ppo",
            run_dir=tmp_path / "run",
            resume="auto",
            num_workers=0,
            seed=seed,
            pause_at_step=640,
            **SMALL,
        )
    assert arrays(tmp_path / "run") == arrays(whole)
    with pytest.raises(TypeError, match="resume='auto' needs run_dir="):
        shoal.learn.train("CartPole-v1", resume="auto")
    with pytest.raises(ValueError, match="resume is 'always'"):
        shoal.learn.train("CartPole-v1", resume="always")
