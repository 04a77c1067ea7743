"""Training of networks of one's own: what is refused, and what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces

import learn_envs
import learn_modules
import shoal
from learn_module_runs import PPO
from learn_modules import ActorCritic
from own_programs import python


class WrongValue(ActorCritic):
    def value(self, obs: Any) -> Any:
        return self.critic(obs)


class NoValue(ActorCritic):
    def forward(self, obs: Any) -> Any:
        return super().forward(obs)[:2]


class WrongShape(ActorCritic):
    def evaluate_actions(self, obs: Any, action: Any) -> Any:
        log_prob, value, entropy = super().evaluate_actions(obs, action)
        return log_prob, value[:, None], entropy


class OtherOrder(ActorCritic):
    def evaluate_actions(self, obs: Any, action: Any) -> Any:
        log_prob, value, entropy = super().evaluate_actions(obs, action)
        return value, log_prob, entropy


class OtherDistribution(ActorCritic):
    def evaluate_actions(self, obs: Any, action: Any) -> Any:
        log_prob, value, entropy = super().evaluate_actions(obs, action)
        return log_prob - 1, value, entropy


class Detached(ActorCritic):
    def evaluate_actions(self, obs: Any, action: Any) -> Any:
        return tuple(tensor.detach() for tensor in super().evaluate_actions(obs, action))


class NoEntropy(ActorCritic):
    def evaluate_actions(self, obs: Any, action: Any) -> Any:
        return super().evaluate_actions(obs, action)[:2]


class NotFinite(ActorCritic):
    def value(self, obs: Any) -> Any:
        return super().value(obs) * float("nan")


class Logits(ActorCritic):
    def forward(self, obs: Any) -> Any:
        return self.actor(obs), *super().forward(obs)[1:]


class CannotEvaluate(ActorCritic):
    evaluate_actions = None  # type: ignore[assignment]


class Frozen(ActorCritic):
    def __init__(self, *spaces: Any) -> None:
        super().__init__(*spaces)
        self.requires_grad_(False)


class ExtraState(ActorCritic):
    def get_extra_state(self) -> Any:
        return "text"

    def set_extra_state(self, state: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("policy", "error", "message"),
    [
        (WrongValue, ValueError, r"the policy gave value of shape \(5, 1\)"),
        (NoValue, TypeError, "forward.. of NoValue gave no value: training needs"),
        (
            WrongShape,
            ValueError,
            r"evaluate_actions.. of WrongShape gave a value of a tensor of shape \(100, 1\).*squeeze",
        ),
        (OtherOrder, ValueError, "gave the log_prob where the value belongs"),
        (OtherDistribution, ValueError, "gave a log_prob that is up to 1 from what forward"),
        (Detached, ValueError, "without a gradient"),
        (NoEntropy, ValueError, "entropy_coef=0.01 needs an entropy"),
        (NotFinite, ValueError, "a value that is not finite, in iteration 1"),
        (Logits, ValueError, "return the actions themselves, not scores"),
        (learn_modules.Stateless, TypeError, "gave no state: training needs a dict"),
        (learn_modules.LayersFirst, ValueError, "whose first dimension is the environments"),
        (CannotEvaluate, TypeError, "has no evaluate_actions"),
        (Frozen, ValueError, "no parameter that requires a gradient"),
        (ExtraState, TypeError, "state_dict.. has '_extra_state', a str"),
        (lambda *spaces: 5, TypeError, "made a int of the spaces"),
        (7, TypeError, "policy= takes a torch.nn.Module"),
        (
            "learn_modules:ActorCritics",
            ValueError,
            "the policy 'learn_modules:ActorCritics'.*did you mean 'ActorCritic'",
        ),
        ("ActorCritic", ValueError, "a policy is written package.module:Name"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_wrong_module_is_one_clear_error(tmp_path: Path, policy: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        shoal.learn.train(
            "CartPole-v1", policy=policy, run_dir=tmp_path, num_workers=1, **{**PPO, "normalize_obs": False}
        )


def test_what_no_checkpoint_could_keep_is_refused_before_anything_is_learned(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="_extra_state"):
        shoal.learn.Trainer("shoal/CartPole-v1", policy=ExtraState, run_dir=tmp_path / "run", num_workers=0, **PPO)
    assert not (tmp_path / "run/config.json").exists()


class SamePaths(learn_envs.Drift):
    observation_space = spaces.Dict({"a/b": spaces.Box(0, 1), "a": spaces.Dict({"b": spaces.Box(0, 1)})})


def of_one_number(_: Any, action_space: Any) -> ActorCritic:
    return ActorCritic(spaces.Box(0, 1), action_space)


def test_observations_with_one_name_in_a_checkpoint_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\('a', 'b'\) and \('a/b',\) are both 'a/b' in a checkpoint"):
        shoal.learn.Trainer(SamePaths, policy=of_one_number, run_dir=tmp_path, num_workers=0, **PPO)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "impala"}, "policy= is trained by ppo, a2c, appo; 'impala' trains"),
        ({"policy_hidden": [8]}, "policy_hidden= is of Shoal's own networks"),
        ({"pixel_mean": 0.3}, "pixel_mean= is of Shoal's own networks"),
        ({"shards": 4}, "shards= is of updates that several ranks share, and a policy= is trained by one"),
        ({"split_update": "always"}, "split_update= is of updates"),
        ({"sync_fraction": 0.5}, "sync_fraction= is of updates"),
        ({"recompute_advantages": True}, "recompute_advantages=True is for Shoal.s own networks"),
        ({"fused": False}, 'no option "fused" any more'),
        ({"device": "cuda:77"}, "device='cuda:77': .*device='cpu' is always there"),
        ({"device": "abacus"}, "device='abacus'"),
        ({"policy": None, "device": "cpu"}, "device= says where a policy= computes"),
        ({"learnign_rate": 1}, 'the nearest is "learning_rate"'),
    ],
)
def test_a_bad_option_is_one_clear_error_before_anything_starts(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        shoal.learn.train("CartPole-v1", **{"policy": ActorCritic, "run_dir": tmp_path / "run", **options})
    assert not (tmp_path / "run").exists()


def test_a_device_that_is_not_there_is_refused_of_a_loaded_policy(tmp_path: Path) -> None:
    shoal.learn.train("shoal/CartPole-v1", policy=ActorCritic, run_dir=tmp_path, pause_at_step=100, **PPO)
    with pytest.raises(ValueError, match="device='cuda:77'"):
        shoal.learn.load_policy(tmp_path, device="cuda:77")
    with pytest.raises(ValueError, match="device='cuda:77'"):
        shoal.learn.evaluate(tmp_path, device="cuda:77")


def test_resume_says_what_is_wrong(tmp_path: Path) -> None:
    environment = learn_envs.Drift()
    module = ActorCritic(environment.observation_space, environment.action_space)
    given = {"run_dir": tmp_path, "num_workers": 0}
    shoal.learn.train(learn_envs.Drift, policy=module, pause_at_step=150, **PPO, **given)
    again = {"env": learn_envs.Drift, "resume": True, **given}
    with pytest.raises(ValueError, match="a ActorCritic: give it as policy="):
        shoal.learn.train(**again)
    with pytest.raises(ValueError, match="policy_hidden= is of Shoal's own"):
        shoal.learn.train(policy=module, policy_hidden=[8], **again)
    with pytest.raises(shoal.Error, match="5 environments, not 6"):
        shoal.learn.train(policy=module, num_envs=6, **again)
    with pytest.raises(ValueError, match="already holds a run"):
        shoal.learn.train(learn_envs.Drift, policy=module, **PPO, **given)
    with pytest.raises(ValueError, match="not of this ActorCritic"):
        shoal.learn.train(policy=lambda *spaces: ActorCritic(*spaces, 8), **again)
    optimizer = tmp_path / "checkpoints/last/optim.safetensors"
    optimizer.write_bytes(optimizer.read_bytes()[:-1] + b"?")
    with pytest.raises(shoal.Error, match="optim.safetensors is damaged"):
        shoal.learn.train(policy=module, **again)


def test_what_is_of_the_other_kind_of_run_is_refused(tmp_path: Path) -> None:
    small_cpp = {**PPO, "policy_hidden": [4], "value_hidden": [4], "pause_at_step": 100}
    shoal.learn.train("shoal/CartPole-v1", run_dir=tmp_path / "cpp", **small_cpp)
    with pytest.raises(ValueError, match="policy= is of a network of one's own"):
        shoal.learn.train(run_dir=tmp_path / "cpp", resume=True, policy=ActorCritic)
    with pytest.raises(ValueError, match="policy= is of runs that trained a torch module"):
        shoal.learn.load_policy(tmp_path / "cpp", policy=ActorCritic)
    shoal.learn.train("shoal/CartPole-v1", policy=ActorCritic, run_dir=tmp_path / "own", pause_at_step=100, **PPO)
    with pytest.raises(ValueError, match="load_policy"):
        shoal.learn.torch_policy(tmp_path / "own")
    with pytest.raises(ValueError, match="give the module itself"):
        shoal.Collector("shoal/CartPole-v1", str(tmp_path / "own"), frames_per_batch=8)


@pytest.mark.parametrize(("began", "goes_on"), [("adam", "rmsprop"), ("rmsprop", "adam"), ("rmsprop_tf", "rmsprop")])
def test_an_optimizer_that_keeps_other_averages_does_not_go_on_with_a_run(
    tmp_path: Path, began: str, goes_on: str
) -> None:
    options = {"policy": ActorCritic, "run_dir": tmp_path, "pause_at_step": 100, "optimizer": began, **PPO}
    shoal.learn.train("shoal/CartPole-v1", **options)
    before = (tmp_path / "config.json").read_bytes()
    again = {"policy": ActorCritic, "run_dir": tmp_path, "resume": True}
    with pytest.raises(
        shoal.Error, match=f"cannot resume with optimizer='{goes_on}', which keeps .*Give the optimizer="
    ):
        shoal.learn.train(optimizer=goes_on, **again)
    assert (tmp_path / "config.json").read_bytes() == before
    assert shoal.learn.train(**again).steps == 1500


def test_an_optimizer_may_be_another_before_the_first_update(tmp_path: Path) -> None:
    with shoal.learn.Trainer("shoal/CartPole-v1", policy=ActorCritic, run_dir=tmp_path, **PPO) as trainer:
        trainer.stop()
        trainer.start()
        trainer.wait()
    again = {"policy": ActorCritic, "run_dir": tmp_path, "resume": True}
    assert shoal.learn.train(optimizer="rmsprop", **again).steps == 1500


def test_environments_of_other_spaces_are_refused_where_a_policy_is_evaluated(tmp_path: Path) -> None:
    class Other(learn_envs.Recall):
        action_space = spaces.Discrete(2, start=5)

    shoal.learn.train(learn_envs.Recall, policy=ActorCritic, run_dir=tmp_path, pause_at_step=100, **PPO)
    given = {"episodes": 2, "policy": ActorCritic, "num_workers": 0}
    message = r"trained with observations Box.* and actions Discrete\(2\); these environments have Box.*start=5"
    with pytest.raises(ValueError, match=message):
        shoal.learn.evaluate(tmp_path, env=Other, **given)
    with pytest.raises(ValueError, match=r"these environments have Box\(.*\(2, 1\)"):
        shoal.learn.evaluate(tmp_path, env=learn_envs.Recall, frame_stack=2, **given)
    assert shoal.learn.evaluate(tmp_path, env=learn_envs.Recall, **given).episodes == 2


FAILS = """
import sys

import shoal
from learn_modules import ActorCritic


class Fails(ActorCritic):
    calls = 0

    def forward(self, obs):
        Fails.calls += 1
        if Fails.calls > 30:
            raise LookupError("the module's own")
        return super().forward(obs)


def train():
    with shoal.learn.Trainer("shoal/CartPole-v1", policy=Fails, num_envs=2, run_dir=sys.argv[1]) as trainer:
        trainer.start()
        trainer.wait()


try:
    train()
except LookupError as error:
    print(error)
"""


def test_a_run_whose_module_fails_leaves_nothing_at_the_end_of_the_program(tmp_path: Path) -> None:
    """A leak is told by nanobind, on stderr."""
    done = python(FAILS, tmp_path / "run", timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the module's own\n", "")


def test_what_ended_a_run_is_raised_until_it_is_closed_and_told_after_that(tmp_path: Path) -> None:
    class Fails(ActorCritic):
        def forward(self, obs: torch.Tensor) -> Any:
            raise LookupError("the module's own")

    trainer = shoal.learn.Trainer("shoal/CartPole-v1", policy=Fails, run_dir=tmp_path, **PPO)
    trainer.start()
    for ask in (trainer.wait, trainer.wait, trainer.result):
        with pytest.raises(LookupError, match="the module's own"):
            ask()
    trainer.close()
    for ask in (trainer.wait, trainer.result):
        with pytest.raises(RuntimeError, match="the run has failed: LookupError: the module's own"):
            ask()
