"""A parallel environment as an environment with one player, whose observations are those of all agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

__all__ = ["AgentsEnv", "check_parallel"]


class AgentsEnv(gymnasium.Env[Any, Any]):
    """Every agent has a row, in the order of `possible_agents`, whether it is there or not.

    Observations are dicts: "observation" has a row an agent, zeros for those that have none; "reward", "terminated" and
    "truncated" are what the last step told of each, 0 and False for agents that told nothing; "alive" is True for those that
    act in the next step. An episode ends when no agent is left. infos["of"] is the infos of agents that said something, by
    row.

    Attributes:
        reset_options: options of the next reset alone, in the place of those that it is given; None: there are none.
        is_asked: whether ask() is answered.

    Raises:
        TypeError: for an environment of another kind.
        ValueError: for agents whose spaces differ, and for spaces without arrays.
    """

    def __init__(self, make: Callable[..., Any], **env_kwargs: Any) -> None:
        self.env = make(**env_kwargs)
        check_parallel(self.env)
        self.agents: list[Any] = list(getattr(self.env, "possible_agents", ()))
        self.single_observation_space = self._one_space("observation_space")
        self.single_action_space = self._one_space("action_space")
        count = len(self.agents)
        self.observation_space = spaces.Dict(
            {
                "observation": batch_space(self.single_observation_space, count),
                "reward": spaces.Box(-np.inf, np.inf, (count,), np.float64),
                "terminated": spaces.MultiBinary(count),
                "truncated": spaces.MultiBinary(count),
                "alive": spaces.MultiBinary(count),
            }
        )
        self.action_space = batch_space(self.single_action_space, count)
        self.metadata = dict(getattr(self.env, "metadata", {}))
        self.render_mode = getattr(self.env, "render_mode", None)
        self.is_asked = True
        self.reset_options: dict[str, Any] | None = None
        self._zeros = next(iter(iterate(batch_space(self.single_observation_space, 1), self._room(1))))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        own, self.reset_options = self.reset_options, None
        returned = self.env.reset(seed=seed, options=options if own is None else own)
        if not _is_pair_of_dicts(returned):
            raise TypeError(
                f"{type(self.env).__name__}.reset() returns a pair of dicts, observations and infos by agent, in PettingZoo's "
                f"parallel interface; it returned {_kind_of(returned)}"
            )
        observations, infos = returned
        return self._told(observations, {}, {}, {}), self._infos(infos)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        there = set(self.env.agents)
        actions = {
            agent: own
            for agent, own in zip(self.agents, iterate(self.action_space, action), strict=True)
            if agent in there
        }
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        told = self._told(observations, rewards, terminated, truncated)
        is_over = not self.env.agents
        ended_by_itself = is_over and bool(told["terminated"].any() or not told["truncated"].any())
        return told, 0.0, ended_by_itself, is_over and not ended_by_itself, self._infos(infos)

    def render(self) -> Any:
        return self.env.render()

    def ask(self, how: str, name: str, *arguments: Any) -> Any:
        """Gets, sets or calls an attribute of the parallel environment, or says whether it "has" one, where `is_asked`; None where
        not."""
        if not self.is_asked:
            return None
        if how == "has":
            return hasattr(self.env, name)
        if how == "set":
            return setattr(self.env, name, *arguments)
        found = getattr(self.env, name)
        return found if how == "get" else found(*arguments[0], **arguments[1])

    def close(self) -> None:
        self.env.close()

    def _one_space(self, which: str) -> gymnasium.Space[Any]:
        if not self.agents:
            raise ValueError(
                f"{type(self.env).__name__}.possible_agents is empty: it names the agents, each of which has a row"
            )
        own = {agent: getattr(self.env, which)(agent) for agent in self.agents}
        first: gymnasium.Space[Any] = own[self.agents[0]]
        for agent, space in own.items():
            if space != first:
                raise ValueError(
                    f"all agents need the same {which}: {self.agents[0]!r} has {first}, {agent!r} has {space}. Pad them to "
                    "one space, as supersuit.pad_observations_v0 and pad_action_space_v0 do"
                )
        _check_arrays(first, which)
        return first

    def _room(self, count: int) -> Any:
        return create_empty_array(self.single_observation_space, count)

    def _told(self, observations: Mapping[Any, Any], rewards: Any, terminated: Any, truncated: Any) -> dict[str, Any]:
        there = set(self.env.agents)
        rows = [observations.get(agent, self._zeros) for agent in self.agents]
        return {
            "observation": concatenate(self.single_observation_space, rows, self._room(len(rows))),
            "reward": np.array([rewards.get(agent, 0.0) for agent in self.agents], np.float64),
            "terminated": np.array([terminated.get(agent, False) for agent in self.agents], np.int8),
            "truncated": np.array([truncated.get(agent, False) for agent in self.agents], np.int8),
            "alive": np.array([agent in there for agent in self.agents], np.int8),
        }

    def _infos(self, infos: Mapping[Any, Any]) -> dict[str, Any]:
        said = [(row, dict(infos[agent])) for row, agent in enumerate(self.agents) if infos.get(agent)]
        return {"of": said} if said else {}


def check_parallel(env: Any) -> None:
    """Raises TypeError for an environment of another kind, with what to write in its place."""
    name = type(getattr(env, "unwrapped", env)).__name__
    if callable(getattr(env, "agent_iter", None)):
        raise TypeError(
            f"{name} is an AEC environment, whose agents act in turns; rows of agents act at the same time. Give make_vec "
            "lambda: pettingzoo.utils.conversions.aec_to_parallel(env()), where env makes it"
        )
    if hasattr(env, "possible_agents"):
        return
    if isinstance(env, gymnasium.vector.VectorEnv) or hasattr(env, "num_envs"):
        raise TypeError(
            f"{name} is a vector environment, and make_vec makes one. Give make_vec the parallel environment's function itself: "
            "what SuperSuit's pettingzoo_env_to_vec_env_v1 and concat_vec_envs_v1 do is done here"
        )
    if isinstance(env, gymnasium.Env):
        raise TypeError(
            f"{name} is a Gymnasium environment, and no PettingZoo environment: it has no agents. shoal.make_vec steps those"
        )


def _is_pair_of_dicts(returned: Any) -> bool:
    return isinstance(returned, tuple | list) and len(returned) == 2 and all(isinstance(of, Mapping) for of in returned)


def _kind_of(returned: Any) -> str:
    if isinstance(returned, Mapping):
        return "one dict"
    if isinstance(returned, tuple | list):
        return f"{len(returned)} values: {', '.join(type(value).__name__ for value in returned)}"
    return "None" if returned is None else f"a {type(returned).__name__}"


def _check_arrays(space: gymnasium.Space[Any], which: str) -> None:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for part in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            _check_arrays(part, which)
    elif not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete):
        raise ValueError(f"{which}: rows of agents are arrays, which {space} has not; flatten it in the environment")
