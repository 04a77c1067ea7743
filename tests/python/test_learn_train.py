"""Training runs from Python: results, directories, options, failures, ways to end."""

from __future__ import annotations

import functools
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import learn_envs
import learn_modules
import shoal
from own_programs import environment, python
from promise import await_that
from shoal.learn.run_plan import new_run_dir

SMALL = {
    "num_envs": 4,
    "total_steps": 1600,
    "num_steps": 40,
    "batch_size": 64,
    "epochs": 2,
    "policy_hidden": [8],
    "value_hidden": [8],
    "normalize_obs": True,
    "normalize_reward": True,
    "eval_every": 500,
    "eval_episodes": 3,
    "eval_envs": 2,
    "final_episodes": 4,
}


def test_native_cartpole_is_learned(tmp_path):
    result = shoal.learn.train("shoal/CartPole-v1", seed=3, run_dir=tmp_path / "run", target_return=475)
    assert result.ending == "target"
    assert result.mean_return >= 475
    assert result.evaluated_episodes == 100
    assert result.steps <= 100_000
    again = shoal.learn.evaluate(result.run_dir, episodes=20, seed=12)
    assert again.mean_return >= 450
    assert again.episodes == 20


def test_a_run_leaves_its_directory_behind(tmp_path):
    result = shoal.learn.train("CartPole-v1", run_dir=tmp_path / "run", num_workers=2, seed=9, **SMALL)
    assert result.ending == "budget"
    assert (result.steps, result.env, result.seed) == (1600, "CartPole-v1", 9)
    assert result.run_dir == tmp_path / "run"
    assert result.evaluated_episodes == 4
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["env"] == "CartPole-v1"
    assert config["preset"] == "CartPole-v1"
    assert config["config"] == {**shoal.learn.preset("CartPole-v1"), **SMALL, "seed": 9}
    lines = [json.loads(line) for line in (tmp_path / "run/progress.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "train/loss" in line] == list(range(160, 1601, 160))
    assert [line["step"] for line in lines if "eval/mean_reward" in line] == [640, 1120, 1600]
    recorded = json.loads((tmp_path / "run/result.json").read_text())
    assert recorded["mean_return"] == result.mean_return


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("named", [True, False])
def test_a_run_stays_in_its_folder_where_the_process_goes_elsewhere(tmp_path, monkeypatch, named, own):
    """A relative folder is one of the working directory at the beginning: what came later lay in another one."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    options = {**SMALL, "num_workers": 0, "save_every_seconds": 0}
    if own:
        pytest.importorskip("torch")
        options |= {"policy": "learn_modules:ActorCritic", "policy_hidden": None, "value_hidden": None}
        options = {name: value for name, value in options.items() if value is not None}
    with shoal.learn.Trainer(learn_envs.Drift, run_dir="run" if named else None, **options) as trainer:
        os.chdir("elsewhere")
        trainer.start()
        trainer.wait()
        result = trainer.result()
        shown = repr(trainer)
    assert not result.run_dir.is_absolute() and f"in {result.run_dir}" in shown
    assert result.run_dir == Path("run") or not named
    assert list((tmp_path / "elsewhere").iterdir()) == []
    files = {path.name for path in (tmp_path / result.run_dir).iterdir()}
    assert files == {"checkpoints", "config.json", "lock", "progress.jsonl", "result.json"}
    os.chdir(tmp_path)
    (tmp_path / result.run_dir / "result.json").unlink()
    with shoal.learn.Trainer(run_dir=result.run_dir, resume=True, total_steps=2000) as trainer:
        os.chdir("elsewhere")
        trainer.start()
        trainer.wait()
    assert (tmp_path / result.run_dir / "result.json").exists()


def test_status_and_poll_follow_the_run(tmp_path):
    with shoal.learn.Trainer(learn_envs.Drift, run_dir=tmp_path / "run", num_workers=0, **SMALL) as trainer:
        assert trainer.status()["phase"] == "ready"
        with pytest.raises(RuntimeError, match=r"has not ended: wait\(\)"):
            trainer.result()
        trainer.start()
        assert trainer.wait() is True
        status = trainer.status()
        assert status["phase"] == "ended"
        assert status["step"] == status["total_steps"] == 1600
        assert status["ep_return_mean"] < 0
        records = trainer.poll()
        assert records[0][0] == 160
        names = set().union(*(values for _, values in records))
        assert {"rollout/ep_rew_mean", "train/loss", "charts/episodic_return", "eval/mean_reward", "train/std"} <= names
        assert trainer.poll() == []
        with pytest.raises(RuntimeError, match="has been started"):
            trainer.start()


def test_python_environments_of_this_process_step_while_python_works(tmp_path):
    """The learner's thread needs the interpreter for them, and gets it while the main thread computes."""
    with shoal.learn.Trainer(learn_envs.Drift, run_dir=tmp_path / "run", num_workers=0, **SMALL) as trainer:
        trainer.start()
        work = 0
        while not trainer.wait(0):
            work += sum(range(1000))
        assert trainer.result().steps == 1600
        assert work > 0


def test_callback_sees_the_status_and_may_stop_the_run(tmp_path):
    class Enough(Exception):
        pass

    def callback(status):
        if status["step"] > 0:
            raise Enough

    many = {**SMALL, "total_steps": 10_000_000, "target_return": None}
    with pytest.raises(Enough):
        shoal.learn.train("shoal/CartPole-v1", run_dir=tmp_path / "run", callback=callback, **many)
    assert (tmp_path / "run/checkpoints/last/state.json").exists()


@pytest.mark.parametrize("no", [False, np.bool_(False)])
def test_a_callback_that_answers_false_stops_the_run(tmp_path, no):
    options = {**SMALL, "total_steps": 10_000_000, "target_return": None, "eval_every": 0, "run_dir": tmp_path / "run"}
    result = shoal.learn.train("shoal/CartPole-v1", callback=lambda status: no if status["step"] > 0 else 0, **options)
    assert result.ending == "stopped" and 0 < result.steps < 10_000_000
    again = shoal.learn.train(run_dir=tmp_path / "run", resume=True, total_steps=result.steps, final_episodes=0)
    assert again.ending == "budget"


def test_a_run_that_evaluates_nothing_ends_with_its_steps(tmp_path):
    """Episodes that never end can be trained on."""
    options = {"num_envs": 2, "total_steps": 64, "num_steps": 16, "batch_size": 16, "num_workers": 0}
    options |= {"eval_every": 0, "final_episodes": 0}
    for policy in (None, learn_modules.ActorCritic):
        run = tmp_path / str(policy is None)
        result = shoal.learn.train(learn_envs.Endless, policy=policy, run_dir=run, **options)
        assert (result.ending, result.steps, result.evaluated_episodes) == ("budget", 64, 0)
        assert (result.mean_return, result.best_return) == (None, None)
        assert shoal.learn.load_policy(run).predict(np.zeros(3, np.float32)).shape == (2,)


def test_a_directory_without_a_name_is_refused():
    with pytest.raises(ValueError, match="run_dir is empty: name a directory"):
        shoal.learn.train("shoal/CartPole-v1", run_dir="", **SMALL)


@pytest.mark.parametrize("seed", [2**70, -(2**64)])
def test_a_number_that_64_bits_do_not_hold_is_named_as_it_was_given(seed, tmp_path):
    with pytest.raises(ValueError, match=f"seed = {seed} does not go into 64 bits"):
        shoal.learn.train("shoal/CartPole-v1", seed=seed, run_dir=tmp_path / "run", **SMALL)


def test_a_trainer_and_a_policy_say_how_they_travel(tmp_path):
    with shoal.learn.Trainer("shoal/CartPole-v1", run_dir=tmp_path / "run", **SMALL) as trainer:
        with pytest.raises(TypeError, match=r"a Trainer is not pickled: .* Hand its run_dir on, '.*run'"):
            pickle.dumps(trainer)
        trainer.start()
        trainer.wait()
    with pytest.raises(TypeError, match="hand the directory of its run on, and call load_policy"):
        pickle.dumps(shoal.learn.load_policy(tmp_path / "run"))


def test_callback_is_told_of_the_end_however_short_the_run_was(tmp_path):
    told = []
    shoal.learn.train("shoal/CartPole-v1", run_dir=tmp_path / "run", callback=told.append, **SMALL)
    assert (told[-1]["phase"], told[-1]["step"]) == ("ended", 1600)
    with pytest.raises(TypeError, match=r"callback=…\) takes a function of Trainer.status\(\), got 3"):
        shoal.learn.train("shoal/CartPole-v1", run_dir=tmp_path / "other", callback=3, **SMALL)
    assert not (tmp_path / "other").exists()


def test_stop_from_another_thread(tmp_path):
    many = {**SMALL, "total_steps": 10_000_000, "target_return": None}
    with shoal.learn.Trainer("shoal/CartPole-v1", run_dir=tmp_path / "run", **many) as trainer:
        trainer.start()
        while trainer.status()["step"] == 0:
            assert not trainer.wait(0.01)
        stopper = threading.Thread(target=trainer.stop)
        stopper.start()
        assert trainer.wait(60)
        stopper.join()
        assert trainer.result().ending == "stopped"
        assert 0 < trainer.result().steps < 10_000_000


def test_an_environments_exception_arrives_as_it_was_raised(tmp_path):
    for workers in (0, 2):
        with pytest.raises(LookupError, match="step 25 is the one"):
            shoal.learn.train(
                learn_envs.Drift,
                run_dir=tmp_path / f"run{workers}",
                num_workers=workers,
                env_kwargs={"fail_at": 25},
                **SMALL,
            )


class Mortal(learn_envs.Drift):
    def step(self, action):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes before Python 3.11")
@pytest.mark.parametrize("workers", [0, 1])
def test_what_an_environment_raised_is_kept_with_its_traceback(tmp_path, workers):
    options = {"env_kwargs": {"fail_at": 25}, "num_workers": workers, **SMALL}
    with pytest.raises(LookupError):
        shoal.learn.train(learn_envs.Drift, run_dir=tmp_path, **options)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["error"] == "LookupError: step 25 is the one that fails"
    assert "learn_envs.py" in result["traceback"] and "trainer.py" not in result["traceback"]
    assert re.search(r"^environment \d: step\(\), step \d+ of its episode, .*last seed \d+$", result["traceback"], re.M)


def test_a_run_whose_worker_died_says_how_it_goes_on(tmp_path):
    options = {**SMALL, "total_steps": 10**8, "save_every_seconds": 0, "target_return": None}
    for run_dir, due in ((tmp_path / "saved", "checkpoints/last"), (tmp_path / "new", "config.json")):
        if run_dir.name == "new":
            options["save_every_seconds"] = 60
        with shoal.learn.Trainer(learn_envs.Drift, run_dir=run_dir, num_workers=1, **options) as trainer:
            trainer.start()
            while not (run_dir / due).exists():
                assert not trainer.wait(0.01)
            os.kill(trainer._pids()[0], signal.SIGKILL)
            with pytest.raises(shoal.WorkerDied, match="SIGKILL") as died:
                trainer.wait()
        assert "on_fault" not in str(died.value) and "WorkerOptions" not in str(died.value)
        last = str(died.value).splitlines()[-1]
        if run_dir.name == "saved":
            assert last.endswith(f"resume=True, or:  shoal train --resume {run_dir}")
            assert str(pickle.loads(pickle.dumps(died.value))) == str(died.value)
        else:
            assert last.endswith("save_every_seconds=60: start it anew.")


def test_an_evaluation_whose_worker_died_names_no_on_fault(tmp_path):
    shoal.learn.train(learn_envs.Drift, run_dir=tmp_path, num_workers=0, **SMALL)
    with pytest.raises(shoal.WorkerDied, match="dmesg tells. Fewer processes") as died:
        shoal.learn.evaluate(tmp_path, 2, env=Mortal, num_workers=1)
    assert "on_fault" not in str(died.value)


def test_every_thread_that_waits_is_told_what_made_the_run_fail(tmp_path):
    options = {"env_kwargs": {"fail_at": 25}, "num_workers": 0, "run_dir": tmp_path / "run", **SMALL}
    with shoal.learn.Trainer(learn_envs.Drift, **options) as trainer:
        told = []

        def wait() -> None:
            try:
                trainer.wait()
            except (LookupError, RuntimeError) as error:
                told.append(str(error))

        threads = [threading.Thread(target=wait) for _ in range(4)]
        trainer.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(told) == 4 and any("step 25" in text for text in told)
    assert all("step 25" in text or "the run has failed" in text for text in told)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_environment_that_does_not_close_takes_nothing_from_the_run(workers, tmp_path):
    with pytest.warns(RuntimeWarning, match=r"OSError: the window is gone .*environment 0"):
        result = shoal.learn.train(
            learn_envs.Unclosable,
            run_dir=tmp_path / "run",
            num_workers=workers,
            backend="serial" if not workers else "process",
            **SMALL,
        )
    assert result.steps == 1600
    with pytest.warns(RuntimeWarning, match="the window is gone"):
        assert shoal.learn.evaluate(tmp_path / "run", env=learn_envs.Unclosable, episodes=2).episodes == 2


def test_classes_and_functions_of_modules_are_found_again(tmp_path):
    entropy = functools.partial(learn_envs.Drift, linger=0.0)
    for number, env in enumerate((learn_envs.Drift, entropy, [learn_envs.Drift, entropy])):
        run = shoal.learn.train(env, run_dir=tmp_path / str(number), num_workers=0, pause_at_step=800, **SMALL).run_dir
        assert shoal.learn.evaluate(run, episodes=2, num_workers=0).episodes == 2
        assert shoal.learn.train(run_dir=run, resume=True, num_workers=0).steps == 1600
    config = json.loads((run / "config.json").read_text())
    assert config["env_path"] == ["learn_envs:Drift", "learn_envs:Drift(linger=0.0)"]
    config["env_path"] = "learn_envs:Drifd"
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"learn_envs has no 'Drifd'; did you mean 'Drift'\?\. Give it as env="):
        shoal.learn.evaluate(run, episodes=2)


def test_a_factory_that_is_no_id_is_given_again_for_evaluation(tmp_path):
    result = shoal.learn.train(lambda: learn_envs.Drift(), run_dir=tmp_path / "run", num_workers=1, **SMALL)
    with pytest.raises(ValueError, match="give it as env="):
        shoal.learn.evaluate(result.run_dir, episodes=2)
    assert shoal.learn.evaluate(result.run_dir, episodes=2, env=learn_envs.Drift).episodes == 2


def test_a_list_of_factories(tmp_path):
    factories = [learn_envs.Drift, learn_envs.Drift]
    assert shoal.learn.train(factories, run_dir=tmp_path / "run", num_workers=0, **SMALL).steps == 1600


def counted(count):
    """Factories, and which of them made an environment, each time."""
    made = []

    def maker(number):
        def make():
            made.append(number)
            return learn_envs.Drift()

        return make

    return [maker(number) for number in range(count)], made


@pytest.mark.parametrize("own", [False, True])
def test_each_of_a_list_has_an_environment(tmp_path, own):
    options = {"preset": "sb3", "run_dir": tmp_path / "run", "num_workers": 0}
    if own:
        pytest.importorskip("torch")
        options |= {"policy": "learn_modules:ActorCritic"}
    makers, made = counted(4)
    with shoal.learn.Trainer(makers, **options) as trainer:
        assert trainer.config["num_envs"] == 4
        assert Counter(made).keys() == {0, 1, 2, 3} and min(Counter(made).values()) > 1  # for evaluations, too
    with pytest.raises(ValueError, match="is a list of 4, and with num_envs=3 some of them have no environment"):
        shoal.learn.Trainer(makers, num_envs=3, **options)
    with pytest.raises(ValueError, match="env= is an empty list"):
        shoal.learn.Trainer([], **options)
    more = {**options, "run_dir": tmp_path / "more"}
    with shoal.learn.Trainer(makers[:2], num_envs=3, **more) as trainer:
        assert trainer.config["num_envs"] == 3


FOR_EVALUATIONS = ("eval_envs", "eval_episodes", "final_episodes")


@pytest.mark.parametrize("own", [False, True])
def test_each_of_a_list_is_evaluated(tmp_path, own):
    options = {"preset": "sb3", "num_workers": 0}
    if own:
        pytest.importorskip("torch")
        options |= {"policy": "learn_modules:ActorCritic"}
    makers, made = counted(12)
    with shoal.learn.Trainer(makers, run_dir=tmp_path / "run", **options) as trainer:
        assert [trainer.config[name] for name in FOR_EVALUATIONS] == [12, 12, 100]
        assert set(Counter(made).values()) == {2}
    for name in FOR_EVALUATIONS:
        with pytest.raises(
            ValueError, match=f"list of 12, and with {name}=11 some of them are not evaluated: give {name}=12 or"
        ):
            shoal.learn.Trainer(makers, run_dir=tmp_path / "run", **options, **{name: 11})
    with shoal.learn.Trainer(makers, run_dir=tmp_path / "none", final_episodes=0, **options) as trainer:
        assert trainer.config["final_episodes"] == 0


def test_evaluate_has_an_episode_of_each_of_a_list(tmp_path):
    class Short(learn_envs.Drift):
        """Its episodes have one step."""

        def step(self, action):
            return *super().step(action)[:2], True, False, {}

    options = SMALL | {"eval_envs": 3, "total_steps": 160, "num_workers": 0}
    makers = [learn_envs.Drift, learn_envs.Drift, Short]
    run = shoal.learn.train(makers, run_dir=tmp_path / "run", **options).run_dir
    evaluate = functools.partial(shoal.learn.evaluate, run, num_workers=0)
    many = [learn_envs.Drift] * 32 + [Short]
    assert evaluate(episodes=33, env=many).lengths[-1] == 1
    with pytest.raises(ValueError, match="list of 33, and with episodes=32 some of them are not evaluated"):
        evaluate(episodes=32, env=many)
    with pytest.raises(ValueError, match="list of 3, and with num_envs=2 some of them have no environment"):
        evaluate(env=makers, num_envs=2)


def test_a_list_that_has_grown_does_not_go_on(tmp_path):
    options = SMALL | {"eval_envs": 4, "eval_episodes": 4}
    shoal.learn.train([learn_envs.Drift] * 4, run_dir=tmp_path, num_workers=0, pause_at_step=160, **options)
    with pytest.raises(ValueError, match="is a list of 5, and with num_envs=4"):
        shoal.learn.train([learn_envs.Drift] * 5, run_dir=tmp_path, num_workers=0, resume=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learnign_rate": 1}, 'no option "learnign_rate"; the nearest is "learning_rate"'),
        ({"self": 1}, 'no option "self"'),
        ({"preset": "claenrl"}, 'no preset "claenrl"; the nearest is "cleanrl"'),
        ({"num_envs": 0}, "num_envs is 0"),
        ({"gamma": 1.5}, "gamma"),
        ({"batch_size": "many"}, "batch_size"),
        ({"algorithm": "dqm"}, "'dqm'; there is ppo, a2c, a3c, impala, appo, dqn, sac, recurrent_ppo"),
    ],
)
def test_a_bad_option_is_one_clear_error_before_anything_starts(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        shoal.learn.train("CartPole-v1", run_dir=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_workers": "2"}, r"num_workers=…\) takes an int, got '2'"),
        ({"preset": 5}, "preset is 5, it has to be a name"),
        ({"algorithm": "appo", "listen": 3}, 'listen is 3, it has to be text: "host:port"'),
        ({"policy_hidden": {8}}, r"options are numbers, strings, lists and None, and policy_hidden is \{8\}"),
        ({"on_fault": "restart"}, "train has no on_fault=, .*resume='auto'; or write the loop over make_vec"),
        ({"worker": shoal.WorkerOptions()}, "train has no worker=, which is an argument of shoal.make_vec"),
        ({"memory_limit": 1 << 30}, "train has no memory_limit=, which is an argument of shoal.WorkerOptions"),
    ],
)
def test_an_option_of_the_wrong_kind_is_one_clear_error(tmp_path, options, message):
    with pytest.raises(TypeError, match=message):
        shoal.learn.train("CartPole-v1", run_dir=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_numbers_may_be_numpys(tmp_path):
    numbers = {"seed": np.int64(3), "total_steps": np.uint32(160), "num_envs": np.int8(4), "gamma": np.float32(0.5)}
    numbers |= {"policy_hidden": [np.int64(8)], "num_workers": np.int64(0)}
    with shoal.learn.Trainer("CartPole-v1", run_dir=tmp_path, **{**SMALL, **numbers}) as trainer:
        assert type(trainer.seed) is int
        assert {name: trainer.config[name] for name in ("seed", "total_steps", "gamma", "policy_hidden")} == {
            "seed": 3,
            "total_steps": 160,
            "gamma": 0.5,
            "policy_hidden": [8],
        }
    assert json.loads((tmp_path / "config.json").read_text())["num_workers"] == 0


@pytest.fixture
def one_moment(tmp_path, monkeypatch):
    """The folder where runs come to be, all of them in the same second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: "20260101-000000")
    return tmp_path / "runs"


def test_runs_that_begin_at_the_same_moment_have_folders_of_their_own(one_moment):
    folders = [new_run_dir("a/b", "ppo", 1) for _ in range(3)]
    stem = "a-b-ppo-seed1-20260101-000000"
    assert [folder.name for folder in folders] == [stem, f"{stem}-2", f"{stem}-3"]
    assert all(folder.is_dir() for folder in folders)
    result = shoal.learn.train("shoal/CartPole-v1", **SMALL)
    assert (result.run_dir / "result.json").exists()


@pytest.mark.parametrize("own", [False, True])
def test_a_run_that_cannot_be_built_leaves_no_folder(one_moment, own):
    options = {"num_workers": 0}
    if own:
        pytest.importorskip("torch")
        options |= {"policy": "learn_modules:ActorCritic"}
    with pytest.raises(TypeError, match="no_such"):
        shoal.learn.train(learn_envs.Drift, env_kwargs={"no_such": 1}, **options)
    assert list(one_moment.iterdir()) == []


def test_a_directory_that_holds_a_run_is_not_overwritten(tmp_path):
    shoal.learn.train("shoal/CartPole-v1", run_dir=tmp_path, **SMALL)
    before = (tmp_path / "config.json").read_text()
    with pytest.raises(ValueError, match="already holds a run"):
        shoal.learn.train("shoal/CartPole-v1", run_dir=tmp_path, **SMALL)
    assert (tmp_path / "config.json").read_text() == before


def test_files_of_others_are_not_overwritten(tmp_path):
    (tmp_path / "config.json").write_text('{"mine": 1}')
    for policy in (None, learn_modules.ActorCritic):
        with pytest.raises(ValueError, match="has a config.json that no run has written: choose another directory"):
            shoal.learn.train("shoal/CartPole-v1", run_dir=tmp_path, policy=policy, num_workers=0)
    assert [file.name for file in tmp_path.iterdir()] == ["config.json"]
    assert (tmp_path / "config.json").read_text() == '{"mine": 1}'


@pytest.mark.parametrize("text", ["{}", "[1]", "null", "", "{"])
def test_a_damaged_result_stands_in_no_runs_way(tmp_path, text):
    (tmp_path / "result.json").write_text(text)
    options = {**SMALL, "pause_at_step": 800, "run_dir": tmp_path}
    assert shoal.learn.train("shoal/CartPole-v1", **options).ending == "stopped"
    (tmp_path / "result.json").write_text(text)
    assert shoal.learn.train(run_dir=tmp_path, resume=True).ending == "budget"
    (tmp_path / "config.json").write_text('{"format": "shoal.run"}')
    with pytest.raises(ValueError, match="config.json is damaged: it has no env and no config"):
        shoal.learn.evaluate(tmp_path, episodes=1)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"config": [1]}, r"config = \[1\]"),
        ({"config": {}}, "no seed among its options"),
        ({"env": 3}, "env = 3"),
        ({"env_kwargs": 3, "unrecorded": 4}, "env_kwargs = 3 and unrecorded = 4"),
        ({"policy": None}, "no policy_name and no device"),
        ({"listen": 3}, "listen = 3"),
    ],
)
def test_a_damaged_config_is_one_clear_error(tmp_path, damage, said):
    shoal.learn.train("shoal/CartPole-v1", run_dir=tmp_path, pause_at_step=160, **SMALL)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | damage))
    with pytest.raises(ValueError, match=f"config.json is damaged: it has {said}; put a copy of it in its place"):
        shoal.learn.train(run_dir=tmp_path, resume=True)
    with pytest.raises(ValueError, match=f"config.json is damaged: it has {said}; put a copy of it in its place"):
        shoal.learn.evaluate(tmp_path, episodes=1)


@pytest.mark.parametrize(("name", "value"), [("activation", "relu"), ("num_envs", 2)])
def test_a_run_does_not_go_on_with_another_network(tmp_path, name, value):
    shoal.learn.train("shoal/CartPole-v1", run_dir=tmp_path, pause_at_step=800, **SMALL)
    said = "its run had activation = .tanh., not .relu." if name == "activation" else "leave num_envs as it was"
    with pytest.raises(shoal.Error, match=said):
        shoal.learn.train(run_dir=tmp_path, resume=True, **{name: value})


def test_presets_and_names():
    assert "CartPole-v1" in shoal.learn.preset_names()
    assert shoal.learn.preset_for("shoal/CartPole-v1") == "CartPole-v1"
    assert shoal.learn.preset_for("Blackjack-v1") == "sb3"
    names = shoal.learn.config_names()
    assert names == sorted(names)
    assert set(names) == set(shoal.learn.preset("sb3"))


def test_training_needs_no_torch_of_python():
    done = python("import shoal, sys; import shoal._learn, shoal.learn.trainer; print('torch' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


def test_learn_loads_before_core_and_after_torch():
    for first in ("import shoal._learn, shoal._core", "import torch, shoal._learn", "import shoal._learn, torch"):
        done = python(f"{first}; print(shoal._learn.preset_names()[0])")
        assert done.stdout.strip() == "sb3", done.stderr


def test_a_run_that_nobody_holds_any_more_ends(tmp_path):
    trainer = shoal.learn.Trainer(learn_envs.Drift, run_dir=tmp_path, num_workers=0, **{**SMALL, "total_steps": 10**8})
    trainer.start()
    while trainer.status()["step"] == 0:
        trainer.wait(0.01)
    del trainer
    assert (tmp_path / "checkpoints/last/state.json").exists()


UNENDING = """
import sys, learn_envs, shoal
small = {small!r} | {{"total_steps": 100_000_000}}
trainer = shoal.learn.Trainer(learn_envs.Drift, run_dir=sys.argv[1], num_workers=int(sys.argv[2]), **small)
trainer.start()
while trainer.status()["step"] == 0:
    trainer.wait(0.01)
{then}
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_a_program_may_end_with_a_run_going_on(tmp_path, workers):
    done = python(UNENDING.format(small=SMALL, then="print('end')"), tmp_path / "run", str(workers))
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
    assert (tmp_path / "run/checkpoints/last/state.json").exists()


def test_ctrl_c_stops_a_run_resumably(tmp_path):
    code = """
import sys, learn_envs, shoal
small = {small!r} | {{"total_steps": 100_000_000}}
shoal.learn.train(learn_envs.Drift, run_dir=sys.argv[1], num_workers=2, **small)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code.format(small=SMALL), str(tmp_path / "run")],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    try:
        progress = tmp_path / "run/progress.jsonl"
        while not (progress.exists() and progress.stat().st_size > 0):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert errors.count("Traceback") == 1
    assert "KeyboardInterrupt" in errors.splitlines()  # what the engine says of its workers may follow
    assert json.loads((tmp_path / "run/checkpoints/last/state.json").read_text())["step"] > 0


class Hanging(learn_envs.Drift):
    """Never ends its first step, and leaves a file that says that it is there."""

    def __init__(self, there):
        super().__init__()
        self._there = there

    def step(self, action):
        Path(self._there).touch()
        threading.Event().wait()


TWICE = """
import sys, shoal, shoal.learn.trainer
from test_learn_train import Hanging

shoal.learn.trainer._PATIENCE = 0.2
folder, workers, *more = sys.argv[1:]
options = {"policy": "learn_modules:ActorCritic", "algorithm": more[0]} if more else {}
options |= {"env_kwargs": {"there": folder + "/there"}, "run_dir": folder + "/run", "num_workers": int(workers)}
with shoal.learn.Trainer(Hanging, num_envs=2, eval_envs=1, **options) as trainer:
    try:
        trainer.start()
        trainer.wait()
    except KeyboardInterrupt:
        trainer.stop()
        print("stopping", flush=True)
        trainer.wait()
"""


@pytest.mark.parametrize("case", ["1", "0", "1 ppo", "0 ppo", "1 appo"])
def test_ctrl_c_twice_ends_a_run_whose_environment_hangs(tmp_path, case):
    if " " in case:
        pytest.importorskip("torch")
    process = subprocess.Popen(
        [sys.executable, "-c", TWICE, str(tmp_path), *case.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    try:
        while not (tmp_path / "there").exists():
            assert process.poll() is None, process.communicate()[1]
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == (130 if case[0] == "0" else -signal.SIGINT), errors
    assert "KeyboardInterrupt" in errors.splitlines()  # what the engine says of its workers may follow


def test_ctrl_c_while_a_run_is_closed_ends_its_workers(tmp_path, monkeypatch, descendants):
    before = descendants()
    options = {**SMALL, "num_envs": 2, "env_kwargs": {"there": str(tmp_path / "there")}}
    trainer = shoal.learn.Trainer(Hanging, num_workers=1, run_dir=tmp_path / "run", **options)
    trainer.start()
    while not (tmp_path / "there").exists():
        assert not trainer.wait(0.01)
    waits = trainer._wait_quietly

    def interrupted():
        monkeypatch.setattr(trainer, "_wait_quietly", waits)
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "_wait_quietly", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.close()
    assert trainer.status()["phase"] == "ended"
    with pytest.raises(shoal.WorkerDied, match="SIGKILL"):
        trainer.wait()
    await_that(lambda: descendants() <= before, "the end of its workers")


def test_rewards_of_the_result_are_the_environments_own(tmp_path):
    """Normalised for learning, counted as they are."""
    result = shoal.learn.train("shoal/Pendulum-v1", run_dir=tmp_path, **SMALL)
    assert result.mean_return < -200
    assert np.isfinite(result.std_return)
