"""shoal.compat.ding: the results of DI-engine's environment managers, and the ways to them.

`./shoal test --only ding` runs it in an environment of its own: DI-engine's requirements exclude ours.
"""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("ding") is None:
    pytest.skip(
        "there is no DI-engine (./shoal test --only ding makes an environment that has it)", allow_module_level=True
    )

import ding.envs as peer
import treetensor.numpy as tnp
from ding.config import compile_config
from ding.envs import create_env_manager, get_env_manager_cls
from ding.envs.env_manager.base_env_manager import EnvState
from easydict import EasyDict

import shoal
from ding_calls import V1, V2, counting, managers
from same import assert_same
from shoal.compat import ding as ours
from shoal.compat.ding.trees import timestep_tree
from timestep_envs import CountingEnv, DictEnv, OddEnv


class TreeTalker(CountingEnv):
    """Infos of all kinds that a tree takes."""

    def step(self, action: Any) -> Any:
        timestep = super().step(action)
        info = {"TimeLimit.truncated": False, "text": "left out", "3": [1, 2], "deep": {"a": np.zeros(2)}}
        return timestep._replace(info=info if self.steps % 2 else {"x": np.float32(1)})


def shape_of(tree: Any) -> Any:
    """A tree of arrays as dicts of arrays, whose keys have no order; an array around one object as that."""
    if isinstance(tree, tnp.ndarray):
        return {key: shape_of(tree[key]) for key in sorted(tree.keys())}
    return ("object", tree.item()) if isinstance(tree, np.ndarray) and tree.dtype == object and not tree.ndim else tree


@pytest.fixture
def manager() -> Iterator[Callable[..., Any]]:
    with managers() as make:
        yield make


# Results


@pytest.mark.parametrize("name", V1)
@pytest.mark.parametrize("shared_memory", [True, False])
def test_timesteps_are_the_peers(manager: Any, name: str, shared_memory: bool) -> None:
    more = {} if name == "base" else {"reset_inplace": True, "shared_memory": shared_memory, "step_wait_timeout": None}
    mine, theirs = (manager(kind, counting(3, length=4), launched=False, **more) for kind in V1[name])
    for envs in (mine, theirs):
        envs.seed(5, dynamic_seed=False)
        envs.launch({i: {"start": i} for i in range(3)})
    for _ in range(12):
        assert_same(mine.ready_obs, theirs.ready_obs)
        assert mine.ready_obs_id == theirs.ready_obs_id
        actions = {i: np.array([i]) for i in mine.ready_obs}
        got, expected = mine.step(actions), theirs.step(actions)
        assert {type(timestep) for timestep in got.values()} == {type(timestep) for timestep in expected.values()}
        assert_same({i: tuple(got[i]) for i in sorted(got)}, {i: tuple(expected[i]) for i in sorted(expected)})


@pytest.mark.parametrize("name", V2)
@pytest.mark.parametrize("env", [CountingEnv, TreeTalker])
def test_trees_are_the_peers(manager: Any, name: str, env: Any) -> None:
    more = {} if name == "base" else {"reset_inplace": True}
    mine, theirs = (manager(kind, counting(3, env, length=4), **more) for kind in V2[name])
    for _ in range(9):
        assert_same(mine.ready_obs, theirs.ready_obs)
        actions = [np.array([i]) for i in range(3)]
        got, expected = mine.step(actions), theirs.step(actions)
        assert [type(tree) for tree in got] == [type(tree) for tree in expected]
        for tree, other in zip(got, expected, strict=True):
            assert_same(shape_of(tree), shape_of(other))
            assert_same(shape_of(tree.tensor().numpy()), shape_of(other.tensor().numpy()))
            assert tree.done.item() == other.done.item() and tree.env_id.item() == other.env_id.item()


@pytest.mark.parametrize("kind", [kinds[0] for kinds in V2.values()])
def test_observations_in_dicts_are_trees(manager: Any, kind: Any) -> None:
    envs = manager(kind, [DictEnv] * 2)
    obs = envs.ready_obs
    assert isinstance(obs, tnp.ndarray) and obs.image.shape == (2, 4, 4) and obs.vector.dtype == np.float32
    timestep = envs.step(tnp.array({"a": np.zeros((2, 3)), "b": np.zeros(2)}))[1]
    assert timestep.obs.image.shape == (4, 4)


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"a": 1},
        {"a.b": True},
        {"1a": [1]},
        {"d": {"e": {}}},
        {"n": None},
        {"s": "text"},
        {"t": (1, 2)},
        EasyDict(a=1),
    ],
)
def test_a_tree_is_what_the_library_makes(info: Any) -> None:
    from ding.utils import make_key_as_identifier, remove_illegal_item

    obs, reward = np.zeros(3, np.float32), np.ones(1)
    tree = timestep_tree((obs, reward, False, info), 3)
    kept = remove_illegal_item(make_key_as_identifier(info))
    expected = tnp.array({"obs": obs, "reward": reward, "done": False, "info": kept, "env_id": 3})
    assert_same(shape_of(tree), shape_of(expected))
    assert type(tree) is type(expected) and type(tree.info) is type(expected.info)
    assert tree.obs is not obs and np.shares_memory(tree.obs, obs) == np.shares_memory(expected.obs, obs)


def test_results_of_every_type_cross(manager: Any) -> None:
    envs = manager(ours.SyncSubprocessEnvManager, [OddEnv], shared_memory=False)
    for i, expected in enumerate(OddEnv.RESULTS[:3]):
        assert_same(tuple(envs.step({0: i})[0]), tuple(expected))


# Which environment an action is for


def until_zero_is_ready_again(manager: Any, kind: Any, folder: Path) -> tuple[Any, np.ndarray]:
    """Environment 0 has ended its episode and is reset in the background, which ends between ready_obs and step."""
    go, begun = folder / "go", folder / "begun"
    reset = {"command": f"wait for {go}"}
    envs = manager(kind, counting(2, length=100), shared_memory=False)
    go.touch()
    envs.reset({0: {**reset, "start": 98}, 1: {}})
    go.unlink()
    timesteps = envs.step([np.array([10]), np.array([11])])
    assert not timesteps[0].done
    assert envs.step([np.array([20]), np.array([21])])[0].done
    obs = envs.ready_obs
    assert obs.shape == (1, 3) and obs[0, 0] == 1  # of environment 1 alone
    go.touch()
    assert not begun.exists()
    return envs, obs


def test_the_peer_gives_an_action_to_the_wrong_environment(manager: Any, tmp_path: Path) -> None:
    envs, obs = until_zero_is_ready_again(manager, peer.SubprocessEnvManagerV2, tmp_path)
    while envs._env_states[0] != EnvState.RUN:
        time.sleep(0.001)
    (timestep,) = envs.step([np.array([31])])
    assert timestep.env_id.item() == 0 != obs[0, 0]


def test_an_action_goes_to_the_environment_whose_observation_it_answers(manager: Any, tmp_path: Path) -> None:
    envs, obs = until_zero_is_ready_again(manager, ours.SubprocessEnvManagerV2, tmp_path)
    while envs.health()[0]["state"] != "idle":  # environment 0 is back
        time.sleep(0.001)
    assert envs.ready_obs_id == [1]
    (timestep,) = envs.step([np.array([31])])
    assert timestep.env_id.item() == 1 == obs[0, 0]
    assert [action.item() for action in envs.actions[1]] == [11, 21, 31]
    while len(envs.ready_obs) < 2:
        pass
    assert envs.ready_obs_id == [0, 1]
    assert [timestep.env_id.item() for timestep in envs.step([np.array([40]), np.array([41])])] == [0, 1]
    assert [action.item() for action in envs.actions[0]] == [10, 20, 40]


@pytest.mark.parametrize("kind", [kinds[0] for kinds in V2.values()])
def test_a_wrong_number_of_actions_steps_nothing(manager: Any, kind: Any) -> None:
    envs = manager(kind, counting(3))
    for count in (2, 4):
        with pytest.raises(ValueError, match=f"{count} actions for the 3 environments"):
            envs.step([np.array([1])] * count)
    assert envs.actions == [[], [], []]
    assert [timestep.env_id.item() for timestep in envs.step({2: 0, 0: 0})] == [2, 0]


@pytest.mark.parametrize("kind", [kinds[0] for kinds in V2.values()])
def test_timesteps_have_the_order_of_the_actions_also_of_all_environments(manager: Any, kind: Any) -> None:
    envs = manager(kind, counting(3))
    assert [timestep.env_id.item() for timestep in envs.step({2: 12, 0: 10, 1: 11})] == [2, 0, 1]
    assert [action for (action,) in envs.actions] == [10, 11, 12]


def test_a_reset_goes_on_beside_the_steps_of_others(manager: Any, tmp_path: Path) -> None:
    envs = manager(ours.SyncSubprocessEnvManager, counting(2, length=3))
    envs.reset({0: {"start": 2}, 1: {"start": -100}})
    envs._reset_param[0] = {"command": f"wait for {tmp_path / 'go'}"}
    assert envs.step({0: 1, 1: 1})[0].done
    for _ in range(5):
        assert list(envs.ready_obs) == [1]
        assert envs._env_states == {0: EnvState.RESET, 1: EnvState.RUN}
        envs.step({1: 1})
    with pytest.raises(AssertionError, match="RESET"):
        envs.step({0: 1})
    (tmp_path / "go").touch()
    while len(envs.ready_obs) < 2:
        pass
    assert_same(envs.ready_obs[0], np.array([0, -1, 0], np.float32))


def test_an_asynchronous_step_does_not_wait_for_the_slow(manager: Any, tmp_path: Path) -> None:
    envs = manager(ours.AsyncSubprocessEnvManager, counting(3, length=50), wait_num=2, step_wait_timeout=0.01)
    timesteps = envs.step({0: f"wait for {tmp_path / 'go'}", 1: 1, 2: 1})
    assert sorted(timesteps) == [1, 2] and sorted(envs.ready_obs) == [1, 2]
    assert sorted(envs.step({1: 1, 2: 1})) == [1, 2]
    with pytest.raises(AssertionError):
        envs.step({0: 1})
    (tmp_path / "go").touch()
    seen = set()
    while 0 not in seen:
        seen |= set(envs.step(dict.fromkeys(envs.ready_obs, 1)))
    assert sorted(envs.ready_obs) == [0, 1, 2]
    envs.step({0: f"wait for {tmp_path / 'later'}", 1: 1, 2: 1})
    (tmp_path / "later").touch()
    envs.reset({0: {"start": 7}})  # whose step nobody has asked for
    assert envs.ready_obs[0][2] == 7
    assert 0 in envs.step({0: 1})


# Ways in


def test_a_configuration_names_the_managers() -> None:
    config = EasyDict(type="shoal", import_names=["shoal.compat.ding"])
    assert get_env_manager_cls(config) is ours.SyncSubprocessEnvManager
    envs = create_env_manager(
        EasyDict({**config, **ours.SyncSubprocessEnvManager.default_config(), "num_workers": 1}), counting(3)
    )
    envs.launch()
    assert len(envs.ready_obs) == 3 and envs.stats()["workers"][0]["num_envs"] == 3
    envs.close()
    names = {"shoal_async": "Async", "shoal_v2": "SubprocessEnvManagerV2", "shoal_base": "Base", "shoal_base_v2": "V2"}
    for name, part in names.items():
        kind = get_env_manager_cls(EasyDict(type=name))
        assert part in kind.__name__ and kind.__module__.startswith("shoal.")
    assert ours.SubprocessEnvManager is ours.SyncSubprocessEnvManager


def test_a_compiled_configuration_has_our_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    from dizoo.classic_control.cartpole.config.cartpole_ppo_config import create_config, main_config

    create = EasyDict(pickle.loads(pickle.dumps(create_config)))
    create.env_manager = EasyDict(type="shoal", import_names=["shoal.compat.ding"])
    main = EasyDict(pickle.loads(pickle.dumps(main_config)))
    main.env.manager = {"num_workers": 2}
    cfg = compile_config(main, create_cfg=create, auto=True, save_cfg=True)
    assert cfg.env.manager.num_workers == 2 and cfg.env.manager.on_fault == "raise"
    assert cfg.env.manager.cfg_type == "SyncSubprocessEnvManagerDict"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"env_fn": CountingEnv}, r"\[make_env\] \* 4"),
        ({"env_fn": []}, "empty list"),
        ({"env_fn": [CountingEnv()]}, "is an environment"),
        ({"env_fn": [3]}, r"env_fns\[0\] is 3"),
        ({"cfg": {"retry_type": "again"}}, "'reset' or 'renew'"),
        ({"cfg": {"on_fault": "drop"}}, "none can be dropped"),
        ({"cfg": {"num_workers": 0}}, "1 or more"),
        ({"cfg": {"num_workers": "two"}}, "takes an int, 1 or more"),
        ({"cfg": {"worker": 3}}, "WorkerOptions"),
        ({"worker": shoal.WorkerOptions(memory_limit=10**9)}, "memory_hard_limit"),
        ({"cfg": 3}, "default_config"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        ours.SyncSubprocessEnvManager(**{"env_fn": [CountingEnv], **arguments})


def test_resets_in_place_need_auto_reset() -> None:
    with pytest.raises(AssertionError, match="auto_reset"):
        ours.SubprocessEnvManagerV2([CountingEnv], EasyDict(reset_inplace=True, auto_reset=False))


def test_replays_and_figures_are_asked_of_the_environments(manager: Any, tmp_path: Path) -> None:
    class Recording(CountingEnv):
        def enable_save_replay(self, replay_path: str) -> None:
            assert not self.arguments, "it was reset before"
            self.replay = replay_path

        def enable_save_figure(self, figure_path: str) -> None:
            self.figure = figure_path

    envs = manager(ours.SubprocessEnvManagerV2, counting(2, Recording), launched=False)
    envs.enable_save_replay("here")
    envs.launch()
    assert envs.replay == ["here", "here"]
    envs.enable_save_figure(1, "there")
    with pytest.raises(AttributeError):
        _ = envs.figure  # environment 0 has none
    envs.close()
    envs.enable_save_replay(["a", "b"])
    envs.launch()
    assert envs.replay == ["a", "b"]


class Screen:
    def __init__(self, number: int) -> None:
        self.number = number

    def render(self, mode: str) -> np.ndarray:
        assert mode == "rgb_array"
        return np.full((2, 2, 3), self.number, np.uint8)


def test_pictures_come_from_the_workers(manager: Any) -> None:
    class Drawn(CountingEnv):
        def __init__(self, number: int) -> None:
            super().__init__(number)
            self._env = Screen(number)

    images = manager(ours.SyncSubprocessEnvManager, counting(2, Drawn)).ready_imgs
    assert_same(images, {i: np.full((2, 2, 3), i, np.uint8) for i in range(2)})


def test_the_agents_classes_can_be_put_in_place() -> None:
    program = """
        import ding.envs, ding.envs.env_manager.ding_env_manager as chooser
        import shoal.compat.ding as ours
        theirs = ding.envs.SubprocessEnvManagerV2
        ours.install()
        assert chooser.SubprocessEnvManagerV2 is ding.envs.SubprocessEnvManagerV2 is ours.SubprocessEnvManagerV2 is not theirs
        assert ding.envs.BaseEnvManagerV2 is ours.BaseEnvManagerV2
        ours.install()
    """
    lines = "\n".join(line.strip() for line in program.splitlines())
    subprocess.run([sys.executable, "-W", "ignore", "-c", lines], check=True, timeout=100)
