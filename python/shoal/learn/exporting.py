"""Policies for programs that have no Shoal: as files of ONNX, of torch.export, of safetensors, each with a model card."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from shoal._version import __version__
from shoal.learn.config import RUN_FORMAT
from shoal.learn.durable import replace_file
from shoal.learn.onnx_policy import input_names, input_paths, policy_graph
from shoal.learn.policy import load_policy
from shoal.learn.spaces import leaves, space_from
from shoal.names import needs_torch
from shoal.runs import checkpoint_dir, is_of_module, kept_by_a_run, run_of

if TYPE_CHECKING:
    import torch

__all__ = ["FORMATS", "card_of", "export"]

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "|u1", "BOOL": "|b1"}
"""Of safetensors, as NumPy names them."""


def export(run_dir: str | Path, to: str, output: str | Path | None = None, which: str | None = None) -> Path:
    """Writes the policy of a run to a file that needs no Shoal, and a model card beside it.

    Each has the observation normaliser in it and takes observations as the environment gives them, with a batch in front. What
    preprocesses them (`atari`, `frame_stack` and `wrappers` of the run) is not in it; the card and the metadata name it.

    Args:
        run_dir: the directory of a run, or of one checkpoint. Runs that trained a torch module of their own have that to export:
            `load_policy(run_dir).module`.
        to: "onnx" (written without onnx or torch; opset 13), "torch" (a program of torch.export, for torch.export.load) or
            "safetensors" (the arrays under the names of `torch_policy(run_dir)`, and in the metadata what they belong to).
        output: the file; by default `policy.onnx`, `policy.pt2` or `policy.safetensors` in the run. What is there is replaced.
        which: "best" (of all evaluations) or "last"; None: the best where there is one.

    Returns:
        The file. The card has its name and .md behind it: `policy.onnx.md`.

    Raises:
        FileNotFoundError: there is no run, or no such policy in it.
        ValueError: there is no such format, or the run trained a torch module, or what is recurrent is to be a program; the
            file cannot be at `output`, where a run or a checkpoint has a file of its own, or another text would be replaced.
    """
    if to not in FORMATS:
        raise ValueError(f"there is no format {to!r} to export to; there are {', '.join(FORMATS)}")
    suffix, content, usage = FORMATS[to]
    directory = checkpoint_dir(run_dir, which)
    if is_of_module(directory):
        raise ValueError(
            f"{run_dir} trained a torch module of its own: shoal.learn.load_policy(…).module is it, and torch exports it"
        )
    load_policy(directory)  # refuses what is damaged
    run = run_of(run_dir)
    recorded = _read_run(run)
    if output is None and directory == Path(run_dir) and not recorded:
        raise ValueError(f"{run_dir} is a checkpoint in no run's folder: say by output= where the file goes")
    file = Path(output) if output is not None else run / f"policy{suffix}"
    _check_output(file)
    state = json.loads((directory / "state.json").read_text())
    if state["config"].get("algorithm") == "recurrent_ppo" and to != "safetensors":
        raise ValueError(
            f"{run_dir} has a recurrent policy, which acts by what it remembers, too: to='safetensors' exports its arrays, and "
            "shoal.learn.torch_policy(…) is a torch module that takes and returns what it remembers"
        )
    names = (input_names if to == "onnx" else input_paths)(state["observation_space"])
    usage = usage.format(file=file.name, inputs=", ".join(f"{name!r}: …" for name in names))
    card = _card(recorded, _read_json(run / "result.json") if recorded else {}, state, names, usage)
    replace_file(file.resolve(), content(directory, state, _about(recorded, state)))
    replace_file(card_of(file).resolve(), card.encode())
    return file


def card_of(file: Path) -> Path:
    """The model card of an exported file."""
    return file.with_name(f"{file.name}.md")


def _check_output(file: Path) -> None:
    """Raises ValueError where the file, or its card, would take the place of something else."""
    if file.suffix.lower() == ".md":
        raise ValueError(f"{file} is a model card's name: name the file otherwise, and its card has .md behind that")
    if why := kept_by_a_run(file):
        raise ValueError(f"{file} {why}")
    for path in (file, card_of(file)):
        if path.exists() and not path.is_file():
            raise ValueError(f"{path} is no file that could be replaced: name another")
    card = card_of(file)
    if card.exists() and _LIBRARY not in card.read_text(errors="replace"):
        raise ValueError(f"{card} is there already, and is no model card of Shoal's: name the file otherwise")


def _onnx(directory: Path, state: dict[str, Any], about: dict[str, str]) -> bytes:
    graph = policy_graph(_read_arrays(directory / "policy.safetensors")[0], state)
    return graph.as_bytes(about)


def _torch(directory: Path, state: dict[str, Any], about: dict[str, str]) -> bytes:
    with needs_torch("to='torch'"):
        import torch

        from shoal.learn.torch_module import torch_policy

    class Acting(torch.nn.Module):
        """predict() as forward()."""

        def __init__(self) -> None:
            super().__init__()
            self.policy = torch_policy(directory).requires_grad_(False)

        def forward(self, observation: Any) -> torch.Tensor:
            return cast("torch.Tensor", self.policy.best_actions(observation))

    space = space_from(state["observation_space"])
    rows = torch.export.Dim("rows", max=_MOST_ROWS)
    example = _mapped(lambda array: torch.as_tensor(np.stack([array, array])), space.sample())
    shapes = _mapped(lambda _: {0: rows}, space.sample())
    program = torch.export.export(Acting(), (example,), dynamic_shapes=(shapes,))
    content = io.BytesIO()
    torch.export.save(program, content, extra_files=about)
    return content.getvalue()


def _mapped(change: Callable[[Any], Any], sample: Any) -> Any:
    """A sample of a space with each of its arrays changed."""
    if isinstance(sample, dict):
        return {name: _mapped(change, inner) for name, inner in sample.items()}
    if isinstance(sample, tuple):
        return tuple(_mapped(change, inner) for inner in sample)
    return change(np.asarray(sample))


def _safetensors(directory: Path, _state: dict[str, Any], about: dict[str, str]) -> bytes:
    _, header, data = _read_arrays(directory / "policy.safetensors")
    header["__metadata__"] = {"format": "pt", **about}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def _read_arrays(file: Path) -> tuple[dict[str, np.ndarray], dict[str, Any], bytes]:
    """The arrays of a safetensors file, its header, and the bytes behind it."""
    content = file.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8:end])
    data = content[end:]
    arrays = {}
    for name, about in header.items():
        if name != "__metadata__":
            begin, past = about["data_offsets"]
            arrays[name] = np.frombuffer(data[begin:past], _DTYPES[about["dtype"]]).reshape(about["shape"])
    return arrays, header, data


def _about(run: Mapping[str, Any], state: dict[str, Any]) -> dict[str, str]:
    """What the file says of itself."""
    about = {
        "shoal": __version__,
        "algorithm": state["config"].get("algorithm", "ppo"),
        "observation_space": json.dumps(state["observation_space"]),
        "action_space": json.dumps(state["action_space"]),
        "config": json.dumps(state["config"]),
    }
    arguments, unrecorded = _environment(run)
    if unrecorded:
        arguments["unrecorded"] = unrecorded
    if arguments:
        about["environment"] = json.dumps({"env": run.get("env"), **arguments})
    return about


def _environment(run: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What the run's environments were made with beside their id, and the names of what config.json could not hold of it."""
    # With all of make_vec(), which a shell that completes --to does not wait for.
    from shoal.learn.environments import EnvOptions

    arguments = {name: value for name, value in vars(EnvOptions.of_run(run)).items() if value}
    return arguments, list(run.get("unrecorded") or ())


def _card(
    run: Mapping[str, Any], result: dict[str, Any], state: dict[str, Any], names: Sequence[str], usage: str
) -> str:
    """A model card: what hubs read of it (YAML) in front, and what people read.

    Args:
        run: its config.json; empty of a checkpoint that has left its run.
        result: its result.json; empty before its end.
        names: of the inputs.
    """
    config = state["config"]
    algorithm = config.get("algorithm", "ppo").upper()
    env = run.get("env") or "an environment without a name"
    mean, deviation, episodes = _evaluation(state, result)
    score = None
    if mean is not None and deviation is not None and math.isfinite(mean) and math.isfinite(deviation):
        score = mean, deviation
    told = "It was not evaluated."
    if score is not None:
        told = f"Mean return over {episodes} episodes of evaluation: **{score[0]:.2f} ± {score[1]:.2f}**."
    return "\n".join(
        [
            *_front_matter(algorithm, env, score),
            "",
            f"# {algorithm} on {env}",
            "",
            f"Trained with Shoal {run.get('shoal', __version__)} for {state['step']:,} environment steps, seed {config['seed']}.",
            told,
            "",
            *_inputs_and_output(run, state, names),
            *_environment_section(run),
            "## Use",
            "",
            usage,
            "## Options",
            "",
            *_as_json(config),
            "",
        ]
    )


def _front_matter(algorithm: str, env: str, score: tuple[float, float] | None) -> list[str]:
    front = ["---", _LIBRARY, "tags:", "- reinforcement-learning", f"- {json.dumps(env)}", f"- {algorithm.lower()}"]
    if score is not None:
        front += [
            "model-index:",
            f"- name: {algorithm}",
            "  results:",
            "  - task: {type: reinforcement-learning, name: reinforcement-learning}",
            f"    dataset: {{name: {json.dumps(env)}, type: {json.dumps(env)}}}",
            "    metrics:",
            f"    - {{type: mean_reward, name: mean_reward, value: {score[0]:.2f} +/- {score[1]:.2f}}}",
        ]
    return [*front, "---"]


def _inputs_and_output(run: Mapping[str, Any], state: dict[str, Any], names: Sequence[str]) -> list[str]:
    arguments, unrecorded = _environment(run)
    preprocessed = _PREPROCESSING.intersection([*arguments, *unrecorded])
    space = state["observation_space"]
    inputs = [
        f"- `{name}`: {leaf.dtype.name}, shape {('n', *leaf.shape)}"
        + (f"; the observation's `{path}`, which something else is called here" if name != path else "")
        for name, path, leaf in zip(names, input_paths(space), leaves(space), strict=True)
    ]
    return [
        "## Inputs",
        "",
        f"Observations as the environment gives them{' after the preprocessing below' if preprocessed else ''}, "
        f"`n` of them in front{'; they are normalised inside' if state['config'].get('normalize_obs') else ''}",
        f"(space: `{space_from(space)}`).",
        "",
        *inputs,
        "",
        "Nothing is refused: where an observation is not finite, the action means nothing. `predict()` of Shoal refuses it.",
        "",
        "## Output",
        "",
        f"The deterministic action, as the environment{' with that preprocessing' if preprocessed else ''} takes it "
        f"(space: `{space_from(state['action_space'])}`).",
        "",
    ]


def _environment_section(run: Mapping[str, Any]) -> list[str]:
    """What the inputs and the return depend on beside the environment's id; nothing where it was made without."""
    heading = ["## Environment", ""]
    if not run:
        return [
            *heading,
            "This checkpoint was exported without its run, which knows what preprocesses the observations.",
            "",
        ]
    arguments, unrecorded = _environment(run)
    lines = []
    if arguments:
        lines += ["The run trained on it with these arguments of `shoal.make_vec`:", "", *_as_json(arguments), ""]
    if "atari" in arguments:
        lines += ["Evaluations are of whole games and count their own rewards.", ""]
    elif "reward_clip" in arguments:
        lines += ["Evaluations count the environment's own rewards.", ""]
    if unrecorded:
        names = ", ".join(f"`{name}`" for name in unrecorded)
        lines += [f"It trained with {names} as well, which it could not record.", ""]
    return [*heading, *lines] if lines else []


def _as_json(values: Mapping[str, Any]) -> list[str]:
    return ["```json", json.dumps(values, indent=1, sort_keys=True), "```"]


def _evaluation(state: dict[str, Any], result: dict[str, Any]) -> tuple[float | None, float | None, int]:
    """Mean, deviation and number of the episodes that this very policy was evaluated by; the run's other evaluations are of others."""
    at, config, found = state["step"], state["config"], state.get("evaluation", {})
    whose = result.get("best_step") if result.get("best_return") is not None else result.get("steps")
    is_final = result.get("ending") != "stopped" and result.get("evaluated_episodes") == config.get("final_episodes")
    if whose == at and is_final and result["evaluated_episodes"]:
        return result["mean_return"], result["std_return"], result["evaluated_episodes"]
    if found.get("evaluated_step") == at and found.get("eval_episodes"):
        mean, deviation = (
            None if value is None else float(value) for value in (found["eval_return"], found["eval_std"])
        )
        return mean, deviation, found["eval_episodes"]
    return None, None, 0


def _read_run(folder: Path) -> dict[str, Any]:
    """config.json of a run; empty where the folder is none's."""
    config = _read_json(folder / "config.json")
    return config if config.get("format") == RUN_FORMAT else {}


def _read_json(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


_MOST_ROWS = 2**31 - 1
"""Of a batch of a program of torch.export, whose older releases refuse one without a limit."""
_LIBRARY = "library_name: shoal"
"""What every card has in front."""
_PREPROCESSING = frozenset({"atari", "frame_stack", "wrappers"})
"""Arguments of make_vec() that stand between an environment and its policy."""

_ONNX_USAGE = """```python
import onnxruntime

session = onnxruntime.InferenceSession("{file}")
(action,) = session.run(["action"], {{{inputs}}})
```

Further outputs: `head`, what the action is chosen by (logits, means, or values of actions), and of actor-critics `value`.
"""

_TORCH_USAGE = """```python
import torch

policy = torch.export.load("{file}").module()
action = policy(observations)
```
"""

_SAFETENSORS_USAGE = """The arrays have the names of the `state_dict` of `shoal.learn.torch_policy(run_dir)`: `Sequential(Linear, activation, …, Linear)` each.
Observations are normalised by `clip((x - normalizer.obs.mean) / sqrt(normalizer.obs.var + 1e-8), ±clip_obs)`, where there are such
arrays. The metadata has the spaces and the options.

```python
from safetensors.numpy import load_file

arrays = load_file("{file}")
```
"""

FORMATS: dict[str, tuple[str, Callable[[Path, dict[str, Any], dict[str, str]], bytes], str]] = {
    "onnx": (".onnx", _onnx, _ONNX_USAGE),
    "torch": (".pt2", _torch, _TORCH_USAGE),
    "safetensors": (".safetensors", _safetensors, _SAFETENSORS_USAGE),
}
"""Of each format its suffix, what makes it of a checkpoint, and how the file is used."""
