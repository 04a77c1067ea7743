"""rl-baselines3-zoo's YAML files as presets. The files are written here, in its format."""

from __future__ import annotations

import json
import re
import sys
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import learn_envs
import shoal
from shoal.cli import main
from shoal.learn import zoo
from shoal.learn.zoo_values import Name, literal, schedule

pytest.importorskip("yaml")

CARTPOLE = """
    CartPole-v1:
      n_envs: 2
      n_timesteps: !!float 64
      policy: 'MlpPolicy'
      n_steps: 16
      batch_size: 32
      gae_lambda: 0.8
      gamma: 0.98
      n_epochs: 3
      ent_coef: 0.0
      learning_rate: lin_0.001
      clip_range: lin_0.2
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, name: str = "ppo.yml") -> Path:
        (tmp_path / name).write_text(textwrap.dedent(text))
        return tmp_path / name

    return write


def entry(path: Path, text: str, env: str = "Mine-v0") -> dict[str, Any]:
    """The arguments that these lines of an entry give."""
    path.write_text(f"{env}:\n" + textwrap.indent(textwrap.dedent(text), "  "))
    return zoo.read(path, env).arguments


def refusal(folder: Path, text: str) -> str:
    """What is said of these lines of an entry of PPO's."""
    with pytest.raises(ValueError, match="ppo.yml:Mine-v0 says what Shoal's ppo has not") as refused:
        entry(folder / "ppo.yml", text)
    return str(refused.value)


def test_every_key_of_an_entry_is_an_option_of_ours(written: Any) -> None:
    found = zoo.read(written(CARTPOLE), "CartPole-v1")
    assert (found.algorithm, found.preset, found.source) == ("ppo", "sb3", "ppo.yml:CartPole-v1")
    assert found.arguments == {
        "num_envs": 2,
        "total_steps": 64,
        "num_steps": 16,
        "batch_size": 32,
        "gae_lambda": 0.8,
        "gamma": 0.98,
        "epochs": 3,
        "entropy_coef": 0.0,
        "learning_rate": 0.001,
        "learning_rate_schedule": "linear",
        "clip_range": 0.2,
        "clip_range_schedule": "linear",
    }


def test_a_run_is_trained_by_it_and_other_arguments_go_before(written: Any, tmp_path: Path) -> None:
    file = written(CARTPOLE)
    result = shoal.learn.train(
        "CartPole-v1", config=file, gamma=0.9, num_workers=0, final_episodes=0, run_dir=tmp_path / "run"
    )
    run = json.loads((result.run_dir / "config.json").read_text())
    assert (run["algorithm"], run["preset"], run["settings"]) == ("ppo", "sb3", "ppo.yml:CartPole-v1")
    config = run["config"]
    assert (config["gamma"], config["epochs"], config["clip_range_schedule"]) == (0.9, 3, "linear")
    assert config["value_coef"] == shoal.learn.preset("sb3")["value_coef"], "what it leaves out is Stable-Baselines3's"
    assert result.steps == 64


def test_the_command_line_reads_it(written: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(CARTPOLE + "      verbose: 1\n", name="a2c.yml")
    file.write_text(
        "\n".join(line for line in file.read_text().splitlines() if line.split(":")[0].strip() not in OF_PPO)
    )
    flags = [
        "--num-workers=0",
        "--set=final_episodes=0",
        f"--run-dir={tmp_path / 'run'}",
        "--json",
        "--seed=3",
        "--quiet",
    ]
    assert main(["train", "CartPole-v1", f"--config={file}", *flags]) == 0
    noted = (
        "a2c.yml:CartPole-v1: left out, since it changes nothing here: verbose: 1 (the command line shows progress)\n"
    )
    assert capsys.readouterr().err.startswith(noted)
    run = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (run["algorithm"], run["config"]["num_steps"], run["config"]["seed"]) == ("a2c", 16, 3)
    assert main(["train", "Acrobot-v1", f"--config={file}"]) == 2
    assert "has no entry for 'Acrobot-v1'; it has CartPole-v1" in capsys.readouterr().err


OF_PPO = ("batch_size", "n_epochs", "clip_range")


def test_policy_kwargs_are_read_as_data(tmp_path: Path) -> None:
    found = entry(
        tmp_path / "ppo.yml",
        """
        policy: MlpPolicy
        policy_kwargs: "dict(log_std_init=-2, ortho_init=False, activation_fn=nn.ReLU,
                             net_arch=dict(pi=[256, 256], vf=[128]), optimizer_kwargs=dict(eps=1e-7, betas=(0.8, 0.9)))"
        """,
    )
    assert found == {
        "log_std_init": -2,
        "orthogonal_init": False,
        "activation": "relu",
        "policy_hidden": [256, 256],
        "value_hidden": [128],
        "adam_eps": 1e-7,
        "adam_beta1": 0.8,
        "adam_beta2": 0.9,
    }
    older = entry(tmp_path / "ppo.yml", 'policy_kwargs: "dict(net_arch=[dict(pi=[8], vf=[9])])"')
    assert older == {"policy_hidden": [8], "value_hidden": [9]}
    both = entry(tmp_path / "ppo.yml", "policy_kwargs: {net_arch: [32, 16], activation_fn: th.nn.Tanh}")
    assert both == {"policy_hidden": [32, 16], "value_hidden": [32, 16], "activation": "tanh"}


def test_nothing_of_a_file_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for text in (
        f"dict(a=open({str(marker)!r}, 'w'))",
        "__import__('os').getcwd()",
        "dict(**{'a': 1})",
        "[x for x in (1, 2)]",
        "1 +",
    ):
        with pytest.raises(ValueError, match="policy_kwargs: .* cannot be read: .* is not run"):
            literal("policy_kwargs", text)
    assert not marker.exists()
    assert literal("normalize", "{'norm_obs': False, 'n': (-1, +2.5)}") == {"norm_obs": False, "n": [-1, 2.5]}
    assert isinstance(literal("policy_kwargs", "nn.ReLU"), Name)
    with pytest.raises(ValueError, match="cannot be read as YAML of plain values"):
        (tmp_path / "ppo.yml").write_text("a: !!python/object/apply:os.getcwd []")
        zoo.read(tmp_path / "ppo.yml", "a")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("normalize: true", {"normalize_obs": True, "normalize_reward": True}),
        ("normalize: false", {"normalize_obs": False, "normalize_reward": False}),
        ("normalize: \"{'norm_obs': False, 'norm_reward': True}\"", {"normalize_obs": False, "normalize_reward": True}),
        (
            'normalize: "dict(norm_obs=True, norm_reward=False, clip_obs=5, gamma=0.99)"',
            {"normalize_obs": True, "normalize_reward": False, "clip_obs": 5},
        ),
        ("learning_rate: 1e-3", {"learning_rate": 0.001, "learning_rate_schedule": "constant"}),
        ("ent_coef: 1e-3", {"entropy_coef": 0.001}),
        ("vf_coef: 5E-1\nn_envs: 1e1", {"value_coef": 0.5, "num_envs": 10}),
        ("clip_range_vf: 0.3", {"clip_range_value": 0.3, "pessimistic_value_clip": False}),
        ("clip_range_vf: -1", {"clip_range_value": None}),
        ("normalize_advantage: false", {"advantage_normalization": "none"}),
        ("max_grad_norm: 5\ntarget_kl: 0.1\nvf_coef: 0.19", {"max_grad_norm": 5, "target_kl": 0.1, "value_coef": 0.19}),
        ("policy: CnnPolicy", {"policy_hidden": [], "value_hidden": []}),
        ("env_kwargs: {g: 9.8}\nseed: 4", {"env_kwargs": {"g": 9.8}, "seed": 4}),
        ("use_sde: false\nsde_sample_freq: 4", {}),
        ("env_wrapper: pack.age.Wrapped", {"wrappers": ["pack.age:Wrapped"]}),
        (
            "env_wrapper:\n  - a.b.One:\n      skip: 2\n      name: x\n  - a.b.Two",
            {"wrappers": ["a.b:One(skip=2, name='x')", "a.b:Two"]},
        ),
        ("frame_stack: 2", {"frame_stack": 2}),
        ("env_wrapper: null\nframe_stack: null", {}),
        ("normalize: null\ncallback: null\nvec_env_wrapper: null\npolicy_kwargs: null\nreplay_buffer_class: null", {}),
    ],
)
def test_what_a_key_means(tmp_path: Path, text: str, found: dict[str, Any]) -> None:
    assert entry(tmp_path / "ppo.yml", text) == found


def test_the_algorithm_is_the_files_unless_another_is_asked_for(written: Any) -> None:
    path = written("Mine-v0: {gamma: 0.5}", "a2c.yml")
    assert zoo.read(path, "Mine-v0").algorithm == "a2c"
    assert zoo.read(path, "Mine-v0", "ppo").algorithm == "ppo"


def test_recurrent_policies(tmp_path: Path) -> None:
    path = tmp_path / "ppo_lstm.yml"
    kwargs = (
        "dict(ortho_init=False, activation_fn=nn.ReLU, lstm_hidden_size=64, enable_critic_lstm=True, n_lstm_layers=1)"
    )
    text = f'policy: MlpLstmPolicy\nn_steps: 32\npolicy_kwargs: "{kwargs}"'
    assert entry(path, text) == {"num_steps": 32, "orthogonal_init": False, "activation": "relu", "lstm_size": 64}
    assert zoo.read(path, "Mine-v0").algorithm == "recurrent_ppo"
    shared = 'policy_kwargs: "dict(shared_lstm=True, enable_critic_lstm=False)"'
    assert entry(path, shared) == {"shared_lstm": True}
    found = zoo.read(path, "Mine-v0")
    assert not found.notes and "from the policy alone" in "".join(found.otherwise)
    for refused in (
        "policy: MlpPolicy",
        'policy_kwargs: "dict(enable_critic_lstm=False)"',
        "target_update_interval: 3",
    ):
        with pytest.raises(ValueError, match="Shoal's recurrent_ppo has not"):
            entry(path, refused)


def test_all_that_is_not_supported_is_named_at_once(tmp_path: Path) -> None:
    text = """
        use_sde: True
        sde_sample_freq: 4
        policy: MlpLstmPolicy
        callback: rl_zoo3.callbacks.RawStatisticsCallback
        vec_env_wrapper: stable_baselines3.common.vec_env.VecMonitor
        clip_range_vf: lin_0.2
        buffer_size: 100
        nonsense: 3
        normalize: "dict(epsilon=1e-3)"
        policy_kwargs: "dict(lstm_hidden_size=64, activation_fn=nn.GELU, net_arch=[8, dict(pi=[8])])"
        """
    refused = refusal(tmp_path, text)
    for key in (
        "use_sde: True (state-dependent exploration)",
        "policy: MlpLstmPolicy",
        "callback: rl_zoo3",
        "vec_env_wrapper: ",
        "clip_range_vf: lin_0.2",
        "buffer_size: 100",
        "nonsense: 3",
        "normalize: epsilon: 0.001",
        "policy_kwargs: lstm_hidden_size: 64",
        "policy_kwargs: activation_fn: nn.GELU",
        "policy_kwargs: net_arch: ",
    ):
        assert key in refused
    assert "sde_sample_freq" not in refused, "it goes with use_sde"


def test_values_of_no_such_kind_are_named_with_their_file_and_all_at_once(tmp_path: Path) -> None:
    text = """
        n_timesteps: abc
        frame_stack: "4"
        n_steps: [1]
        n_envs: "8"
        learning_rate: cos_3
        env_wrapper: [{}]
        env_kwargs: 5
        policy_kwargs: "dict(optimizer_kwargs=dict(betas=0.9), net_arch=dict(pi=1, vf=2))"
        """
    refused = refusal(tmp_path, text)
    for said in (
        "n_timesteps: 'abc' (it takes no such value);",
        "frame_stack: '4' (it takes no such value);",
        "n_steps: [1] is no number;",
        "n_envs: '8' is no number;",
        "learning_rate: 'cos_3' is neither",
        "env_wrapper: [{}] (it takes no such value);",
        "env_kwargs is a dict, got 5",
        "policy_kwargs: optimizer_kwargs: {'betas': 0.9} (it takes no such value)",
        "policy_kwargs: net_arch: {'pi': 1, 'vf': 2} (it takes no such value);",
    ):
        assert said in refused


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("ppo.yml", "n_timesteps: .inf", "n_timesteps: inf (it takes no such value)"),
        ("ppo.yml", "n_timesteps: true", "n_timesteps: True (it takes no such value)"),
        ("ppo.yml", "n_timesteps: 10.7", "n_timesteps: 10.7 (it takes no such value)"),
        ("ppo.yml", "learning_rate: true", "learning_rate: True is neither a number nor a schedule"),
        ("ppo.yml", "n_steps: true", "n_steps: True is no number"),
        ("ppo.yml", "env_wrapper: [null]", "env_wrapper: None is no path of a wrapper, module.Name"),
        ("ppo.yml", "env_wrapper: Wrapped", "env_wrapper: 'Wrapped' is no path of a wrapper, module.Name"),
        ("ppo.yml", "env_wrapper: {a.b.One: 5}", "env_wrapper: a.b.One is a dict, got 5"),
        ("dqn.yml", 'train_freq: "4"', "train_freq: '4' is no number of steps"),
        ("dqn.yml", "train_freq: true", "train_freq: True is no number of steps"),
        ("dqn.yml", 'n_envs: "8"', "n_envs: '8' is no number."),
        ("dqn.yml", "n_envs: 1.5", "n_envs: 1.5 is no number of environments."),
        ("dqn.yml", "train_freq: [4]", "train_freq: [4] (it takes no such value)"),
        (
            "ppo.yml",
            'policy_kwargs: "dict(optimizer_kwargs=dict(betas=[0.9]))"',
            "policy_kwargs: optimizer_kwargs: {'betas': [0.9]} (it takes no such value)",
        ),
    ],
)
def test_a_value_of_no_such_kind_is_named_with_its_key(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{name}:Mine-v0 says what") + ".*" + re.escape(said)):
        entry(tmp_path / name, text)


def test_what_changes_nothing_and_what_is_done_otherwise_are_notes(written: Any, tmp_path: Path) -> None:
    file = written(CARTPOLE + "      tensorboard_log: /tmp/x\n      frame_stack: 2\n")
    with pytest.warns(UserWarning) as caught:
        shoal.learn.Trainer("CartPole-v1", config=file, num_workers=0, run_dir=tmp_path / "noted").close()
    left_out, otherwise = (str(warning.message) for warning in caught)
    assert left_out.startswith("ppo.yml:CartPole-v1: left out, since it changes nothing here: tensorboard_log: /tmp/x")
    assert otherwise.startswith(
        "ppo.yml:CartPole-v1: done otherwise here: frame_stack: 2 (an episode begins with copies"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shoal.learn.Trainer("CartPole-v1", config=written(CARTPOLE), num_workers=0, run_dir=tmp_path / "silent").close()


def test_the_entry_of_an_environment_is_found(written: Any) -> None:
    anchored = """
        Base-v0: &defaults
          gamma: 0.5
        Other-v1:
          <<: *defaults
          n_envs: 3
        CartPole-v1:
          gamma: 0.7
        LunarLander-v3:
          gamma: 0.8
    """
    file = written(anchored)
    assert zoo.read(file, "Other-v1").arguments == {"gamma": 0.5, "num_envs": 3}
    assert zoo.read(file, "shoal/CartPole-v1").source == "ppo.yml:CartPole-v1"
    assert zoo.read(file, "package:CartPole-v1").source == "ppo.yml:CartPole-v1"
    assert zoo.read(f"{file}:LunarLander-v3", "LunarLander-v4").arguments == {"gamma": 0.8}
    with pytest.raises(
        ValueError,
        match="no entry for 'LunarLander-v4'; to take that of LunarLander-v3, write .*ppo.yml:LunarLander-v3",
    ):
        zoo.read(file, "LunarLander-v4")


def test_the_entry_for_all_others_is_taken_with_a_note_that_names_the_nearest(written: Any, tmp_path: Path) -> None:
    file = written("default: {gamma: 0.1}\nHalfCheetah-v4: {gamma: 0.2}")
    found = zoo.read(file, "HalfCheetah-v5")
    assert found.arguments == {"gamma": 0.1}
    nearest = f"; to take that of HalfCheetah-v4, write {file}:HalfCheetah-v4"
    assert found.remarks() == [f"ppo.yml:default is taken, since HalfCheetah-v5 has no entry of its own{nearest}"]
    assert zoo.read(file, "Pong").remarks() == ["ppo.yml:default is taken, since Pong has no entry of its own"]
    assert not zoo.read(f"{file}:default", "HalfCheetah-v5").remarks()
    assert not zoo.read(file, "HalfCheetah-v4").remarks()
    with pytest.warns(UserWarning, match="ppo.yml:default is taken, since CartPole-v1 has no entry of its own"):
        shoal.learn.Trainer("CartPole-v1", config=file, num_workers=0, run_dir=tmp_path / "run").close()


LIMIT = """        - gymnasium.wrappers.TimeLimit:
                max_episode_steps: 100
"""


def test_games_of_atari_have_one_entry_and_its_wrapper_is_ours(written: Any) -> None:
    pytest.importorskip("ale_py")
    atari = """
        atari:
          env_wrapper:
            - stable_baselines3.common.atari_wrappers.AtariWrapper:
                noop_max: 10
          frame_stack: 4
          policy: CnnPolicy
          n_envs: 8
    """
    found = zoo.read(written(atari), "ALE/Pong-v5").arguments
    assert found.pop("eval_every") == shoal.learn.preset("atari")["eval_every"]
    assert found.pop("final_episodes") == 30
    assert found == {
        "atari": {"like": "sb3", "frame_stack": 4, "noop_max": 10},
        "policy_hidden": [],
        "value_hidden": [],
        "num_envs": 8,
    }
    assert zoo.read(written("PongNoFrameskip-v4: {n_envs: 2}"), "PongNoFrameskip-v4").arguments["atari"] is False
    limited = atari.replace("          frame_stack", f"    {LIMIT}          frame_stack")
    assert zoo.read(written(limited), "ALE/Pong-v5").arguments["wrappers"] == [
        "gymnasium.wrappers:TimeLimit(max_episode_steps=100)"
    ]
    limited = atari.replace("          env_wrapper:\n", f"          env_wrapper:\n    {LIMIT}")
    with pytest.raises(
        ValueError, match="env_wrapper: gymnasium.wrappers.TimeLimit .it comes before AtariWrapper.*list it after"
    ):
        zoo.read(written(limited), "ALE/Pong-v5")
    sticky = atari.replace("noop_max: 10", "action_repeat_probability: 0.25")
    with pytest.raises(ValueError, match="action_repeat_probability: 0.25 .the emulator's own is env_kwargs'"):
        zoo.read(written(sticky), "ALE/Pong-v5")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("td3.yml", CARTPOLE, "is of td3, which Shoal has not; there is ppo, a2c.*by algorithm= or --algorithm"),
        ("ppo.yml", "- 1", "no file of rl-baselines3-zoo's"),
        ("ppo.yml", "CartPole-v1: 3", "no set of hyperparameters: 3"),
        ("ppo.yml", "CartPole-v1: {learning_rate: cos_3}", "learning_rate: 'cos_3' is neither a number nor a schedule"),
        ("ppo.yml", "CartPole-v1: {policy_kwargs: [1]}", "policy_kwargs is a dict"),
        ("ppo.yml", "{", "cannot be read as YAML"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_clear_error(written: Any, name: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        shoal.learn.train("CartPole-v1", config=written(text, name))


@pytest.mark.parametrize(("env", "name"), [("CartPole-v1", "ppo.yml"), ("shoal/CartPole-v1", "ppo_lstm.yml")])
def test_a_policy_of_pictures_is_refused_where_there_are_none(
    written: Any, tmp_path: Path, env: str, name: str
) -> None:
    policy = "CnnLstmPolicy" if "lstm" in name else "CnnPolicy"
    file = written(CARTPOLE.replace("MlpPolicy", policy), name)
    with pytest.raises(
        ValueError, match=rf"{name}:CartPole-v1 says policy: {policy}, which is for pictures.*MlpPolicy"
    ):
        shoal.learn.train(env, config=file, run_dir=tmp_path / "run", final_episodes=0)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("env", "name", "policy", "instead"),
    [
        (learn_envs.Spot, "ppo.yml", "MlpPolicy", "CnnPolicy"),
        (learn_envs.Spot, "dqn.yml", "MlpPolicy", "CnnPolicy"),
        (learn_envs.Spot, "ppo_lstm.yml", "MlpLstmPolicy", "CnnLstmPolicy"),
        (learn_envs.Pictures, "ppo.yml", "MlpPolicy", "MultiInputPolicy"),
    ],
)
def test_a_policy_that_takes_pictures_for_numbers_is_refused_where_there_are_some(
    written: Any, tmp_path: Path, env: Any, name: str, policy: str, instead: str
) -> None:
    file = written(f"Mine-v0: {{policy: {policy}}}", name)
    refused = (
        rf"{name}:Mine-v0 says policy: {policy}, which takes a picture for so many numbers.*Take policy: {instead}"
    )
    with pytest.raises(ValueError, match=f"{refused} in a copy of the file, or give a network of your own"):
        shoal.learn.Trainer(env, config=f"{file}:Mine-v0", num_workers=0, run_dir=tmp_path / "run")


def test_pictures_beside_numbers_have_more_features_than_there(written: Any, tmp_path: Path) -> None:
    file = written("Mine-v0: {policy: MultiInputPolicy}")
    with pytest.warns(
        UserWarning, match="says policy: MultiInputPolicy, done otherwise here: a picture becomes 512.*there, 256"
    ):
        shoal.learn.Trainer(
            learn_envs.Pictures, config=f"{file}:Mine-v0", num_workers=0, run_dir=tmp_path / "run"
        ).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shoal.learn.Trainer(
            "CartPole-v1", config=f"{file}:Mine-v0", num_workers=0, run_dir=tmp_path / "numbers"
        ).close()


def test_how_observations_are_looked_at_is_up_to_the_policy(tmp_path: Path) -> None:
    def of(policy: str, extractor: str) -> str:
        path = tmp_path / "ppo.yml"
        path.write_text(f"a: {{policy: {policy}, policy_kwargs: dict(features_extractor_class={extractor})}}")
        return "".join(zoo.read(path, "a").notes)

    own = {"MlpPolicy": "FlattenExtractor", "CnnPolicy": "NatureCNN", "MultiInputPolicy": "CombinedExtractor"}
    for policy, extractor in own.items():
        assert of(policy, f"th.{extractor}") == f"policy_kwargs: features_extractor_class: th.{extractor} (so it is)"
        for other in {*own.values(), "Mine"} - {extractor}:
            with pytest.raises(ValueError, match=rf"features_extractor_class: {other} \({policy} has {extractor}\)"):
                of(policy, other)
    with pytest.raises(ValueError, match=r"NatureCNN \(which one it has is up to policy:"):
        entry(tmp_path / "ppo.yml", "policy_kwargs: dict(features_extractor_class=NatureCNN)")


def test_a_policy_of_pictures_learns_from_pictures(written: Any, tmp_path: Path) -> None:
    file = written(CARTPOLE.replace("MlpPolicy", "CnnPolicy"))
    options = {"eval_every": 0, "final_episodes": 1, "run_dir": tmp_path / "run"}
    result = shoal.learn.train(learn_envs.Spot, config=f"{file}:CartPole-v1", **options)
    assert result.steps == 64 and (tmp_path / "run/result.json").exists()


def test_other_mistakes_are_told_before_anything_starts(written: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no file"):
        shoal.learn.train("CartPole-v1", config=tmp_path / "none.yml")
    with pytest.raises(ValueError, match="config= is instead of preset="):
        shoal.learn.train("CartPole-v1", config=written(CARTPOLE), preset="sb3")
    with pytest.raises(ValueError, match="a resumed run keeps its options"):
        shoal.learn.train(config=written(CARTPOLE), resume=True, run_dir=tmp_path)
    assert schedule("clip_range", "lin_0.5") == (0.5, "linear")


def test_without_pyyaml_the_error_says_what_to_install(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ModuleNotFoundError, match="needs PyYAML:  pip install pyyaml"):
        zoo.read(written(CARTPOLE), "CartPole-v1")


def of_sac(path: Path, text: str) -> dict[str, Any]:
    return entry(path / "sac.yml", text)


@pytest.mark.parametrize(
    ("said", "learned", "first"),
    [("0.005", False, 0.005), ("0", False, 0.0), ("'auto'", True, 1.0), ("'auto_0.1'", True, 0.1)],
)
def test_a_temperature_of_sac_is_kept_unless_it_is_auto(tmp_path: Path, said: str, learned: bool, first: float) -> None:
    assert of_sac(tmp_path, f"ent_coef: {said}") == {
        "automatic_entropy": learned,
        "entropy_coef": first,
        "train_freq": 1,
    }


def test_what_is_no_temperature_is_refused(tmp_path: Path) -> None:
    for said in ("much", "auto_more", "[1]"):
        with pytest.raises(ValueError, match='a number, "auto", or "auto_" and the first one'):
            of_sac(tmp_path, f"ent_coef: {said}")
    with pytest.raises(ValueError, match="ent_coef: 'auto' is no number"):
        entry(tmp_path / "ppo.yml", "ent_coef: auto")


def test_n_steps_are_of_a_return_where_there_is_a_replay(tmp_path: Path) -> None:
    assert entry(tmp_path / "dqn.yml", "n_steps: 3")["n_step"] == 3
    assert entry(tmp_path / "ppo.yml", "n_steps: 3") == {"num_steps": 3}


def test_a_step_of_train_freq_is_one_of_all_environments(tmp_path: Path) -> None:
    assert entry(tmp_path / "dqn.yml", "n_envs: 4")["train_freq"] == 16, "4 is Stable-Baselines3's default"
    assert entry(tmp_path / "dqn.yml", "{n_envs: 4, train_freq: 1}")["train_freq"] == 4
    assert entry(tmp_path / "dqn.yml", "{n_envs: 1e1, train_freq: 4}") == {"num_envs": 10, "train_freq": 40}
    assert of_sac(tmp_path, "{n_envs: 3, train_freq: 8}")["train_freq"] == 24


def test_the_target_entropy_of_sac_is_read(tmp_path: Path) -> None:
    assert of_sac(tmp_path, "target_entropy: auto") == {"target_entropy": None, "train_freq": 1}
    assert of_sac(tmp_path, "target_entropy: -3.0")["target_entropy"] == -3.0
    assert of_sac(tmp_path, "target_entropy: -5e-1")["target_entropy"] == -0.5
    with pytest.raises(ValueError, match="target_entropy: 'much' is no number"):
        of_sac(tmp_path, "target_entropy: much")
    assert "target_entropy: auto" in refusal(tmp_path, "target_entropy: auto")


def test_target_networks_of_sac_move_with_each_update(tmp_path: Path) -> None:
    assert of_sac(tmp_path, "target_update_interval: 1") == {"train_freq": 1}
    assert zoo.read(tmp_path / "sac.yml", "Mine-v0").notes == ["target_update_interval: 1 (so it is)"]
    with pytest.raises(ValueError, match="Shoal's sac has not: target_update_interval: 2"):
        of_sac(tmp_path, "target_update_interval: 2")
    assert "target_update_interval: 1" in refusal(tmp_path, "target_update_interval: 1")
    assert entry(tmp_path / "dqn.yml", "target_update_interval: 1")["target_update_interval"] == 1


def test_a_dict_of_widths_has_the_networks_of_the_algorithm(tmp_path: Path) -> None:
    def widths(name: str, arch: str) -> dict[str, Any]:
        found = entry(tmp_path / name, f'policy_kwargs: "dict(net_arch={arch})"')
        return {option: found[option] for option in ("policy_hidden", "value_hidden") if option in found}

    assert widths("sac.yml", "dict(pi=[8], qf=[9, 9])") == {"policy_hidden": [8], "value_hidden": [9, 9]}
    assert widths("sac.yml", "[8]") == {"policy_hidden": [8], "value_hidden": [8]}
    assert widths("dqn.yml", "[8, 9]") == {"policy_hidden": [8, 9]}
    for name, arch, has in (
        ("sac.yml", "dict(pi=[8], vf=[9])", "widths, or dict(pi=[…], qf=[…])"),
        ("sac.yml", "[dict(pi=[8], qf=[9])]", "widths, or dict(pi=[…], qf=[…])"),
        ("ppo.yml", "dict(pi=[8], qf=[9])", "widths, or dict(pi=[…], vf=[…])"),
        ("dqn.yml", "dict(pi=[8], vf=[9])", "(widths)"),
        ("dqn.yml", "[dict(pi=[8], vf=[9])]", "(widths)"),
    ):
        with pytest.raises(ValueError, match="policy_kwargs: net_arch: .*" + re.escape(has)):
            widths(name, arch)


def test_what_an_algorithm_has_not_is_named_once(written: Any) -> None:
    with pytest.raises(ValueError, match="dqn has not") as refused:
        zoo.read(written("Mine-v0: {clip_range: lin_0.2}"), "Mine-v0", "dqn")
    assert str(refused.value).count("clip_range") == 1
