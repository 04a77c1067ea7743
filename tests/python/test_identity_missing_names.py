"""What fails in a worker on a name that the parent has says so, and names the fix."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import pytest

import shoal
from sample_envs import CounterEnv
from written_modules import written_modules

SETTINGS = """
class Options:
    pass

class Config:
    pass

config = Config()
TABLE = {"default": 1}
"""

ENVS = """
import late_settings as settings
from late_settings import TABLE, Config, Options, config
from sample_envs import CounterEnv

class Lookup(CounterEnv):
    def __init__(self, what):
        super().__init__()
        self.what = what
        if what.startswith("init "):
            self.look(what[5:])

    def step(self, action):
        self.look(self.what)

    def look(self, what):
        if what == "module":
            return settings.PORT
        if what == "class":
            return Options.speed
        if what == "instance of a class":
            return Options().speed
        if what == "object":
            return config.size
        if what == "key":
            return TABLE["new"]
        if what == "key of an attribute":
            return settings.TABLE["new"]
        if what == "global":
            return LATE
        if what == "nothing":
            return settings.NOWHERE
        if what == "nowhere":
            return TABLE["nowhere"]
"""


modules = written_modules(late_settings=SETTINGS, late_envs=ENVS)

CASES = {
    "module": (AttributeError, "has late_settings.PORT, the worker has not", "config=[late_settings]"),
    "class": (AttributeError, "has Options.speed, the worker has not", "config=[Options]"),
    "instance of a class": (AttributeError, "has Options.speed, the worker has not", "config=[Options]"),
    "object": (AttributeError, "has config.size, the worker has not", "config=[config]"),
    "key": (KeyError, "has TABLE['new'], the worker has not", "config=[TABLE]"),
    "key of an attribute": (KeyError, "has TABLE['new'], the worker has not", "config=[TABLE]"),
    "global": (NameError, "has late_envs.LATE, the worker has not", "config=[late_envs]"),
}


def set_all(settings: Any, envs: Any) -> None:
    settings.PORT = 1
    settings.Options.speed = 2
    settings.config.size = 3
    settings.TABLE["new"] = 4
    envs.LATE = 5


def error_of(envs_module: Any, what: str, **kwargs: Any) -> BaseException:
    envs = None
    try:
        envs = shoal.make_vec(envs_module.Lookup, 1, num_workers=1, env_kwargs={"what": what}, **kwargs)
        envs.reset()
        envs.step([0])
    except Exception as error:
        return error
    finally:
        if envs is not None:
            envs.close()
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("when", ["", "init "])
@pytest.mark.parametrize("what", CASES)
def test_a_name_that_only_the_parent_has(what: str, when: str, modules: Any) -> None:
    set_all(*modules)
    kind, says, fix = CASES[what]
    error = error_of(modules[1], when + what)
    assert type(error) is kind
    notes = "\n".join(error.__notes__)
    assert says in notes and fix in notes
    assert fix in str(error.__cause__)
    assert not any(name.startswith("_shoal") for name in vars(error))


@pytest.mark.parametrize("what", ["class", "object", "key", "global"])
def test_the_fix_that_is_named_works(what: str, modules: Any) -> None:
    settings, envs_module = modules
    set_all(*modules)
    things = {"class": settings.Options, "object": settings.config, "key": settings.TABLE, "global": envs_module}
    envs = shoal.make_vec(
        envs_module.Lookup, 1, num_workers=1, env_kwargs={"what": f"init {what}"}, config=[things[what]]
    )
    envs.close()


@pytest.mark.parametrize("what", ["nothing", "nowhere"])
def test_a_name_that_nobody_has_is_explained_by_nobody(what: str, modules: Any) -> None:
    set_all(*modules)
    error = error_of(modules[1], what)
    assert "config=" not in "\n".join(error.__notes__)


def test_what_only_the_worker_lacks_by_a_property_is_not_looked_into(modules: Any) -> None:
    def explode(self: Any) -> int:
        raise RuntimeError("a property of the parent's was called")

    modules[0].Options.speed = property(explode)
    error = error_of(modules[1], "class")
    assert "config=[Options]" in "\n".join(error.__notes__)


def test_an_id_that_only_the_parent_has_registered() -> None:
    gymnasium.register("OnlyHere-v0", entry_point=CounterEnv, kwargs={"guard": threading.Lock()})  # it cannot travel
    try:
        with pytest.raises(gymnasium.error.NameNotFound) as caught:
            shoal.make_vec(lambda: gymnasium.make("OnlyHere-v0"), 1, num_workers=1)
        notes = "\n".join(caught.value.__notes__)
        assert "'OnlyHere-v0' is registered in the caller's process, but not in the worker" in notes
        assert "setup=" in notes
    finally:
        gymnasium.registry.pop("OnlyHere-v0")
