"""What a collector asks for actions: policies of all kinds behind one face."""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector.utils import batch_space

from shoal import _core
from shoal.collect.answers import OUTPUTS, array_of, described, parts_of, refuse_what_is_no_answer, store, tensor_of
from shoal.collect.generators import Generators
from shoal.serve.client import ServiceModel
from shoal.serve.face import ServiceFace
from shoal.serve.in_python import is_module
from shoal.serve.local import LocalModel
from shoal.serve.structure import tree_map

__all__ = [
    "Actor",
    "NetworkActor",
    "RandomActor",
    "Staged",
    "actor_of",
    "check_policy",
    "only_model",
]


class Staged(NamedTuple):
    """Rows of a batch for which the policy is asked with copies in the places of environments that are elsewhere.

    Attributes:
        own: the arrays of the own environments.
        first: the first row.
        columns: of the own environments, among those that the policy is asked for.
    """

    own: dict[str, Any]
    first: int
    columns: slice


class Actor(ABC):
    """Chooses actions for all environments.

    Attributes:
        outputs: which of log_prob and value it gives; known after the first row for policies in Python.
        version: of its weights.
        wants_tensors: whether batches are torch tensors by default.
        is_recurrent: whether extras() has a `state`.
        asks_in_calls: whether what it chooses for a row may depend on how many rows it is asked for at once.
        is_ending: the collector is to be closed: what is chosen in Python ends with a RuntimeError.
    """

    outputs: frozenset[str] = frozenset(OUTPUTS)
    version = 0
    wants_tensors = False
    is_recurrent = False
    asks_in_calls = False
    is_ending = False

    @abstractmethod
    def acting(self, arrays: dict[str, Any], staged: Staged | None = None) -> AbstractContextManager[Any]:
        """Around some rows of the batch that `arrays` are, of which nothing is kept afterwards.

        Gives what the C++ collector calls: a C++ actor, or a function of the row's number.

        Args:
            staged: `arrays` are of one row, which all rows use in turn; where they belong.
        """

    def extras(self) -> dict[str, Any]:
        """More entries of the batch that acting() was told of."""
        return {}

    def restart(self) -> None:  # noqa: B027  # most have nothing to forget
        """All environments have been reset."""

    @abstractmethod
    def update_weights(self, weights: Mapping[str, Any] | None) -> None:
        """Acts with these from now on, under the next version. None: with what the caller has changed itself.

        Raises:
            TypeError: for a policy that cannot take them.
        """

    def weights(self) -> Mapping[str, Any] | None:
        """What update_weights() takes, as it is now; None where there is no such thing."""
        return None

    def state(self) -> dict[str, Any]:
        return {"version": self.version}

    def load_state(self, state: dict[str, Any]) -> None:
        self.version = state["version"]

    def _check_end(self) -> None:
        if self.is_ending:
            raise RuntimeError("this collector is being closed")


class NetworkActor(Actor):
    """A C++ network, of a run or new. What it draws follows from its seed, the row, and the step.

    Several may share a network, one at a time: each has a seed and, of a recurrent network, a memory of its own.

    Attributes:
        network: that of C++.
    """

    asks_in_calls = True  # rows are numbered from 0

    def __init__(self, network: Any, seed: int) -> None:
        self.network = network
        self._seed = seed
        self._remembers = network.memory_size > 0
        self._memory = np.empty(0, np.float32)  # of the rows of its environments; empty: of no episode yet

    def beside(self, seed: int) -> NetworkActor:
        """Another one of the same network, for other environments."""
        return NetworkActor(self.network, seed)

    @contextlib.contextmanager
    def acting(self, arrays: dict[str, Any], staged: Staged | None = None) -> Iterator[Any]:
        self.network.reseed(self._seed)
        if not self._remembers:
            yield self.network
            return
        self.network.load_memory(self._memory)
        try:
            yield self.network
        finally:
            self._memory = self.network.memory()

    def update_weights(self, weights: Mapping[str, Any] | None) -> None:
        if weights is None:
            raise TypeError("update_weights() of a C++ network takes its weights: a dict from names to arrays")
        self.network.load_weights({name: np.ascontiguousarray(array_of(value)) for name, value in weights.items()})
        self.version += 1

    def weights(self) -> Mapping[str, Any]:
        weights: dict[str, Any] = self.network.weights()
        return weights

    def state(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "seed": self._seed,
            "weights": self.network.weights(),
            "memory": self._memory.copy(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.network.load_weights(state["weights"])
        self._memory = np.array(state["memory"], np.float32)
        self._seed = state["seed"]
        self.version = state["version"]


class PythonActor(Actor):
    """A module of torch, or any callable: observations of all environments in, actions out.

    A state of a recurrent one is its own: what batches have are copies. What it draws from torch's and NumPy's global generators comes from states of the actor's own, which begin at `seed`.
    """

    asks_in_calls = True

    def __init__(self, policy: Callable[..., Any], num_envs: int, seed: int, first_env: int = 0) -> None:
        self.wants_tensors = is_module(policy)
        self.outputs = frozenset()
        self._policy: Any = policy
        self._num_envs = num_envs
        self._first_env = first_env
        self._random = Generators(seed)
        self._known = False
        self._initial_state: Callable[[int], Any] | None = getattr(policy, "initial_state", None)
        self.is_recurrent = self._initial_state is not None
        self._state: Any = None
        self.restart()

    def restart(self) -> None:
        if self._initial_state is not None:
            self._state = _copied(self._initial_state(self._num_envs))
        self._first_state = _copied(self._state)

    @contextlib.contextmanager
    def acting(self, arrays: dict[str, Any], staged: Staged | None = None) -> Iterator[Any]:
        as_leaf = tensor_of if self.wants_tensors else np.asarray
        self._seen = _seen(arrays, as_leaf)
        self._staged = None if staged is None else _StagedRows(_seen(staged.own, as_leaf), staged)
        self._columns = slice(None) if staged is None else staged.columns
        for name in OUTPUTS:
            if name not in self.outputs:
                arrays[name][:] = np.nan
        self._rows = {name: _Rows(as_leaf(arrays[name])) for name in ("action", *OUTPUTS)}
        torch = sys.modules.get("torch")
        try:
            with self._random, torch.no_grad() if torch else contextlib.nullcontext():
                yield self._row
        finally:
            del self._seen, self._staged, self._rows

    def extras(self) -> dict[str, Any]:
        """Of the rows since they were asked for last."""
        if not self.is_recurrent:
            return {}
        first, self._state = self._first_state, _copied(self._state)  # it may be a part of the batch
        self._first_state = _copied(self._state)
        return {"state": first, "next_state": _copied(self._state)}

    def update_weights(self, weights: Mapping[str, Any] | None) -> None:
        if weights is not None:
            load = getattr(self._policy, "load_state_dict", None)
            if load is None:
                raise TypeError(
                    f"the policy {self._policy!r} has no load_state_dict() that would take weights: change it as it is "
                    "changed, and call update_weights() without any"
                )
            load(weights)
        self.version += 1

    def weights(self) -> Mapping[str, Any] | None:
        give, take = getattr(self._policy, "state_dict", None), getattr(self._policy, "load_state_dict", None)
        return None if give is None or take is None else give()

    def state(self) -> dict[str, Any]:
        return {"version": self.version, "random": self._random.state(), "state": _copied(self._state)}

    def load_state(self, state: dict[str, Any]) -> None:
        self._random.load_state(state["random"])
        self._state = _copied(state["state"])
        self._first_state = _copied(self._state)
        self.version = state["version"]

    def _row(self, t: int) -> None:
        self._check_end()
        shown = _row_of(self._seen.obs, t)
        is_first = self._seen.is_first.of[t] if self.is_recurrent else None
        if self._staged is None:
            self._take(self._asked(shown, is_first), t)
            return
        shown = _copied(shown)
        is_first = is_first if is_first is None else _copied(is_first)
        answer = self._asked(tree_map(_same, shown) if isinstance(shown, dict | tuple) else shown, is_first)
        self._staged.keep(shown, is_first)
        self._take(answer, t)

    def _asked(self, obs: Any, is_first: Any) -> Any:
        return self._policy(obs, self._state, is_first) if self.is_recurrent else self._policy(obs)

    def _take(self, answer: Any, t: int) -> None:
        refuse_what_is_no_answer(answer)
        given = parts_of(answer)
        if "action" not in given:
            raise TypeError(f"the policy gave no action: {described(answer)}")
        if self.is_recurrent:
            if "state" not in given:
                raise TypeError("a policy with an initial_state() returns a dict with the next 'state', too")
            self._state = given.pop("state")
        outputs = frozenset(given) - {"action"}
        if not self._known:
            unknown = outputs - {*OUTPUTS}
            if unknown:
                raise TypeError(f"the policy gave {sorted(unknown)}: a policy gives 'action', 'log_prob' and 'value'")
            self.outputs, self._known = outputs, True
        elif outputs != self.outputs:
            raise TypeError(f"the policy gave {sorted(outputs)} beside its actions, and {sorted(self.outputs)} before")
        for name, value in given.items():
            store(name, value, self._rows[name].of[t], self._columns, self._first_env)


class ServiceActor(PythonActor):
    """A model of a ModelService, asked for all environments at once."""

    asks_in_calls = False

    def __init__(self, model: Any, service: ServiceFace | None, num_envs: int, seed: int, first_env: int = 0) -> None:
        super().__init__(model.batch, num_envs, seed, first_env)
        self._model = model
        self._service = service

    @contextlib.contextmanager
    def acting(self, arrays: dict[str, Any], staged: Staged | None = None) -> Iterator[Any]:
        self._versions = arrays["policy_version"]
        try:
            with super().acting(arrays, staged) as row:
                yield row
        finally:
            del self._versions

    def update_weights(self, weights: Mapping[str, Any] | None) -> None:
        if self._service is None or weights is None:
            raise TypeError(
                "update_weights() of a collector whose policy is a model of a service: give it weights, and the "
                "ModelService itself as policy; or call the service's own update()"
            )
        self.version = self._service.update(self._model.name, weights)

    def weights(self) -> None:
        """The service's weights are its own."""

    def state(self) -> dict[str, Any]:
        return {"version": self.version}

    def load_state(self, state: dict[str, Any]) -> None:
        """The service's weights are its own."""

    def _row(self, t: int) -> None:
        super()._row(t)
        if self._model.version is not None:
            self.version = max(self.version, self._model.version)
            self._versions[t] = self._model.version


class RandomActor(Actor):
    """Samples of the action space; of those that the part `mask` of the observations allows, where one is named."""

    def __init__(self, single_action_space: Any, num_envs: int, seed: int, mask: str | None = None) -> None:
        self._num_envs = num_envs
        self._start = int(single_action_space.start) if isinstance(single_action_space, Discrete) else 0
        self._mask_name = mask
        self._masks: Any = None
        self._space = batch_space(single_action_space, num_envs)
        self._space.seed(seed)
        self._own = slice(None)

    @contextlib.contextmanager
    def acting(self, arrays: dict[str, Any], staged: Staged | None = None) -> Iterator[Any]:
        """`staged`: of all environments that it samples for, those whose arrays these are."""
        self._rows = arrays["action"]
        self._own = slice(None) if staged is None else staged.columns
        if self._mask_name is not None:
            self._masks = arrays["obs"][self._mask_name]
        for name in OUTPUTS:
            arrays[name][:] = np.nan
        try:
            yield self._row
        finally:
            del self._rows
            self._masks = None

    def update_weights(self, weights: Mapping[str, Any] | None) -> None:
        raise TypeError("random actions have no weights")

    def state(self) -> dict[str, Any]:
        return {"random": self._space.np_random.bit_generator.state}

    def load_state(self, state: dict[str, Any]) -> None:
        self._space.np_random.bit_generator.state = state["random"]

    def _row(self, t: int) -> None:
        self._check_end()
        if self._masks is None:
            self._rows[t] = self._space.sample()[self._own]
            return
        allowed = self._masks[t] != 0
        counts = allowed.sum(1)
        if not counts.all():
            raise ValueError(f"the action mask {self._mask_name!r} of an environment allows no action")
        draws = self._space.np_random.random(self._num_envs)[self._own]
        which = np.minimum((draws * counts).astype(np.int64), counts - 1)
        self._rows[t] = self._start + (allowed.cumsum(1) > which[:, None]).argmax(1)


class _Rows:
    """The rows of an array or tensor as views, made at once: that is cheaper than one by one."""

    def __init__(self, array: Any) -> None:
        self.of = list(array) if isinstance(array, np.ndarray) else array.unbind(0)


class _Seen(NamedTuple):
    """What a policy is shown."""

    obs: Any
    is_first: _Rows


def _seen(arrays: dict[str, Any], as_leaf: Callable[[Any], Any]) -> _Seen:
    return _Seen(
        tree_map(lambda array: _Rows(as_leaf(array)), arrays["obs"]),
        _Rows(as_leaf(arrays["is_first"])),
    )


def _row_of(rows: Any, t: int) -> Any:
    return rows.of[t] if isinstance(rows, _Rows) else tree_map(lambda leaf: leaf.of[t], rows)


class _StagedRows:
    """The own rows of a batch that a policy is shown on a stage. What it is shown there is memory of its own, as the rows of a
    batch are where there is no stage: what it keeps stays as it is, and what it writes there is in the batch."""

    def __init__(self, own: _Seen, staged: Staged) -> None:
        self._own = own
        self._next = staged.first
        self._columns = staged.columns

    def keep(self, shown: Any, is_first: Any) -> None:
        """What the policy was shown for the next row, and may have written to."""
        if isinstance(self._own.obs, _Rows):
            self._own.obs.of[self._next][...] = shown[self._columns]
        else:
            tree_map(self._write, _row_of(self._own.obs, self._next), shown)
        if is_first is not None:
            self._write(self._own.is_first.of[self._next], is_first)
        self._next += 1

    def _write(self, row: Any, shown: Any) -> None:
        row[...] = shown[self._columns]


def actor_of(
    policy: Any,
    engine: _core.VectorEnv,
    num_envs: int,
    seed: int,
    *,
    network_seed: int | None = None,
    first_env: int = 0,
) -> Actor:
    """The actor for a Collector's `policy`, asked for `num_envs` environments at once.

    Args:
        first_env: the number of the station's first environment among them, for messages.
        network_seed: what a new network's weights follow from; by default `seed`.
    """
    if isinstance(policy, str | Path):
        return NetworkActor(_network(policy, engine, seed if network_seed is None else network_seed), seed)
    check_policy(policy)
    if isinstance(policy, ServiceFace):
        return ServiceActor(only_model(policy), policy, num_envs, seed, first_env)
    if isinstance(policy, ServiceModel | LocalModel):
        return ServiceActor(policy, None, num_envs, seed, first_env)
    return PythonActor(policy, num_envs, seed, first_env)


def only_model(service: ServiceFace) -> ServiceModel:
    """Raises ValueError where there are several."""
    names = service.directory.names
    if len(names) != 1:
        raise ValueError(f"the service has the models {', '.join(names)}: give one as policy, service.model(name)")
    return service.model(names[0])


def check_policy(policy: Any) -> None:
    """Raises TypeError for what is no policy, ValueError for the name of none."""
    if isinstance(policy, str | Path):
        _source(policy)
    elif not isinstance(policy, ServiceFace | ServiceModel | LocalModel):
        if isinstance(policy, type) or not callable(policy):
            raise TypeError(
                "policy= takes the directory of a run, the name of a preset, a torch module or another callable, or a "
                f"shoal.ModelService; got {policy!r}"
                + (f", a class: give what is made of it, {policy.__name__}(…)" if isinstance(policy, type) else "")
            )
        _check_plain(policy)
        _check_call(policy)


def _check_plain(policy: Callable[..., Any]) -> None:
    """Raises TypeError for a callable that returns something to await or to iterate over."""
    kinds = {
        "async": lambda function: inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function),
        "a generator, for it has a yield": inspect.isgeneratorfunction,
    }
    for kind, is_so in kinds.items():
        if any(map(is_so, (policy, type(policy).__call__))):
            raise TypeError(
                f"policy= takes what returns actions when it is called; {_named(policy)} is {kind}: give a plain function"
            )


def _check_call(policy: Callable[..., Any]) -> None:
    """Raises TypeError for a callable that cannot be called as a policy is, as most functions that make one."""
    remembers = hasattr(policy, "initial_state")
    given = "obs, state, is_first" if remembers else "obs"
    try:
        signature = inspect.signature(policy)
    except (TypeError, ValueError):  # some of C
        return
    try:
        signature.bind(*given.split(", "))
    except TypeError as error:
        raise TypeError(
            f"policy= is called as policy({given}), with the observations of all environments, and returns their actions; "
            f"{_named(policy)} is not called so ({error}). Of a function that makes a policy, give what it returns"
            + ("" if remembers else "; one with an initial_state() gets its state and is_first, too")
        ) from None


def _named(function: Any) -> str:
    try:
        return f"{function.__qualname__}{inspect.signature(function)}"
    except (AttributeError, TypeError, ValueError):
        return repr(function)


def _network(policy: str | Path, engine: _core.VectorEnv, seed: int) -> Any:
    from shoal import _learn

    directory, config = _source(policy)
    if config is not None:
        return _learn.NetworkActor.create(engine, json.dumps(config), seed)
    return _learn.NetworkActor.load(engine, str(directory), seed)


def _source(policy: str | Path) -> tuple[Path | None, dict[str, Any] | None]:
    """The directory of a checkpoint, or the options of a preset."""
    from shoal.runs import checkpoint_dir, is_of_module, preset, preset_names

    if isinstance(policy, str) and policy in preset_names():
        return None, preset(policy)
    if not Path(policy).is_dir():
        raise ValueError(
            f"policy={str(policy)!r} is neither the directory of a run nor one of the presets {', '.join(preset_names())}"
        )
    directory = checkpoint_dir(policy)
    if is_of_module(directory):
        raise ValueError(
            f"policy={str(policy)!r} is a run of a torch module: give the module itself, shoal.learn.load_policy(…).module"
        )
    return directory, None


def _same(leaf: Any) -> Any:
    return leaf


def _copied(state: Any) -> Any:
    """What nobody else writes to, of the same types; tensors without their gradients."""
    if isinstance(state, np.ndarray):
        return state.copy()
    if hasattr(state, "detach") and hasattr(state, "clone"):
        return state.detach().clone()
    if type(state) is dict:
        return {key: _copied(value) for key, value in state.items()}
    if isinstance(state, tuple) and hasattr(state, "_make"):
        return state._make(map(_copied, state))
    if type(state) in (tuple, list):
        return type(state)(map(_copied, state))
    return copy.deepcopy(state)
