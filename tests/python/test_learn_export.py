"""Policies in files for other programs: they choose what load_policy() chooses."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import shoal
from shoal.cli.app import run
from shoal.learn.onnx_policy import input_names
from shoal.learn.policy import Policy
from shoal.learn.spaces import description_of


class Anything(gymnasium.Env):
    """Random observations of a space, and actions of another."""

    def __init__(self, observations: str, actions: str) -> None:
        self.observation_space = SPACES[observations]()
        self.action_space = SPACES[actions]()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(np.asarray(action, self.action_space.dtype)[()])
        return self.observation_space.sample(), 0.5, bool(self.np_random.random() < 0.1), False, {}


SPACES = {
    "box": lambda: spaces.Box(-3.0, 30.0, (3,), np.float32),
    "bounded": lambda: spaces.Box(np.array([-2.0, 0.5], np.float32), np.array([0.1, 0.6], np.float32)),
    "square": lambda: spaces.Box(-1.0, 1.0, (2, 2), np.float64),
    "two": lambda: spaces.Discrete(2),
    "from_five": lambda: spaces.Discrete(4, start=5),
    "several": lambda: spaces.MultiDiscrete([3, 2, 4]),
    "bits": lambda: spaces.MultiBinary(3),
    "images": lambda: spaces.Box(0, 255, (36, 36, 2), np.uint8),
    "first": lambda: spaces.Box(0, 255, (1, 36, 40), np.uint8),
    "stack": lambda: spaces.Box(0, 255, (2, 36, 40, 3), np.uint8),
    "stack_first": lambda: spaces.Box(0, 255, (2, 1, 36, 40), np.uint8),
    "mixed": lambda: spaces.Dict(
        {
            "a": spaces.Box(-5, 5, (2, 2), np.float64),
            "b": spaces.Tuple((spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 3]))),
            "c": spaces.MultiBinary(2),
            "d": spaces.Box(0, 255, (4,), np.uint8),
            "e": spaces.Box(-9, 9, (1,), np.int32),
        }
    ),
    "clashing": lambda: spaces.Dict(
        {
            name: spaces.Box(-1, 1, (1 + len(name) % 2,), np.float32)
            for name in ("action", "head", "value", "component_0", "constant_1", "Reshape_2", "actor.0.weight")
        }
    ),
}

SMALL = {
    "num_envs": 4,
    "num_workers": 0,
    "final_episodes": 0,
    "eval_episodes": 1,
    "eval_envs": 1,
    "policy_hidden": [8, 6],
}
ON_POLICY = {"num_steps": 8, "total_steps": 32, "value_hidden": [5], "normalize_obs": True}
REPLAY = {"total_steps": 64, "buffer_size": 256, "learning_starts": 16, "batch_size": 8}

CASES = {
    "ppo, normalised, clipped, to a box": ("ppo", "box", "bounded", {**ON_POLICY, "clip_obs": 0.5}),
    "a2c, one choice that does not begin at 0": ("a2c", "box", "from_five", ON_POLICY),
    "ppo, several choices, of everything": ("ppo", "mixed", "several", {**ON_POLICY, "activation": "relu"}),
    "ppo, of observations with names that the graph has": ("ppo", "clashing", "several", ON_POLICY),
    "ppo, a shared trunk, bits": ("ppo", "mixed", "bits", {**ON_POLICY, "shared_hidden": True, "value_hidden": [8, 6]}),
    "ppo, images, channels last": ("ppo", "images", "two", ON_POLICY),
    "ppo, images, channels first": ("ppo", "first", "square", {**ON_POLICY, "pixel_mean": 0.4}),
    "ppo, stacked images, channels last": ("ppo", "stack", "two", ON_POLICY),
    "ppo, stacked images, channels first": ("ppo", "stack_first", "two", ON_POLICY),
    "appo": ("appo", "box", "two", ON_POLICY),
    "impala": ("impala", "box", "two", {**ON_POLICY, "normalize_obs": False}),
    "dqn": ("dqn", "box", "from_five", {**REPLAY, "normalize_obs": True}),
    "dqn, dueling": ("dqn", "mixed", "two", {**REPLAY, "dueling": True}),
    "dqn, images": ("dqn", "images", "from_five", {**REPLAY, "policy_hidden": [], "pixel_mean": 0.1}),
    "sac": ("sac", "box", "bounded", REPLAY),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The directory of a run of each case, trained when it is first asked for."""
    made: dict[str, Path] = {}

    def run_of(case: str) -> Path:
        if case not in made:
            algorithm, observations, actions, options = CASES[case]
            folder = tmp_path_factory.mktemp("runs") / "run"
            shoal.learn.train(
                Anything,
                algorithm,
                run_dir=folder,
                env_kwargs={"observations": observations, "actions": actions},
                **{**SMALL, **options},
            )
            made[case] = folder
        return made[case]

    return run_of


def batch(policy: Policy, rows: int = 32) -> Any:
    """Observations of its space, and those rows apart."""
    policy.observation_space.seed(7)
    return stacked([policy.observation_space.sample() for _ in range(rows)])


def stacked(samples: list[Any]) -> Any:
    if isinstance(samples[0], dict):
        return {name: stacked([sample[name] for sample in samples]) for name in samples[0]}
    if isinstance(samples[0], tuple):
        return tuple(map(stacked, map(list, zip(*samples, strict=True))))
    return np.stack(samples)


def first_rows(observations: Any, rows: int) -> Any:
    """The first of them."""
    if isinstance(observations, dict):
        return {name: first_rows(inner, rows) for name, inner in observations.items()}
    if isinstance(observations, tuple):
        return tuple(first_rows(inner, rows) for inner in observations)
    return observations[:rows]


def inputs_of(observations: Any, path: str = "") -> dict[str, Any]:
    if isinstance(observations, dict):
        items: Any = observations.items()
    elif isinstance(observations, tuple):
        items = enumerate(observations)
    else:
        return {path or "observation": observations}
    return {
        name: array
        for key, inner in items
        for name, array in inputs_of(inner, f"{path}/{key}" if path else str(key)).items()
    }


def torch_tensors(observations: Any) -> Any:
    import torch

    if isinstance(observations, dict):
        return {name: torch_tensors(inner) for name, inner in observations.items()}
    if isinstance(observations, tuple):
        return tuple(map(torch_tensors, observations))
    return torch.as_tensor(observations)


@pytest.mark.parametrize("case", [case for case, (_, space, *_) in CASES.items() if space != "clashing"])
def test_onnx_chooses_the_same(runs: Any, case: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs requirements-onnx.txt")
    file = shoal.learn.export(runs(case), "onnx", tmp_path / "policy.onnx")
    policy = shoal.learn.load_policy(runs(case))
    observations = batch(policy)
    session = onnxruntime.InferenceSession(file)
    (action,) = session.run(["action"], inputs_of(observations))
    expected = policy.predict(observations)
    assert (action.dtype, action.shape) == (expected.dtype, expected.shape)
    if np.issubdtype(expected.dtype, np.integer):
        np.testing.assert_array_equal(action, expected)
    else:
        np.testing.assert_allclose(action, expected, rtol=0, atol=1e-5)
    one = {name: array[:1] for name, array in inputs_of(observations).items()}
    np.testing.assert_allclose(session.run(["action"], one)[0], expected[:1], rtol=0, atol=1e-5)


def test_onnx_gives_what_the_action_is_chosen_by_and_values(runs: Any, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs requirements-onnx.txt")
    torch = pytest.importorskip("torch")
    case = "ppo, several choices, of everything"
    session = onnxruntime.InferenceSession(shoal.learn.export(runs(case), "onnx", tmp_path / "policy.onnx"))
    observations = batch(shoal.learn.load_policy(runs(case)))
    head, value = session.run(["head", "value"], inputs_of(observations))
    with torch.no_grad():
        logits, values = shoal.learn.torch_policy(runs(case))(torch_tensors(observations))
    np.testing.assert_allclose(head, logits, rtol=0, atol=1e-5)
    np.testing.assert_allclose(value, values, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "case",
    [
        "ppo, normalised, clipped, to a box",
        "ppo, several choices, of everything",
        "ppo, a shared trunk, bits",
        "ppo, images, channels first",
        "sac",
    ],
)
def test_a_program_of_torch_chooses_the_same(runs: Any, case: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    file = shoal.learn.export(runs(case), "torch", tmp_path / "policy.pt2")
    policy = shoal.learn.load_policy(runs(case))
    observations = batch(policy)
    program = torch.export.load(file).module()
    action, expected = program(torch_tensors(observations)).numpy(), policy.predict(observations)
    assert (action.dtype, action.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(action, expected, rtol=0, atol=1e-5)
    for rows in (0, 1):
        some = program(torch_tensors(first_rows(observations, rows))).numpy()
        assert (some.dtype, some.shape) == (expected.dtype, expected[:rows].shape)


def test_safetensors_have_the_arrays_and_what_they_belong_to(runs: Any, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    case = "ppo, normalised, clipped, to a box"
    file = shoal.learn.export(runs(case), "safetensors", tmp_path / "policy.safetensors")
    with safetensors.safe_open(file, "np") as opened:
        about = opened.metadata()
        arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # it is no dict
    assert about["algorithm"] == "ppo" and json.loads(about["config"])["clip_obs"] == 0.5
    assert json.loads(about["action_space"])["type"] == "Box"
    pytest.importorskip("torch")
    for name, value in shoal.learn.torch_policy(runs(case)).state_dict().items():
        np.testing.assert_array_equal(arrays[name], value.numpy())


def test_the_card_tells_what_it_is(runs: Any, tmp_path: Path) -> None:
    shoal.learn.export(runs("dqn"), "onnx", tmp_path / "policy.onnx")
    card = (tmp_path / "policy.onnx.md").read_text()
    front, text = card.removeprefix("---\n").split("\n---\n")
    assert "library_name: shoal" in front and "- dqn" in front and "type: mean_reward" in front
    assert "# DQN on " in text and "`observation`: float32, shape ('n', 3)" in text
    assert "Nothing is refused: where an observation is not finite" in text
    assert 'InferenceSession("policy.onnx")' in text and "Discrete(4, start=5)" in text


def test_where_it_goes(runs: Any, tmp_path: Path) -> None:
    file = shoal.learn.export(runs("dqn"), "onnx", which="last")
    assert file == runs("dqn") / "policy.onnx" and file.exists() and (runs("dqn") / "policy.onnx.md").exists()
    other = shoal.learn.export(runs("dqn"), "onnx", output=tmp_path / "other.onnx", which="last")
    assert other == tmp_path / "other.onnx" and other.read_bytes() == file.read_bytes()


def test_a_checkpoint_is_exported_into_its_run_and_stays_as_it_is(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = runs("dqn") / "checkpoints/last"
    before = {path.name: path.read_bytes() for path in last.iterdir()}
    file = shoal.learn.export(last, "safetensors")
    assert file == (runs("dqn") / "policy.safetensors").resolve()
    assert "# DQN on Anything" in (runs("dqn") / "policy.safetensors.md").read_text()
    monkeypatch.chdir(last)
    assert shoal.learn.export(".", "safetensors") == file
    (tmp_path / "elsewhere").symlink_to(last)
    for output in (last / "policy.safetensors", Path("policy.onnx"), tmp_path / "elsewhere/policy.onnx"):
        with pytest.raises(ValueError, match="in the folder of a checkpoint"):
            shoal.learn.export(runs("dqn"), "safetensors", output)
    assert {path.name: path.read_bytes() for path in last.iterdir()} == before


def test_a_checkpoint_that_has_left_its_run_needs_an_output(runs: Any, tmp_path: Path) -> None:
    shutil.copytree(runs("dqn") / "checkpoints/last", tmp_path / "models/mine/last")
    (tmp_path / "models/config.json").write_text('{"env": "of another program"}')
    with pytest.raises(ValueError, match="say by output= where"):
        shoal.learn.export(tmp_path / "models/mine/last", "onnx")
    shoal.learn.export(tmp_path / "models/mine/last", "onnx", tmp_path / "policy.onnx")
    card = (tmp_path / "policy.onnx.md").read_text()
    assert "# DQN on an environment without a name" in card and "exported without its run" in card


def test_each_file_has_a_card_of_its_own_and_none_takes_the_place_of_another_text(runs: Any, tmp_path: Path) -> None:
    for to, name in (("onnx", "policy.onnx"), ("safetensors", "policy.safetensors")):
        for _ in range(2):
            shoal.learn.export(runs("dqn"), to, tmp_path / name)
    names = [f"policy.{suffix}" for suffix in ("onnx", "onnx.md", "safetensors", "safetensors.md")]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    (tmp_path / "README.md").write_text("what this is")
    for output, why in (("policy.md", "is a model card's name"), ("README", "is no model card of Shoal's")):
        with pytest.raises(ValueError, match=why):
            shoal.learn.export(runs("dqn"), "onnx", tmp_path / output)
    with pytest.raises(ValueError, match="no file that could be replaced"):
        shoal.learn.export(runs("dqn"), "onnx", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", *names]
    assert (tmp_path / "README.md").read_text() == "what this is"


def test_a_file_that_cannot_be_written_whole_is_not_there(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = shoal.learn.export(runs("dqn"), "onnx", tmp_path / "policy.onnx")
    before = file.read_bytes()

    def full(path: Path, data: bytes) -> None:
        path.write_bytes(data[:9])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shoal.learn.durable._write", full)
    with pytest.raises(OSError, match="No space left"):
        shoal.learn.export(runs("sac"), "onnx", file)
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.onnx", "policy.onnx.md"]


def test_observations_may_be_called_as_outputs_and_as_other_values_of_the_graph(runs: Any, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs requirements-onnx.txt")
    run = runs("ppo, of observations with names that the graph has")
    policy = shoal.learn.load_policy(run)
    session = onnxruntime.InferenceSession(shoal.learn.export(run, "onnx", tmp_path / "policy.onnx"))
    observations = batch(policy)
    inputs = {
        f"observation/{name}" if name in ("action", "head", "value") else name: array
        for name, array in observations.items()
    }
    np.testing.assert_array_equal(session.run(["action"], inputs)[0], policy.predict(observations))
    card = (tmp_path / "policy.onnx.md").read_text()
    assert "- `observation/value`: float32, shape ('n', 2); the observation's `value`" in card
    assert "- `component_0`: float32, shape ('n', 2)\n" in card and "'observation/head': …" in card
    shoal.learn.export(run, "safetensors", tmp_path / "policy.safetensors")
    assert "observation/" not in (tmp_path / "policy.safetensors.md").read_text()


def test_no_two_inputs_have_one_name() -> None:
    box = spaces.Box(0, 1, (1,), np.float32)
    space = spaces.Dict({"a": spaces.Tuple((box, box)), "a/1": box, "action": box, "observation/action": box})
    names = input_names(description_of(space))
    assert sorted(names) == sorted(
        ["a/0", "a/1", "observation/a/1", "observation/observation/action", "observation/action"]
    )
    assert len(set(names)) == 5


def test_what_cannot_be_exported_is_said(runs: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are onnx, torch, safetensors"):
        shoal.learn.export(runs("dqn"), "tflite")
    with pytest.raises(FileNotFoundError):
        shoal.learn.export(tmp_path / "none", "onnx")
    with pytest.raises(ValueError, match="'best' and 'last', not 'worst'"):
        shoal.learn.export(runs("dqn"), "onnx", which="worst")


def test_programs_are_not_made_of_recurrent_policies(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = {**SMALL, "num_envs": 2, "num_steps": 16, "total_steps": 64}
    shoal.learn.train("shoal/CartPoleNoVel-v1", "recurrent_ppo", run_dir=folder, **options)
    for to in ("onnx", "torch"):
        with pytest.raises(ValueError, match="recurrent policy.*to='safetensors'.*torch_policy"):
            shoal.learn.export(folder, to)
    assert shoal.learn.export(folder, "safetensors").stat().st_size > 1000


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_no_file_of_a_run_is_replaced(runs: Any, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(runs("dqn"), run_dir)
    (run_dir / "result.json").unlink()  # as while it trains
    before = files_of(run_dir)
    (tmp_path / "link").symlink_to(run_dir / "config.json")
    names = ("config.json", "result.json", "progress.jsonl", "lock", "curve.png", "events.out.tfevents.1.host.2.0")
    places = [run_dir / name for name in (*names, "checkpoints/best", "checkpoints/policy.onnx")]
    for output in (*places, tmp_path / "link"):
        for of in (runs("dqn"), run_dir):
            with pytest.raises(ValueError, match="is what a run keeps there of its own"):
                shoal.learn.export(of, "onnx", output)
    assert files_of(run_dir) == before
    for name in names:  # a folder that is no run's
        shoal.learn.export(run_dir, "onnx", tmp_path / name)


class Doubled(gymnasium.ObservationWrapper):
    def observation(self, observation: Any) -> Any:
        return 2 * observation


def exported(run_dir: Path, folder: Path) -> tuple[str, dict[str, Any]]:
    """The card, and what the metadata has of the environment."""
    safetensors = pytest.importorskip("safetensors")
    file = shoal.learn.export(run_dir, "safetensors", folder / "policy.safetensors")
    with safetensors.safe_open(file, "np") as opened:
        return file.with_name(f"{file.name}.md").read_text(), json.loads(opened.metadata().get("environment", "{}"))


def environment_in(card: str) -> dict[str, Any]:
    section = card.partition("\n## Environment\n")[2].partition("\n## ")[0]
    return json.loads(section.partition("```json\n")[2].partition("\n```")[0] or "{}")


def test_the_card_and_the_file_say_how_observations_are_preprocessed(tmp_path: Path) -> None:
    kwargs = {"observations": "box", "actions": "two"}
    options = {"env_kwargs": kwargs, "frame_stack": 2, "max_episode_steps": 20, "reward_clip": (-1.0, 1.0)}
    run_dir = tmp_path / "run"
    shoal.learn.train(Anything, "ppo", run_dir=run_dir, wrappers=[Doubled], **options, **SMALL, **ON_POLICY)
    card, environment = exported(run_dir, tmp_path)
    said = {**options, "reward_clip": [-1.0, 1.0], "wrappers": ["test_learn_export:Doubled"]}
    assert environment_in(card) == said and environment == {"env": "Anything", **said}
    assert "as the environment gives them after the preprocessing below, `n` of them in front; they are norm" in card
    assert "as the environment with that preprocessing takes it" in card
    assert "Evaluations count the environment's own rewards." in card


def test_the_card_of_a_game_has_its_preprocessing(runs: Any, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(runs("dqn, images"), run_dir)
    config = json.loads((run_dir / "config.json").read_text())
    atari = {"frame_skip": 4, "frame_stack": 4, "noop_max": 30}
    (run_dir / "config.json").write_text(
        json.dumps({**config, "env": "ALE/Pong-v5", "env_kwargs": None, "atari": atari})
    )
    card, environment = exported(run_dir, tmp_path)
    assert environment_in(card) == {"atari": atari} and environment == {"env": "ALE/Pong-v5", "atari": atari}
    assert "after the preprocessing below" in card and "Evaluations are of whole games" in card


def test_arguments_that_do_not_preprocess_are_no_preprocessing(runs: Any, tmp_path: Path) -> None:
    card, environment = exported(runs("dqn"), tmp_path)
    kwargs = {"observations": "box", "actions": "from_five"}
    assert environment_in(card) == {"env_kwargs": kwargs} and environment == {"env": "Anything", "env_kwargs": kwargs}
    assert "as the environment gives them, `n` of them" in card and "preprocessing" not in card


def test_the_card_of_an_environment_that_was_made_without_arguments_has_no_word_of_them(tmp_path: Path) -> None:
    shoal.learn.train(lambda: Anything("box", "two"), "ppo", run_dir=tmp_path / "run", **SMALL, **ON_POLICY)
    card, environment = exported(tmp_path / "run", tmp_path)
    assert "## Environment" not in card and "preprocessing" not in card and environment == {}


@pytest.mark.filterwarnings("ignore:wrappers that no import path")
def test_preprocessing_that_a_run_could_not_record_is_named(tmp_path: Path) -> None:
    options = {**SMALL, **ON_POLICY, "wrappers": [lambda env: Doubled(env)]}
    shoal.learn.train(lambda: Anything("box", "two"), "ppo", run_dir=tmp_path / "run", **options)
    card, environment = exported(tmp_path / "run", tmp_path)
    assert "after the preprocessing below" in card and environment == {"env": "<lambda>", "unrecorded": ["wrappers"]}
    assert "It trained with `wrappers` as well, which it could not record." in card


class TestCommand:
    def test_it_writes_a_file_and_its_card(self, runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "my.onnx"
        assert run(["export", str(runs("dqn")), "--to", "onnx", "--output", str(file), "--json"]) == 0
        told = capsys.readouterr()
        assert json.loads(told.out) == {"file": str(file), "card": str(tmp_path / "my.onnx.md")}
        assert file.exists() and "my.onnx.md tells what it is" in told.err

    def test_wrong_calls(self, runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for arguments, text in (
            ([str(runs("dqn")), "--to", "onx"], "did you mean onnx?"),
            ([str(runs("dqn")), "--to", "onnx", "--which", "worst"], "--which takes best or last"),
            ([str(runs("dqn")), "--to", "onnx", "--output", str(tmp_path / "none" / "file")], "there is no folder"),
            ([str(tmp_path / "none"), "--to", "onnx"], "there is no folder"),
        ):
            assert run(["export", *arguments]) == 2
            assert text in capsys.readouterr().err

    def test_it_leaves_the_run_as_it_is(self, runs: Any, capsys: pytest.CaptureFixture[str]) -> None:
        config = runs("dqn") / "config.json"
        before = config.read_bytes()
        assert run(["export", str(runs("dqn")), "--to", "onnx", "--output", str(config)]) == 1
        assert "config.json is what a run keeps there of its own" in capsys.readouterr().err
        assert config.read_bytes() == before


def test_the_card_of_a_policy_has_no_other_policys_evaluation(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = {**SMALL, **ON_POLICY, "total_steps": 96, "eval_every": 32, "eval_episodes": 2}
    shoal.learn.train(lambda: Anything("box", "two"), "ppo", run_dir=folder, **{**options, "final_episodes": 3})
    result = json.loads((folder / "result.json").read_text())
    state = json.loads((folder / "checkpoints/last/state.json").read_text())
    best = json.loads((folder / "checkpoints/best/state.json").read_text())

    def told(which: str) -> str:
        shoal.learn.export(folder, "safetensors", tmp_path / f"{which}.safetensors", which=which)
        return (tmp_path / f"{which}.safetensors.md").read_text()

    final = f"over 3 episodes of evaluation: **{result['mean_return']:.2f} "
    assert final in told("best")
    if best["step"] != state["step"]:
        assert final not in told("last")
    own = state["evaluation"]
    assert own["evaluated_step"] == state["step"] == 96
    result["ending"] = "stopped"  # as after Ctrl-C: the result has the latest evaluation then, whoever was evaluated
    (folder / "result.json").write_text(json.dumps(result))
    assert f"over 2 episodes of evaluation: **{own['eval_return']:.2f} " in told("last")
    assert f"over 2 episodes of evaluation: **{best['evaluation']['eval_return']:.2f} " in told("best")
    state["evaluation"]["evaluated_step"] = 64
    (folder / "checkpoints/last/state.json").write_text(json.dumps(state))
    assert "It was not evaluated." in told("last") and "model-index" not in told("last")
