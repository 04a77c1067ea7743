"""A trained policy as an ONNX graph, the observation normaliser in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.learn.encoding import (
    NATURE_CONVOLUTIONS,
    VARIANCE_FLOOR,
    choices,
    image_order,
    image_shape,
    is_normalized,
    module_name,
    numel,
)
from shoal.learn.onnx_graph import Graph
from shoal.learn.spaces import Leaf, leaves

__all__ = ["input_names", "input_paths", "policy_graph"]

_OUTPUTS = ("action", "head", "value")
_ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu"}

Arrays = Mapping[str, np.ndarray]


def input_paths(observation_space: Mapping[str, Any]) -> list[str]:
    """The paths of the arrays of a Dict or Tuple space; of others "observation"."""
    return [leaf.path or "observation" for leaf in leaves(observation_space)]


def input_names(observation_space: Mapping[str, Any]) -> list[str]:
    """What the inputs are called: as their paths; where an output or another input is called that, with "observation/" in front."""
    paths = input_paths(observation_space)
    names: list[str] = []
    for path in paths:
        name = path
        while name in _OUTPUTS or name in names or (name != path and name in paths):
            name = f"observation/{name}"
        names.append(name)
    return names


def policy_graph(arrays: Arrays, state: Mapping[str, Any]) -> Graph:
    """The graph of a checkpoint.

    Inputs are the arrays of the observation space, with their dtypes, rows in front. Outputs are `action`, the deterministic
    one as the environment takes it; `head`, what it is chosen by: logits, means, or of DQN the value of each action; and,
    of actor-critics, `value`.

    Args:
        arrays: of policy.safetensors.
        state: of state.json.
    """
    return _Builder(arrays, state).build()


class _Builder:
    def __init__(self, arrays: Arrays, state: Mapping[str, Any]) -> None:
        self._arrays = arrays
        self._config = state["config"]
        self._algorithm = self._config.get("algorithm", "ppo")
        self._leaves = list(leaves(state["observation_space"]))
        self._names = input_names(state["observation_space"])
        (self._action,) = leaves(state["action_space"])
        self._graph = Graph("policy", reserved=[*self._names, *_OUTPUTS])

    def build(self) -> Graph:
        features = self._features()
        if self._algorithm == "dqn":
            head, width = self._q_values(features)
        else:
            if any(name.startswith("trunk.") for name in self._arrays):
                features, _ = self._mlp("trunk", features, activated=True)
            head, width = self._mlp("actor", features)
        self._put("head", head, np.float32, (width,))
        if self._algorithm not in ("dqn", "sac"):
            value, _ = self._mlp("critic", features)
            self._put("value", self._reshape(value, (-1,)), np.float32, ())
        action = self._box_action(head) if self._action.description["type"] == "Box" else self._choice(head)
        rows = self._reshape(action, (-1, *self._action.shape))
        dtype = self._action.dtype
        self._graph.cast(rows, dtype, outputs=["action"])
        self._graph.output("action", dtype, self._action.shape)
        return self._graph

    def _put(self, name: str, value: str, dtype: Any, shape: Sequence[int]) -> None:
        self._graph.node("Identity", value, outputs=[name])
        self._graph.output(name, dtype, shape)

    def _reshape(self, value: str, shape: Sequence[int]) -> str:
        return self._graph.node("Reshape", value, self._graph.constant(np.array(shape, np.int64)))

    def _concat(self, parts: Sequence[str]) -> str:
        return parts[0] if len(parts) == 1 else self._graph.node("Concat", *parts, axis=1)

    # --- observations

    def _features(self) -> str:
        dense: list[str] = []
        images: list[str] = []
        offset = 0
        for leaf, name in zip(self._leaves, self._names, strict=True):
            value = self._graph.input(name, leaf.dtype, leaf.shape)
            if image_order(leaf) is not None:
                images.append(self._tower(leaf, value))
                continue
            flat = self._dense(leaf, value)
            if "normalizer.obs.mean" in self._arrays and is_normalized(leaf):
                flat = self._normalized(flat, slice(offset, offset + numel(leaf.shape)))
                offset += numel(leaf.shape)
            dense.append(flat)
        return self._concat([*dense, *images])

    def _dense(self, leaf: Leaf, value: str) -> str:
        """[rows, elements], float32."""
        graph = self._graph
        if leaf.description["type"] in ("Discrete", "MultiDiscrete"):
            return self._one_hot(leaf, value)
        flat = graph.cast(self._reshape(value, (-1, numel(leaf.shape))), np.float32)
        return (
            graph.node("Mul", flat, graph.constant(np.float32(1) / np.float32(255))) if leaf.dtype == np.uint8 else flat
        )

    def _one_hot(self, leaf: Leaf, value: str) -> str:
        graph = self._graph
        sizes = choices(leaf)
        start = np.broadcast_to(np.asarray(leaf.description.get("start", 0), np.int64), (len(sizes),))
        index = graph.cast(self._reshape(value, (-1, len(sizes))), np.int64)
        index = graph.node("Sub", index, graph.constant(np.array(start)))
        hot = graph.constant(np.array([0, 1], np.float32))
        parts = []
        for component, size in enumerate(sizes):
            column = graph.node("Gather", index, graph.constant(np.array(component, np.int64)), axis=1)
            parts.append(graph.node("OneHot", column, graph.constant(np.array([size], np.int64)), hot, axis=-1))
        return self._concat(parts)

    def _normalized(self, flat: str, part: slice) -> str:
        graph, arrays = self._graph, self._arrays
        mean = arrays["normalizer.obs.mean"][part]
        deviation = np.sqrt(arrays["normalizer.obs.var"][part] + VARIANCE_FLOOR)
        clip = np.float64(self._config["clip_obs"])
        normal = graph.node("Sub", graph.cast(flat, np.float64), graph.constant(mean))
        normal = graph.node("Div", normal, graph.constant(deviation))
        return graph.cast(graph.node("Clip", normal, graph.constant(-clip), graph.constant(clip)), np.float32)

    def _tower(self, leaf: Leaf, value: str) -> str:
        graph = self._graph
        is_stack = len(leaf.shape) == 4
        if image_order(leaf) == "last":
            frames = self._reshape(value, (-1, *leaf.shape[1:])) if is_stack else value
            value = graph.node("Transpose", frames, perm=(0, 3, 1, 2))
        if is_stack:
            value = self._reshape(value, (-1, *image_shape(leaf)))
        value = graph.node("Mul", graph.cast(value, np.float32), graph.constant(np.float32(1) / np.float32(255)))
        if mean := self._config.get("pixel_mean", 0.0):
            value = graph.node("Sub", value, graph.constant(np.float32(mean)))
        prefix = f"cnn.{module_name(leaf)}"
        for i, (_, kernel, stride) in enumerate(NATURE_CONVOLUTIONS):
            weight, bias = (self._constant(f"{prefix}.{2 * i}.{name}") for name in ("weight", "bias"))
            value = graph.node("Conv", value, weight, bias, kernel_shape=(kernel, kernel), strides=(stride, stride))
            value = graph.node("Relu", value)
        last = 2 * len(NATURE_CONVOLUTIONS) + 1  # behind Flatten
        return graph.node("Relu", self._linear(f"{prefix}.{last}", graph.node("Flatten", value, axis=1)))

    # --- networks

    def _constant(self, name: str) -> str:
        return self._graph.constant(np.asarray(self._arrays[name], np.float32), name)

    def _linear(self, prefix: str, value: str) -> str:
        return self._graph.node(
            "Gemm", value, self._constant(f"{prefix}.weight"), self._constant(f"{prefix}.bias"), transB=1
        )

    def _mlp(self, name: str, value: str, activated: bool = False) -> tuple[str, int]:
        """The layers of a Sequential(Linear, activation, …), the last one activated where it has hidden layers alone; and how
        many numbers come out."""
        width = 0
        indices = sorted(
            int(array.split(".")[1]) for array in self._arrays if array.startswith(f"{name}.") and "weight" in array
        )
        for index in indices:
            value = self._linear(f"{name}.{index}", value)
            width = self._arrays[f"{name}.{index}.bias"].shape[0]
            if activated or index != indices[-1]:
                value = self._graph.node(_ACTIVATIONS[self._config["activation"]], value)
        return value, width

    def _q_values(self, features: str) -> tuple[str, int]:
        if not self._config["dueling"]:
            return self._mlp("q", features)
        graph = self._graph
        features, _ = self._mlp("trunk", features, activated=True)
        value, _ = self._mlp("value", features)
        advantage, width = self._mlp("advantage", features)
        mean = graph.node("ReduceMean", advantage, axes=(1,), keepdims=1)
        return graph.node("Sub", graph.node("Add", value, advantage), mean), width

    # --- actions

    def _choice(self, head: str) -> str:
        graph = self._graph
        sizes = choices(self._action)
        parts = [head]
        if len(sizes) > 1:
            parts = [graph.unused(f"component_{i}") for i in range(len(sizes))]
            graph.node("Split", head, graph.constant(np.array(sizes, np.int64)), outputs=parts, axis=1)
        best = self._concat([graph.node("ArgMax", part, axis=1, keepdims=1) for part in parts])
        start = np.asarray(self._action.description.get("start", 0), np.int64).reshape(-1)
        return graph.node("Add", best, graph.constant(start))

    def _box_action(self, head: str) -> str:
        graph = self._graph
        low, high = (np.array([float(bound) for bound in self._action.description[name]]) for name in ("low", "high"))
        if self._algorithm == "sac":
            means = graph.node("Slice", head, *(graph.constant(np.array([at], np.int64)) for at in (0, len(low), 1)))
            unit = graph.cast(graph.node("Tanh", means), np.float64)
            share = graph.node(
                "Mul", graph.node("Add", unit, graph.constant(np.float64(1))), graph.constant(np.float64(0.5))
            )
            head = graph.node("Add", graph.node("Mul", share, graph.constant(high - low)), graph.constant(low))
            head = graph.cast(head, np.float32)
        wide = graph.cast(head, np.float64)
        wide = graph.node("Max", graph.node("Min", wide, graph.constant(high)), graph.constant(low))
        return graph.node("Round", wide) if self._action.dtype.kind in "iu" else wide
