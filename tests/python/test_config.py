"""`config=` and `setup=`: what a program has set reaches its workers, under every start method."""

from __future__ import annotations

import os
import signal
import threading
import types
from typing import Any

import numpy as np
import pytest

import shoal
from sample_envs import CounterEnv
from shoal.identity import snapshots
from shoal.ipc.pickling import PicklingError
from written_modules import written_modules

BACKENDS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    "fork": {"context": "fork", "num_workers": 2, "worker": shoal.WorkerOptions(allow_unsafe_fork=True)},
    "forkserver": {"context": "forkserver", "num_workers": 2},
    "spawn": {"context": "spawn", "num_workers": 2},
}

SETTINGS = """
import threading

PORT = 1
NAMES = ["default"]
TABLE = {"default": {"deep": 1}}
KIND = None
LOCK = threading.Lock()

def function(): ...
chosen = function

class Options:
    speed = 1
    tags = []
    _shared = {}
    def method(self): return self.speed
    @property
    def double(self): return 2 * self.speed

class Config:
    def __init__(self):
        self.size = 1
        self.inner = Options()
        self.array = None

config = Config()
Options.instance = Config()
"""

ENVS = """
import gymnasium
import settings_under_test as settings
from settings_under_test import NAMES, TABLE, Options, config
from sample_envs import CounterEnv

class SettingsEnv(CounterEnv):
    def seen(self):
        inner = TABLE.get("new", TABLE["default"])
        return (settings.PORT, tuple(NAMES), inner["deep"], settings.chosen.__name__, Options.speed, tuple(Options.tags),
                config.size, settings.config is config, config.inner.speed, Options.instance.size)
"""

DEFAULTS = (1, ("default",), 1, "function", 1, (), 1, True, 1, 1)


# A module of settings, and one of environments that has imported parts of it.
modules = written_modules(settings_under_test=SETTINGS, envs_under_test=ENVS)


def another() -> None: ...


def change(settings: Any) -> None:
    settings.PORT = 2
    settings.NAMES.append("more")
    settings.TABLE["new"] = {"deep": 2}
    settings.chosen = another
    settings.Options.speed = 3
    settings.Options.tags.append("tag")
    settings.config.size = 4
    settings.config.inner.speed = 5
    settings.Options.instance.size = 6


CHANGED = (2, ("default", "more"), 2, "another", 3, ("tag",), 4, True, 5, 6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_the_parent_has_set_is_in_place_in_the_workers(backend: str, modules: Any) -> None:
    settings, envs_module = modules
    change(settings)
    listed = [shoal.Snapshot(settings, "LOCK"), settings.Options, settings.config, settings.Options.instance]
    envs = shoal.make_vec(envs_module.SettingsEnv, 2, config=listed, **BACKENDS[backend])
    assert envs.call("seen") == (CHANGED,) * 2
    envs.close()


def test_without_it_workers_have_what_the_modules_say(modules: Any) -> None:
    settings, envs_module = modules
    change(settings)
    envs = shoal.make_vec(envs_module.SettingsEnv, 1, num_workers=1)
    assert envs.call("seen") == (DEFAULTS,)
    envs.close()


def test_a_snapshot_is_of_the_moment_and_restarts_see_it_too(modules: Any) -> None:
    settings, envs_module = modules
    settings.PORT = 2
    envs = shoal.make_vec(
        envs_module.SettingsEnv, 1, num_workers=1, config=[shoal.Snapshot(settings, "LOCK")], on_fault="restart"
    )
    settings.PORT = 3
    envs.reset()
    os.kill(envs.stats()["workers"][0]["pid"], signal.SIGKILL)
    envs.step([0])
    envs.reset()  # waits for the new one
    assert envs.call("seen")[0][0] == 2
    envs.close()


class ConfigEnv(CounterEnv):
    def __init__(self) -> None:
        super().__init__()
        self.config = {name: getattr(thing, "__name__", thing) for name, thing in shoal.worker().config.items()}
        self.context = shoal.worker().context


@pytest.mark.parametrize("backend", BACKENDS)
def test_worker_config_has_the_things_by_name(backend: str, modules: Any) -> None:
    settings, _ = modules
    settings.PORT = 9
    named = {
        "settings": shoal.Snapshot(settings, leave_out="unpicklable"),
        "options": settings.Options,
        "rate": 0.5,
        "layers": [64, 64],
    }
    envs = shoal.make_vec(ConfigEnv, 2, config=named, **BACKENDS[backend])
    expected = {"settings": "settings_under_test", "options": "Options", "rate": 0.5, "layers": [64, 64]}
    assert envs.get_attr("config") == (expected,) * 2
    envs.close()
    listed = shoal.make_vec(ConfigEnv, 1, config=[settings.Options, settings.config], **BACKENDS[backend])
    assert set(listed.get_attr("config")[0]) == {"settings_under_test.Options", "settings_under_test.config"}
    listed.close()


def test_options_take_it_too_but_not_twice(modules: Any) -> None:
    options = shoal.WorkerOptions(config={"rate": 1})
    envs = shoal.make_vec(ConfigEnv, 1, num_workers=1, worker=options)
    assert envs.get_attr("config") == ({"rate": 1},)
    envs.close()
    with pytest.raises(ValueError, match="config= is given twice"):
        shoal.make_vec(ConfigEnv, 1, config=[modules[0].Options], worker=options)


def test_those_of_a_pool_hold_for_the_environments_in_it(modules: Any) -> None:
    settings, _ = modules
    settings.PORT = 9
    taken = shoal.Snapshot(settings, "LOCK")
    with shoal.WorkerPool(2, worker=shoal.WorkerOptions(config={"settings": taken, "rate": 1})) as pool:
        with shoal.make_vec(PortEnv, 2, pool=pool) as envs:
            assert envs.get_attr("config") == ({"settings": "settings_under_test", "rate": 1},) * 2
            assert envs.get_attr("port") == (9, 9)
        with shoal.make_vec("shoal/CartPole-v1", 2, pool=pool) as native:  # which have no use for it
            native.reset(seed=0)
        with pytest.raises(ValueError, match="config= is given twice"):
            shoal.make_vec(ConfigEnv, 1, config={"rate": 1}, pool=pool)


class PortEnv(ConfigEnv):
    def __init__(self) -> None:
        super().__init__()
        self.port = shoal.worker().config["settings"].PORT


def test_what_cannot_be_pickled_is_named_with_the_way_to_leave_it_out(modules: Any) -> None:
    settings, envs_module = modules
    with pytest.raises(PicklingError, match=r"settings_under_test\.LOCK cannot be sent.*leave_out=\('LOCK',\)"):
        shoal.make_vec(envs_module.SettingsEnv, 1, num_workers=1, config=settings)
    settings.TABLE["lock"] = {"inner": [threading.Lock()]}
    with pytest.raises(
        PicklingError, match=r"settings_under_test\.TABLE\['lock'\]\['inner'\]\[0\].*leave_out=\('TABLE',\)"
    ):
        snapshots.take([shoal.Snapshot(settings, "LOCK")])
    settings.config.gate = threading.Lock()
    with pytest.raises(
        PicklingError, match=r"settings_under_test\.config\.gate.*Snapshot\(config, leave_out=\('gate',\)\)"
    ):
        snapshots.take([settings.config])
    with pytest.raises(PicklingError, match=r"x cannot be sent"):
        snapshots.take({"x": threading.Lock()})
    with pytest.raises(PicklingError, match=r"settings_under_test\.config\.gate.*leave_out=\('config',\)"):
        snapshots.take([shoal.Snapshot(settings, ["LOCK", "TABLE"])])
    with pytest.raises(PicklingError, match=r"TABLE\['lock'\].*Snapshot\(TABLE, leave_out=\('lock',\)\)"):
        snapshots.take([settings.TABLE])
    del settings.config.gate
    snapshots.take([shoal.Snapshot(settings.TABLE, "lock"), shoal.Snapshot(settings, ["LOCK", "TABLE"])])
    with pytest.raises(ValueError, match="has no such attribute to leave out"):
        snapshots.take([shoal.Snapshot(settings, "LOKC")])


def test_what_no_worker_has_of_its_own_is_refused_in_a_list() -> None:
    for thing in (threading.Lock(), object(), 3, "settings", {"local"}):
        with pytest.raises(TypeError, match=r"config\[0\] is a .* no global of any module.*config=\{'name': …\}"):
            shoal.make_vec(CounterEnv, 1, num_workers=1, config=[thing])
    with pytest.raises(TypeError, match="takes a mapping from str"):
        shoal.make_vec(CounterEnv, 1, num_workers=1, config={1: 2})


def test_native_environments_take_neither() -> None:
    with pytest.raises(ValueError, match="native ones run no Python"):
        shoal.make_vec("shoal/CartPole-v1", 1, config={"a": 1})
    with pytest.raises(ValueError, match="native ones run no Python"):
        shoal.make_vec("shoal/CartPole-v1", 1, setup=print)


def test_what_is_left_out_stays_as_the_worker_has_it(modules: Any) -> None:
    settings, _ = modules
    settings.config.gate = own = threading.Lock()
    settings.TABLE["lock"] = threading.Lock()
    packed = snapshots.take([shoal.Snapshot(settings.config, "gate"), shoal.Snapshot(settings.TABLE, "unpicklable")])
    settings.config.size, settings.TABLE["default"] = -1, None
    settings.config.gate = own
    config, table = settings.config, settings.TABLE
    snapshots.restore(packed)
    assert settings.config is config and config.size == 1 and config.gate is own
    assert settings.TABLE is table and table["default"] == {"deep": 1} and "lock" in table


# Restoring in place


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class WithRule:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        return WithRule, (self.value,)


def test_objects_keep_their_identity_where_that_can_be() -> None:
    from shoal.identity.restoring import merged

    for old, new in [
        ({"a": 1, "b": 2}, {"c": 3}),
        ([1], [2, 3]),
        ({1}, {2}),
        (Slotted([1]), Slotted([2])),
        (types.SimpleNamespace(a=1), types.SimpleNamespace(b=2)),
    ]:
        inner = old.value if isinstance(old, Slotted) else None
        put = merged(old, new, {})
        if not isinstance(old, types.SimpleNamespace):  # which has its own rule of pickling
            assert put is old
        assert put == new or (isinstance(put, Slotted) and put.value is inner and inner == [2])
    array = np.zeros(3)
    assert merged(array, np.arange(3.0), {}) is array and array.tolist() == [0, 1, 2]
    assert merged(array, np.arange(4.0), {}).shape == (4,)
    new = WithRule(2)
    assert merged(WithRule(1), new, {}) is new
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    old_cycle: dict[str, Any] = {"self": None}
    assert merged(old_cycle, cycle, {}) is old_cycle


class Node:
    def __init__(self, value: int) -> None:
        self.value = value
        self.parts: list[Any] = []


def test_what_parts_refer_to_is_what_is_in_place() -> None:
    from shoal.identity.restoring import merged, settled

    old: dict[str, Any] = {
        "nodes": [],
        "node": Node(1),
        "pair": None,
        "table": {},
        "slotted": Slotted(None),
        "set": set(),
    }
    new: dict[str, Any] = {"nodes": [], "node": Node(2)}
    child = Node(3)
    child.parts = [new["node"], new]
    new["node"].parts = [child, [{"back": (new["node"], child)}]]
    new["nodes"] += [new["node"], child, new["nodes"]]
    new |= {"pair": (new["node"], 1), "table": {"deep": [new["node"]]}, "set": {new["node"]}}
    new["slotted"] = Slotted([new["node"]])
    node, nodes = old["node"], old["nodes"]
    memo: dict[int, Any] = {}
    put = settled(merged(old, new, memo), memo, set())
    assert put is old and put["node"] is node and node.value == 2 and put["nodes"] is nodes
    assert nodes == [node, child, nodes] and child.parts == [node, old]
    assert node.parts == [child, [{"back": (node, child)}]] and put["pair"] == (node, 1)
    assert put["table"]["deep"] == [node] and put["set"] == {node} and put["slotted"].value == [node]


def test_lists_refer_to_the_workers_own_objects(modules: Any) -> None:
    settings, _ = modules
    settings.NAMES[:] = [settings.config]
    settings.Options.tags.append((settings.config, settings.Options.instance))
    things = [shoal.Snapshot(settings, "LOCK"), settings.Options, settings.Options.instance]
    packed = snapshots.take({"listed": [settings.config], **{str(i): thing for i, thing in enumerate(things)}})
    settings.NAMES.clear()
    settings.Options.tags.clear()
    config, instance = settings.config, settings.Options.instance
    restored = snapshots.restore(packed)
    assert settings.config is config and settings.NAMES == [config] and restored["listed"] == [config]
    assert settings.Options.instance is instance and settings.Options.tags == [(config, instance)]


# setup=


@pytest.mark.parametrize("backend", BACKENDS)
def test_setup_runs_once_in_each_worker_before_its_environments(backend: str) -> None:
    number = 7

    class Context:
        def __init__(self) -> None:
            self.value = (number, shoal.worker().index, shoal.worker().counter("setups").add())

        def close(self) -> None:
            shoal.worker().counter("closed").add()

    class SetupEnv(CounterEnv):
        def __init__(self) -> None:
            super().__init__()
            self.context = shoal.worker().context.value

        def close(self) -> None:
            assert shoal.worker().context is not None

    envs = shoal.make_vec(SetupEnv, 4, setup=lambda: Context(), **BACKENDS[backend])
    contexts = envs.get_attr("context")
    assert len(set(contexts)) == envs.num_workers and all(context[0] == 7 for context in contexts)
    assert envs.counter("setups").value == envs.num_workers
    envs.close()
    assert envs.counter("closed").value == envs.num_workers


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_in_setup_is_reported_as_such(backend: str) -> None:
    def setup() -> None:
        raise ConnectionError("the simulator does not answer")

    with pytest.raises(ConnectionError, match="does not answer") as caught:
        shoal.make_vec(CounterEnv, 2, setup=setup, **BACKENDS[backend])
    assert any("make_vec(setup=…): of worker" in note for note in caught.value.__notes__)
    if backend != "serial":
        assert "in setup" in str(caught.value.__cause__)


def test_a_restarted_worker_is_set_up_anew() -> None:
    def setup() -> int:
        return shoal.worker().counter("setups").add()

    envs = shoal.make_vec(ConfigEnv, 1, num_workers=1, setup=setup, on_fault="restart")
    envs.reset()
    assert envs.get_attr("context") == (1,)
    os.kill(envs.stats()["workers"][0]["pid"], signal.SIGKILL)
    envs.step([0])
    envs.reset()  # waits for the new one
    assert envs.get_attr("context") == (2,)
    envs.close()


def test_a_setup_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a function without arguments"):
        shoal.make_vec(CounterEnv, 1, num_workers=1, setup="print")  # type: ignore[arg-type]
    lock = threading.Lock()
    with pytest.raises(PicklingError, match=r"setup\.<closure>\.lock"):
        shoal.make_vec(CounterEnv, 1, num_workers=1, setup=lambda: lock)
