"""Modules out of runs: observations in, actions out, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from shoal.learn.config import flag
from shoal.learn.modules.acting import Acting
from shoal.learn.modules.checkpoints import read_checkpoint
from shoal.learn.modules.episodes import summary, whole_episodes
from shoal.learn.modules.learner import load_policy_into
from shoal.learn.modules.network import Network, module_of, network_of
from shoal.learn.modules.seeds import drawing_from
from shoal.learn.spaces import description_of, first_of_episodes, leaves, nested, space_from
from shoal.reprs import never_raises
from shoal.serve.in_python import device_of
from shoal.vector.vector_env import VectorEnv

__all__ = ["ModulePolicy", "load"]


class ModulePolicy:
    """A trained module, the observation normaliser included. Threads: one at a time.

    Attributes:
        module: the user's, in eval() mode, on the device.
        observation_space, action_space: of one observation and one action.
    """

    def __init__(self, network: Network, state: Mapping[str, Any]) -> None:
        self.module: nn.Module = network.module
        self.observation_space = space_from(state["observation_space"])
        self.action_space = space_from(state["action_space"])
        self._network = network
        self._state = state
        self._inputs = list(leaves(state["observation_space"]))
        self._acting = {how: Acting(network, self.action_space, how) for how in (None, True, False)}

    @never_raises
    def __repr__(self) -> str:
        return f"<ModulePolicy {self._network.name} of {self.config['algorithm']}, trained for {self.step:,} steps>"

    @property
    def step(self) -> int:
        """The environment steps that it was trained for."""
        return int(self._state["step"])

    @property
    def config(self) -> dict[str, Any]:
        """The options that it was trained with."""
        return dict(self._state["config"])

    def predict(self, observation: Any, deterministic: bool | None = None, *, is_first: Any = None) -> np.ndarray:
        """The action for one observation, or the actions for a batch of them, as `shoal.learn.Policy.predict`.

        A recurrent module goes on with the state of the last call with this `deterministic`; one with another number of
        observations begins anew.

        Args:
            deterministic: the most probable actions, of the module's mode(); False samples, from torch's global generator. None:
                the most probable ones where the module has a mode().
            is_first: of a recurrent module, whether an episode begins; for a batch one for each. None: the first time alone.

        Raises:
            TypeError: for True where it has none, and is_first= of a module that is not recurrent.
            ValueError: the observation does not fit the space.
        """
        batches = [leaf.batch(leaf.pick(observation)) for leaf in self._inputs]
        single, rows = batches[0][1], len(batches[0][0])
        if any(was_single != single or len(array) != rows for array, was_single in batches):
            raise ValueError("some arrays of the observation are single and others batches, or of other lengths")
        batch = nested(self._state["observation_space"], iter([array for array, _ in batches]))
        if is_first is not None:
            if not self._network.is_recurrent:
                raise TypeError(f"is_first= is of recurrent modules; {self._network.name} has no initial_state()")
            is_first = first_of_episodes(is_first, rows)
        actions = self._acting[flag("deterministic", deterministic)](batch, is_first)
        return actions[0] if single else actions

    def evaluate(self, envs: VectorEnv, episodes: int, seed: int, deterministic: bool | None) -> dict[str, Any]:
        """What shoal.learn.evaluate() asks."""
        self._require_spaces_of(envs)
        with drawing_from(seed % 2**32):  # NumPy's global generator takes no more
            done = whole_episodes(
                envs, Acting(self._network, self.action_space, flag("deterministic", deterministic)), episodes, seed
            )
        assert done is not None
        return summary(*done)

    def _require_spaces_of(self, envs: VectorEnv) -> None:
        own = self._state["observation_space"], self._state["action_space"]
        if (description_of(envs.single_observation_space), description_of(envs.single_action_space)) != own:
            raise ValueError(
                f"evaluate: the policy was trained with observations {self.observation_space} and actions {self.action_space}; "
                f"these environments have {envs.single_observation_space} and {envs.single_action_space}"
            )


def load(checkpoint: Path, policy: Any, device: Any) -> ModulePolicy:
    """
    Args:
        policy: as train() takes it; None: what the path leads to that the run recorded.

    Raises:
        ValueError: where there is none, or the weights are not of this module.
    """
    kept = read_checkpoint(checkpoint, resumable=False)
    state = kept.state
    if policy is None:
        policy = state["policy"]
    if policy is None:
        raise ValueError(
            f"no import path leads to the policy of {checkpoint}: give it as policy=, as it was given to train()"
        )
    observation_space = space_from(state["observation_space"])
    module = module_of(policy, observation_space, space_from(state["action_space"]), state["config"]["seed"])
    network = network_of(module, observation_space, state["config"], device_of(device))
    load_policy_into(network, kept.arrays)
    network.eval()
    return ModulePolicy(network, state)
