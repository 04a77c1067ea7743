"""Where environments are stepped and the policy is asked: of a collector in the caller's process, and of each in another."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from shoal import _core
from shoal.collect.actors import Actor, NetworkActor, RandomActor, Staged, actor_of
from shoal.collect.answers import OUTPUTS
from shoal.serve.structure import tree_map
from shoal.vector.build import build_vec
from shoal.vector.plan import Asked
from shoal.vector.snapshots import Snapshot

__all__ = ["Counts", "Rows", "Setup", "Station", "check_masked", "check_rows", "snapshots_of"]


@dataclass(frozen=True)
class Setup:
    """What a station is made of.

    Attributes:
        env: as `make_vec` takes it; a list has one for each of all environments.
        first, count, total: its environments are first … first + count - 1 of `total`.
        make: further arguments of `make_vec`.
        policy: as `Collector` takes it.
        calls_of: the policy is asked for so many environments at once, counted from environment 0.
        next_obs: whether experience has it.
        seed, timeout, action_mask, cohorts: as `Collector` takes them; several cohorts are groups of `calls_of`, one each.
        all_outputs: batches have log_prob and value whether or not the policy gives them.
    """

    env: Any
    first: int
    count: int
    total: int
    make: dict[str, Any]
    policy: Any
    calls_of: int
    next_obs: bool
    seed: int
    timeout: float | None
    action_mask: str | None = None
    cohorts: int = 1
    all_outputs: bool = False


class Rows(NamedTuple):
    """Rows of an experience that are to be filled.

    Attributes:
        experience: of all environments, or of the station's own.
        column: of the station's first environment in it.
        first, steps: which.
        random: so many of them, the first ones, have samples of the action space as actions.
        number: of the order, which a ProgressBoard may stop.
    """

    experience: Any
    column: int
    first: int
    steps: int
    random: int
    number: int = 0


class Counts(NamedTuple):
    """What a station has counted since its start.

    Attributes:
        faults, resets: rows that are not valid.
        episodes: that ended.
        mean_return, mean_length: of the last of them; None before the first.
    """

    faults: int
    resets: int
    episodes: int
    mean_return: float | None
    mean_length: float | None

    @staticmethod
    def of_all(parts: Sequence[Counts]) -> Counts:
        """Of several together; means are weighted by how many episodes they are of, 100 at most."""
        weights = [min(100, part.episodes) for part in parts]

        def mean(name: str) -> float | None:
            if not sum(weights):
                return None
            total: float = sum(getattr(part, name) * w for part, w in zip(parts, weights, strict=True) if w)
            return total / sum(weights)

        return Counts(
            sum(part.faults for part in parts),
            sum(part.resets for part in parts),
            sum(part.episodes for part in parts),
            mean("mean_return"),
            mean("mean_length"),
        )


class Station:
    """Environments, and the policy that is asked for them.

    The policy is asked for the environments of one group at a time: `calls_of` of all environments, by their numbers. A group
    that is the station's only in part is asked for as a whole, with copies in the others' places. So neither what the policy
    computes nor what it draws depends on which environments share a station.

    Attributes:
        single_observation_space, single_action_space: of one environment.
        version: of the policy's weights.
        outputs: which of log_prob and value batches have.
        wants_tensors: whether batches are torch tensors by default.
        is_recurrent: whether batches have a `state`.
    """

    def __init__(self, setup: Setup, board: Any = None, place: int = 0) -> None:
        self.setup = setup
        self._board = board
        self._place = place
        self._groups: list[_Group] = []
        try:
            last = setup.first + setup.count
            lo = setup.first
            network: NetworkActor | None = None
            while lo < last:
                group = lo // setup.calls_of
                hi = min(last, (group + 1) * setup.calls_of)
                made = _Group(setup, group, lo, hi, network)
                self._groups.append(made)
                # Cohorts are asked in turn, and each draws from its own seed.
                network = made.actor if isinstance(made.actor, NetworkActor) and setup.cohorts == 1 else None
                lo = hi
        except BaseException:
            self.close()
            raise
        self.single_observation_space = self._groups[0].envs.single_observation_space
        self.single_action_space = self._groups[0].envs.single_action_space
        self.actor = self._groups[0].actor
        self.version = self.actor.version
        self.wants_tensors = self.actor.wants_tensors
        self.is_recurrent = self.actor.is_recurrent

    @property
    def outputs(self) -> frozenset[str]:
        return frozenset(OUTPUTS) if self.setup.all_outputs else self.actor.outputs

    def reset(self, seed: int | None) -> None:
        """Resets all environments, environment i of all with `seed + i`."""
        for group in self._groups:
            group.reset(seed)
            if self._board is not None:
                self._board.give_sign(self._place)

    def collect(self, arrays: Mapping[str, Any], rows: Rows) -> int:
        """Fills rows; `arrays` are those of the experience. Returns how many rows of environments are missing because it was
        stopped: they are there, and not valid."""
        if self.setup.cohorts > 1:
            for group in self._groups:
                group.is_left = True
            self._collect_in_turn(arrays, rows)
            for group in self._groups:
                group.is_left = False
            return 0
        missing = 0
        for group in self._groups:
            group.is_left = True
            done = group.collect(arrays, rows, self.version, self._board, self._place)
            group.is_left = False
            missing += (rows.steps - done) * group.count
            self.version = max(self.version, group.actor.version)  # of a service: its own
        return missing

    def _collect_in_turn(self, arrays: Mapping[str, Any], rows: Rows) -> None:
        """While the environments of one group are stepped, the policy is asked for the next one."""
        parts = (
            (rows.first, rows.random, [group.drawing for group in self._groups]),
            (rows.first + rows.random, rows.steps - rows.random, [group.acting for group in self._groups]),
        )
        for first, steps, contexts in parts:
            if steps == 0:
                continue
            with contextlib.ExitStack() as stack:
                actors = [stack.enter_context(context(arrays, rows)) for context in contexts]
                _core.collect.Collector.collect_in_turn(
                    [group.engine for group in self._groups],
                    actors,
                    [rows.column + group.column for group in self._groups],
                    rows.experience,
                    first,
                    steps,
                    self.version,
                )
        self.version = max(self.version, *(group.actor.version for group in self._groups))

    def update_weights(self, weights: Mapping[str, Any] | None) -> int:
        """Of the policy, which all groups share, or of each network that they have; returns their version."""
        actors = [group.actor for group in self._groups]
        networks = {id(actor.network): actor for actor in actors if isinstance(actor, NetworkActor)}
        for actor in networks.values() or actors[:1]:
            actor.update_weights(weights)
        self.set_version(max(actor.version for actor in actors))
        return self.version

    def set_version(self, version: int) -> None:
        self.version = version
        for group in self._groups:
            group.actor.version = version

    def states(self) -> dict[str, Any]:
        """Of a recurrent policy: the `state` that the last rows began with, and the `next_state`, that of the rows to come; those of
        the station's own environments."""
        if len(self._groups) == 1 and self._groups[0].is_whole:
            return self._groups[0].actor.extras()
        joined: dict[str, Any] = tree_map(_joined, *(group.own_states() for group in self._groups))
        return joined

    def episodes(self) -> np.ndarray:
        """The numbers of the episodes that are under way, one an environment; -1 before the first reset."""
        return np.concatenate([group.episodes() for group in self._groups])

    def begin_at(self, episodes: np.ndarray) -> None:
        """After a reset: episodes are counted from these numbers, one an environment, where they are behind them."""
        for group in self._groups:
            group.begin_at(episodes[group.column : group.column + group.count])

    def counts(self) -> Counts:
        return Counts.of_all([group.counts() for group in self._groups])

    def env_stats(self) -> list[dict[str, Any]]:
        return [group.envs.stats() for group in self._groups]

    def state(self) -> dict[str, Any]:
        """All that the next rows depend on, but the weights of policies in Python, and the counts of the collector."""
        return {"version": self.version, "groups": [group.state() for group in self._groups]}

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError for the state of other environments, or of another network. Nothing has then changed."""
        groups = state["groups"]
        if len(groups) != len(self._groups):
            raise ValueError(
                f"load a collector's state: it is of {len(groups)} groups of environments, and here are {len(self._groups)}: give "
                "policy_batch= or cohorts= as there"
            )
        for group, of_group in zip(self._groups, groups, strict=True):
            group.check_state(of_group)

    def load_state(self, state: Mapping[str, Any], seed: int) -> None:
        """After check_state()."""
        for group, of_group in zip(self._groups, state["groups"], strict=True):
            group.load_state(of_group, seed)
        self.version = state["version"]

    def close(self) -> None:
        for group in self._groups:
            group.envs.close()

    def end_soon(self) -> None:
        """From within collect() or reset(), or from another thread: they end, with a RuntimeError where they can."""
        for group in self._groups:
            group.end_soon()

    def leave_to_parent(self) -> None:
        for group in self._groups:
            group.envs._leave_to_parent()


class _Group:
    """Environments that the policy is asked for at once, and who they are among all."""

    def __init__(self, setup: Setup, number: int, lo: int, hi: int, network: NetworkActor | None) -> None:
        self.lo, self.count = lo, hi - lo
        begin = number * setup.calls_of
        asked_for = min(setup.total, begin + setup.calls_of) - begin
        self.column = lo - setup.first
        self._stage_column = lo - begin
        self.is_whole = asked_for == self.count
        own_seed = _derived(setup.seed, number)
        self._begun = False
        self.is_left = False  # an exception may have left a step or reset under way
        self._timeout = setup.timeout
        env = setup.env[lo:hi] if isinstance(setup.env, list | tuple) else setup.env
        given = {"env": env, "num_envs": self.count, "autoreset_mode": "same_step", "copy": False, **setup.make}
        self.envs = build_vec(
            first_env=lo, **{field.name: given.get(field.name, _NOT_GIVEN.get(field.name)) for field in fields(Asked)}
        )
        try:
            engine = self.envs._engine
            both = self.envs.single_observation_space, self.envs.single_action_space
            self._new_engine = functools.partial(_core.collect.Collector, engine, setup.timeout, lo, setup.total)
            self.engine = self._new_engine()
            self.actor: Actor
            if network is None:
                # A new network begins as the seed of all says, whichever group it is for.
                self.actor = actor_of(setup.policy, engine, asked_for, own_seed, network_seed=setup.seed, first_env=lo)
            else:
                self.actor = network.beside(own_seed)
            self._stage: Any = None
            if not self.is_whole and self.actor.asks_in_calls:
                layout = _core.collect.ExperienceLayout(*both, asked_for, False)
                self._stage = layout.allocate(1)
                self._stage_arrays = layout.arrays(self._stage)
            check_mask(setup.action_mask, *both)
            self._random = RandomActor(both[1], asked_for, own_seed, setup.action_mask)
            self._columns = slice(self._stage_column, self._stage_column + self.count)
        except BaseException:
            self.envs.close()
            raise

    def drawing(self, arrays: Mapping[str, Any], rows: Rows) -> Any:
        """The context in which samples of the action space are drawn for rows."""
        own = self._own(arrays, rows)
        return self._random.acting(own, Staged(own, rows.first, self._columns))

    def acting(self, arrays: Mapping[str, Any], rows: Rows) -> Any:
        """The context in which the policy chooses for rows; of a group that is the station's as a whole."""
        return self.actor.acting(self._own(arrays, rows))

    def _own(self, arrays: Mapping[str, Any], rows: Rows) -> dict[str, Any]:
        """The columns of the own environments."""
        first = rows.column + self.column
        return {
            name: tree_map(lambda array: array[:, first : first + self.count], value) for name, value in arrays.items()
        }

    def reset(self, seed: int | None) -> None:
        if self.is_left:
            self._finish_what_was_left()
        self.is_left = True
        self.engine.reset([None if seed is None else seed + i for i in range(self.lo, self.lo + self.count)])
        self.is_left = False
        self.actor.restart()
        self._begun = True

    def _finish_what_was_left(self) -> None:
        """Waits for a step or reset that an exception has left under way, as Ctrl-C's or that of a timeout; what comes of it is
        dropped. Raises TimeoutError where that takes too long again."""
        io = _core.BatchIo(
            self.envs._engine, self.envs.single_observation_space, self.envs.single_action_space, copy=False
        )
        try:
            io.step_wait(0.0)
        except TimeoutError:
            io.step_wait(self._timeout)
        except Exception:  # nothing is; or the environments have failed, as the reset tells
            pass

    def collect(self, arrays: Mapping[str, Any], rows: Rows, version: int, board: Any, place: int) -> int:
        column = rows.column + self.column
        own = self._own(arrays, rows)
        more = {"column": column, "board": board, "place": place, "number": rows.number}
        experience, random = rows.experience, rows.random
        done = 0
        if random:
            with self._random.acting(own, Staged(own, rows.first, self._columns)) as actor:
                done = self.engine.collect(actor, experience, rows.first, random, version, **more)
        rest = rows.steps - random
        if done < random:
            self.engine.leave_out(experience, rows.first + random, rest, version, column)
            return done
        if rest:
            begin = rows.first + random
            if self._stage is None:
                with self.actor.acting(own) as actor:
                    done += self.engine.collect(actor, experience, begin, rest, version, **more)
            else:
                more |= {"stage": self._stage, "stage_column": self._stage_column}
                with self.actor.acting(self._stage_arrays, Staged(own, begin, self._columns)) as actor:
                    done += self.engine.collect(actor, experience, begin, rest, version, **more)
        return done

    def own_states(self) -> Any:
        """The states of the own environments alone.

        Raises:
            ValueError: where the environments are not the first dimension of its arrays.
        """
        states = self.actor.extras()
        asked_for = self._stage_arrays["is_first"].shape[1] if self._stage is not None else self.count

        def part(leaf: Any) -> Any:
            check_rows(leaf, asked_for)
            return leaf[self._columns] if self._stage is not None else leaf

        return tree_map(part, states)

    def episodes(self) -> np.ndarray:
        return np.array(self.engine.state()["episode"] if self._begun else [-1] * self.count, np.int64)

    def begin_at(self, episodes: np.ndarray) -> None:
        state = self.engine.state()
        numbers = np.maximum(state["episode"], episodes).tolist()
        if numbers != state["episode"]:
            self.engine.load_state({**state, "episode": numbers})

    def end_soon(self) -> None:
        self.actor.is_ending = self._random.is_ending = True
        if self.envs._group is None:  # those of this process are closed when they are at rest
            self.envs.close()  # what waits for workers sees it

    def counts(self) -> Counts:
        engine = self.engine
        ended = engine.episodes
        return Counts(
            engine.faults,
            engine.resets,
            ended,
            engine.mean_return if ended else None,
            engine.mean_length if ended else None,
        )

    def state(self) -> dict[str, Any]:
        return {
            "actor": self.actor.state(),
            "random": self._random.state(),
            "engine": self.engine.state() if self._begun else None,
            "envs": self.envs._taken(list(range(self.count))) if self._begun else None,
        }

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError for the state of other environments, or of another network. Nothing has then changed."""
        if state["engine"] is not None:
            self._new_engine().load_state(state["engine"])  # which is of nobody
        before = self.actor.state()
        if state["actor"].keys() != before.keys():
            raise ValueError(
                "load a collector's state: it is of a policy of another kind; give this collector one as that"
            )
        try:
            self.actor.load_state(state["actor"])
        finally:
            self.actor.load_state(before)

    def load_state(self, state: Mapping[str, Any], seed: int) -> None:
        """After check_state()."""
        if state["engine"] is None:
            self.engine = self._new_engine()  # of one that has not begun: its first reset is the first of all
            self._begun = False
        else:
            self.reset(seed)
            self.envs._put_back(state["envs"], list(range(self.count)))
            self.engine.load_state(state["engine"])
        self.actor.load_state(state["actor"])
        self._random.load_state(state["random"])


_NOT_GIVEN = {"context": "auto", "backend": "auto", "on_fault": "raise", "episode_statistics": False}


def snapshots_of(state: Mapping[str, Any]) -> list[Snapshot]:
    """Those in the state of a station, which hold copies of its environments."""
    return [group["envs"] for group in state["groups"] if group["envs"] is not None]


def check_rows(leaf: Any, envs: int) -> None:
    """Raises ValueError where the environments are not the first dimension of an array of a policy's state."""
    shape = tuple(getattr(leaf, "shape", ()))
    if not shape or shape[0] != envs:
        raise ValueError(
            f"the policy's state has an array of shape {shape} for {envs} environments: with several collectors, or groups "
            "of environments, these must be its first dimension"
        )


def check_mask(name: str | None, observation_space: Any, action_space: Any) -> None:
    """Raises ValueError where `name` is no mask of these actions among these observations."""
    if name is None:
        return
    if not isinstance(action_space, spaces.Discrete):
        raise ValueError(f"action_mask={name!r} is for Discrete actions; these are {action_space}")
    part = (
        observation_space[name]
        if isinstance(observation_space, spaces.Dict) and name in observation_space.keys()
        else None
    )
    if part is None or part.shape != (action_space.n,):
        raise ValueError(
            f"action_mask={name!r} names a part of shape ({action_space.n},) of observations that are a Dict; these are "
            f"{observation_space}"
        )


def check_masked(arrays: Mapping[str, Any], name: str, start: int) -> None:
    """Raises ValueError where an action was chosen that the mask forbids."""
    mask, valid = arrays["obs"][name], arrays["valid"]
    action = np.where(valid, arrays["action"] - start, 0)  # rows that are left out have no action
    allowed = np.take_along_axis(mask, action[..., None], -1)[..., 0] != 0
    wrong = np.argwhere(valid & ~allowed)
    if len(wrong):
        t, env = wrong[0]
        raise ValueError(
            f"the policy chose action {action[t, env] + start} in environment {arrays['env_id'][t, env]}, which the action mask "
            f"obs[{name!r}] = {mask[t, env].tolist()} forbids: it is to take the mask into account"
        )


def _derived(seed: int, number: int) -> int:
    """The seed of a group's draws; group 0 has that of all."""
    return seed if number == 0 else int(np.random.SeedSequence((seed, number)).generate_state(1, np.uint64)[0] >> 1)


def _joined(*parts: Any) -> Any:
    if len(parts) == 1:
        return parts[0]
    if hasattr(parts[0], "detach"):
        import torch

        return torch.cat(parts)
    return np.concatenate(parts)
