"""shoal.Collector: which policies it takes, and their weights."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import shoal
from collect_policies import CARTPOLE, POLICIES, Linear, Remembers, batches, coin, torch_policy, zeros
from same import assert_same
from sample_envs import CounterEnv, SpaceEnv

# --- policies


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("env", [CARTPOLE, "CartPole-v1"])
def test_the_same_seed_gives_the_same_batches_for_any_number_of_workers(policy: str, env: str) -> None:
    collect = functools.partial(
        batches,
        env,
        num_envs=6,
        frames_per_batch=300,
        total_frames=600,
        next_obs=True,
        output="numpy",
        init_random_frames=60,
    )
    expected = collect(POLICIES[policy](), seed=3, num_workers=0)
    for num_workers in (1, 2, 3):
        np.random.seed(num_workers)  # nobody else's draws count
        assert_same(collect(POLICIES[policy](), seed=3, num_workers=num_workers), expected)
    other = collect(POLICIES[policy](), seed=4, num_workers=0)
    assert not np.array_equal(other[0]["action"], expected[0]["action"])


@pytest.mark.parametrize("policy", POLICIES)
def test_cohorts_give_the_same_batches_for_any_number_of_workers(policy: str) -> None:
    collect = functools.partial(
        batches, "CartPole-v1", num_envs=6, frames_per_batch=120, total_frames=240, next_obs=True, output="numpy",
        init_random_frames=60, cohorts=2, seed=3,
    )  # fmt: skip
    expected = collect(POLICIES[policy](), num_workers=0)
    assert all(batch["valid"].all() for batch in expected)
    assert (expected[1]["env_id"] == np.arange(6)).all()
    for num_workers in (2, 4):
        assert_same(collect(POLICIES[policy](), num_workers=num_workers), expected)


def test_a_cohort_that_fails_does_so_for_all_until_they_are_reset() -> None:
    calls = []

    def policy(obs: np.ndarray) -> np.ndarray:
        calls.append(1)
        if len(calls) == 4:
            raise LookupError("no action")
        return zeros(obs)

    with shoal.Collector(CounterEnv, policy, num_envs=4, frames_per_batch=16, cohorts=2, num_workers=2) as collector:
        with pytest.raises(LookupError, match="no action"):
            next(collector)
        with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
            next(collector)
        collector.reset(seed=3)
        batch = next(collector)
    assert batch["is_first"][0].all() and batch["valid"].all()
    for wrong, message in (
        ({"cohorts": 3}, "cohorts= takes a number that divides num_envs=4, got 3"),
        ({"cohorts": 2, "mode": "multi_sync"}, 'cohorts= is of mode="sync"'),
        ({"cohorts": 2, "policy_batch": 2}, "leave policy_batch= out"),
    ):
        with pytest.raises(ValueError, match=message):
            shoal.Collector(CARTPOLE, zeros, num_envs=4, frames_per_batch=4, **wrong)


def test_the_callers_generators_are_left_alone() -> None:
    torch = pytest.importorskip("torch")
    np.random.seed(1)
    torch.manual_seed(1)
    expected = np.random.rand(), torch.rand(1).item()
    np.random.seed(1)
    torch.manual_seed(1)
    batches(CARTPOLE, coin, num_envs=2, frames_per_batch=64, total_frames=64)
    assert (np.random.rand(), torch.rand(1).item()) == expected


def test_draws_on_devices_follow_the_seed_and_the_state_and_leave_the_callers_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    devices = (torch.Generator(), torch.Generator())  # what CUDA's do here, those of the CPU do as well
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "default_generators", devices)

    def policy(obs: np.ndarray) -> np.ndarray:
        return torch.randint(2, (len(obs),), generator=devices[1]).numpy()

    make = functools.partial(shoal.Collector, CARTPOLE, policy, num_envs=4, frames_per_batch=64)
    with make(seed=1) as collector:
        expected = [next(collector)]
        saved = pickle.loads(pickle.dumps(collector.state_dict()))
        expected.append(next(collector))
    for device in devices:
        device.manual_seed(9)
    outer = [device.get_state() for device in devices]
    with make(seed=1) as same, make(seed=2) as other:
        assert_same([next(same), next(same)], expected)
        assert not np.array_equal(next(other)["action"], expected[0]["action"])
        other.load_state_dict(saved)
        assert_same(next(other), expected[1])
    assert all(torch.equal(device.get_state(), state) for device, state in zip(devices, outer, strict=True))


def test_a_module_gets_and_gives_tensors_without_gradients() -> None:
    torch = pytest.importorskip("torch")
    policy = torch_policy()
    (batch,) = batches(CARTPOLE, policy, num_envs=4, frames_per_batch=64, total_frames=64)
    assert all(isinstance(value, torch.Tensor) and not value.requires_grad for value in batch.values())
    flat = batch["obs"].reshape(-1, 4)
    with torch.no_grad():
        out = policy.body(flat)
        logp = torch.distributions.Categorical(logits=out[:, :2]).log_prob(batch["action"].reshape(-1))
    assert torch.allclose(batch["value"].reshape(-1), out[:, 2], atol=1e-6)
    assert torch.allclose(batch["log_prob"].reshape(-1), logp, atol=1e-6)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "run"
    shoal.learn.train(CARTPOLE, total_steps=256, num_envs=4, num_steps=32, final_episodes=1, run_dir=directory)
    return directory


def test_the_policy_of_a_run_acts_as_it_learnt(run: Path) -> None:
    torch = pytest.importorskip("torch")
    (batch,) = batches(CARTPOLE, run, num_envs=4, frames_per_batch=400, total_frames=400, seed=2)
    (same,) = batches(CARTPOLE, str(run), num_envs=4, frames_per_batch=400, total_frames=400, seed=2)
    assert_same(same, batch)
    module = shoal.learn.torch_policy(run)
    obs = torch.from_numpy(batch["obs"].reshape(-1, 4))
    with torch.no_grad():
        (chosen,) = module.distribution(obs)
        values = module(obs)[1]
    logp = chosen.log_prob(torch.from_numpy(batch["action"].reshape(-1)))
    assert np.allclose(batch["log_prob"].reshape(-1), logp.numpy(), atol=1e-4)
    assert np.allclose(batch["value"].reshape(-1), values.numpy(), atol=1e-3)
    with pytest.raises(ValueError, match="was trained with observations"):
        shoal.Collector("shoal/Pendulum-v1", run, frames_per_batch=1)


@pytest.fixture(scope="module")
def recurrent_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "recurrent"
    shoal.learn.train(
        "shoal/CartPoleNoVel-v1", "recurrent_ppo", total_steps=256, num_envs=4, num_steps=32, batch_size=64, epochs=1,
        lstm_size=12, policy_hidden=[8], value_hidden=[8], final_episodes=1, run_dir=directory,
    )  # fmt: skip
    return directory


def test_groups_of_environments_remember_their_own_episodes(recurrent_run: Path) -> None:
    """With one memory for all, a group went on with what the network remembered of another one."""
    collect = functools.partial(
        batches, "shoal/CartPoleNoVel-v1", recurrent_run, num_envs=4, frames_per_batch=20, total_frames=100,
        policy_batch=2, seed=3,
    )  # fmt: skip
    expected = collect(mode="multi_sync", num_collectors=2)  # each has one group
    assert_same(collect(mode="multi_sync", num_collectors=1), expected)
    assert_same(collect(mode="multi_sync", num_collectors=4), expected)
    assert_same(collect(), expected)


@pytest.mark.parametrize("more", [{}, {"policy_batch": 2}, {"cohorts": 2, "num_workers": 2}, {"mode": "multi_sync"}])
def test_what_a_network_remembers_is_in_the_state(recurrent_run: Path, more: dict[str, Any]) -> None:
    make = functools.partial(
        shoal.Collector, "shoal/CartPoleNoVel-v1", recurrent_run, num_envs=4, frames_per_batch=20, **more
    )
    with make(seed=3) as collector:
        next(collector)
        saved = pickle.loads(pickle.dumps(collector.state_dict()))
        expected = [next(collector) for _ in range(3)]
    assert not expected[0]["is_first"][0].any()
    with make(seed=4) as other:
        other.load_state_dict(saved)
        assert_same([next(other) for _ in range(3)], expected)


def test_actions_of_a_box_are_kept_as_chosen_and_clipped_for_the_environment() -> None:
    class Env(CounterEnv):
        action_space = spaces.Box(-1, 1, (2,), np.float32)

        def step(self, action: Any) -> Any:
            return self._observation(), float(action.sum()), False, False, {}

    chosen = np.array([[3, 0.25]], np.float32)
    (batch,) = batches(Env, lambda obs: chosen, frames_per_batch=2, total_frames=2, num_workers=0)
    assert batch["action"].tolist() == [[[3, 0.25]]] * 2
    assert batch["reward"].tolist() == [[1.25]] * 2


async def answers_later(obs: Any) -> np.ndarray:
    return zeros(obs)


def answers_one_by_one(obs: Any) -> Any:
    yield from zeros(obs)


class AnswersLater:
    async def __call__(self, obs: Any) -> np.ndarray:
        return zeros(obs)


@pytest.mark.parametrize("policy", [answers_later, answers_one_by_one, AnswersLater()])
@pytest.mark.parametrize("mode", ["sync", "multi_sync"])
def test_a_policy_that_returns_no_actions_when_called_is_refused(policy: Any, mode: str) -> None:
    with pytest.raises(TypeError, match="takes what returns actions.*(async|generator).*give a plain function"):
        shoal.Collector(CARTPOLE, policy, frames_per_batch=4, mode=mode)


@pytest.mark.parametrize("as_module", [False, True])
@pytest.mark.parametrize("more", [{}, {"mode": "multi_sync", "num_collectors": 4, "num_workers": 0}])
@pytest.mark.parametrize(
    ("space", "value", "bounds"),
    [
        (spaces.MultiBinary(2), 300, "int8.* give -128 to 127"),
        (spaces.Box(0, 255, (2,), np.uint8), -1, "uint8.* give 0 to 255"),
        (spaces.Box(-9, 9, (2,), np.int32), 2**40, "int32.* give -2147483648 to 2147483647"),
    ],
)
def test_integers_that_the_actions_cannot_hold_are_refused(
    space: Any, value: int, bounds: str, more: dict[str, Any], as_module: bool
) -> None:
    """They wrapped around."""

    class Env(CounterEnv):
        action_space = space

        def step(self, action: Any) -> Any:
            return super().step(0)

    def act(obs: Any) -> np.ndarray:
        chosen = np.ones((len(obs), 2), np.int64)
        chosen[2, 1] = value if obs[2, 1] == 1 else 1
        return chosen

    policy: Any = act
    if as_module:
        torch = pytest.importorskip("torch")

        class Module(torch.nn.Module):
            def forward(self, obs: Any) -> Any:
                return torch.from_numpy(act(obs))

        policy = Module()
    with shoal.Collector(Env, policy, num_envs=4, frames_per_batch=4, output="numpy", **more) as collector:
        batch = next(collector)
        assert batch["action"].dtype == space.dtype and (batch["action"] == 1).all()
        with pytest.raises(ValueError, match=f"gave action {value} for environment 2, which {bounds}"):
            next(collector)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            lambda obs: np.zeros((4, 2), np.float32),
            r"gave action of shape \(4, 2\) and float32.*return the actions themselves",
        ),
        (lambda obs: np.zeros((4, 1), np.int64), r"gave action of shape \(4, 1\)"),
        (lambda obs: np.zeros(4), r"gave action of shape \(4,\) and float64"),
        (lambda obs: (zeros(obs), np.zeros(3)), r"gave log_prob of shape \(3,\)"),
        (lambda obs: (zeros(obs),) * 4, "a policy returns actions, or"),
        (lambda obs: {"actions": zeros(obs)}, "the policy gave no action"),
        (lambda obs: None, "no actions but None: return an array.*has it a return"),
        (lambda obs: "0123", "no actions but 'str': return an array"),
        (lambda obs: 0, "no actions but 'int': return an array"),
        (lambda obs: np.int64(0), r"gave action of shape \(\) .*return an action for each of the 4 environments"),
        (lambda obs: (action for action in zeros(obs)), "no actions but 'generator': .* without async and yield"),
        (lambda obs: answers_later(obs), "no actions but 'coroutine': .* without async and yield"),
        (lambda obs: {"action": zeros(obs), "entropy": zeros(obs)}, r"the policy gave \['entropy'\]"),
    ],
)
def test_a_policy_that_answers_wrongly_is_told_so(policy: Any, message: str) -> None:
    with shoal.Collector(CARTPOLE, policy, num_envs=4, frames_per_batch=8) as collector:
        with pytest.raises((TypeError, ValueError), match=message):
            next(collector)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: zeros, r"policy\(obs\).*<lambda>\(\) is not called so \(too many.*give what it returns"),
        (lambda observation_space, action_space: zeros, r"is not called so \(missing a required.*give what it returns"),
        (
            lambda width: zeros,
            r"gave no actions but 'function', which can be called itself: .* give policy= what it returns",
        ),
        (Remembers, r"got <class '.*Remembers'>, a class: give what is made of it, Remembers\(…\)"),
    ],
)
@pytest.mark.parametrize("mode", ["sync", "multi_sync"])
def test_what_makes_a_policy_is_told_from_one(make: Any, message: str, mode: str) -> None:
    with pytest.raises(TypeError, match=message):
        next(shoal.Collector(CARTPOLE, make, num_envs=2, frames_per_batch=4, mode=mode))


def test_a_policy_that_carries_a_state_is_asked_with_it() -> None:
    def policy(obs: np.ndarray) -> np.ndarray:
        return zeros(obs)

    policy.initial_state = np.zeros  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"policy\(obs, state, is_first\), .* is not called so \(too many positional"):
        shoal.Collector(CounterEnv, policy, frames_per_batch=4)


def test_wrong_actions_of_a_box_are_told_what_the_box_is() -> None:
    def one(obs: np.ndarray) -> np.ndarray:
        return space.sample()

    space = SpaceEnv("box", "box_bounds").action_space
    env = functools.partial(SpaceEnv, "box", "box_bounds")
    with shoal.Collector(env, one, num_envs=2, frames_per_batch=4) as collector:
        with pytest.raises(ValueError) as refused:
            next(collector)
    expected = f"return an action for each of the 2 environments, each of the action space's shape {space.shape}"
    assert str(refused.value).endswith(expected)


def test_a_model_service_is_a_policy_and_its_versions_are_those_of_the_rows() -> None:
    with shoal.ModelService({"policy": Linear}, context="thread") as service:
        with shoal.Collector(CARTPOLE, service, num_envs=4, frames_per_batch=16, seed=1) as collector:
            first = next(collector)
            assert not first["action"].any() and (first["log_prob"] == -0.5).all()
            assert (first["policy_version"] == 1).all()
            assert collector.update_weights({"weight": np.array([0, 0, 1.0, 0])}) == 2
            second = next(collector)
            assert (second["policy_version"] == 2).all() and not second["staleness"].any()
            assert np.array_equal(second["action"], second["obs"][..., 2] > 0)
        with shoal.Collector(CARTPOLE, service.model("policy"), num_envs=2, frames_per_batch=4) as asked:
            assert (next(asked)["policy_version"] == 2).all()
            with pytest.raises(TypeError, match="the service's own update"):
                asked.update_weights({})


def test_a_recurrent_policy_begins_anew_with_every_episode() -> None:
    with shoal.Collector(CounterEnv, Remembers(), num_envs=2, frames_per_batch=8, num_workers=0) as collector:
        first, second = next(collector), next(collector)
    assert first["action"][:, 0].tolist() == [0, 1, 2, 0] and second["action"][:, 0].tolist() == [1, 2, 0, 1]
    assert first["state"].tolist() == [0, 0] and second["state"].tolist() == [0, 0]
    assert first["next_state"].tolist() == [0, 0] and second["next_state"].tolist() == [1, 1]
    with pytest.raises(TypeError, match=r"missing a required argument: 'state'.* one with an initial_state\(\) gets"):
        shoal.Collector(CARTPOLE, Remembers().__call__, frames_per_batch=1)


class InPlace:
    """Counts its steps in a state that it changes in place; its value is what the state was."""

    def initial_state(self, num_envs: int) -> dict[str, np.ndarray]:
        return {"steps": np.zeros(num_envs, np.float32)}

    def __call__(self, obs: Any, state: Any, is_first: np.ndarray) -> dict[str, Any]:
        steps = state["steps"]
        steps[is_first] = 0
        before = steps.copy()
        steps += 1
        return {"action": zeros(obs), "value": before, "state": state}


class Recalls:
    """Its state is the observation before, as it was given; its value is how much came since."""

    def initial_state(self, num_envs: int) -> np.ndarray:
        return np.zeros((num_envs, 2))

    def __call__(self, obs: np.ndarray, state: np.ndarray, is_first: np.ndarray) -> dict[str, Any]:
        return {"action": zeros(obs), "value": (obs - state)[:, 1].astype(np.float32), "state": obs}


STATES: list[dict[str, Any]] = [
    {},
    {"policy_batch": 2},
    {"mode": "multi_sync", "num_collectors": 1},
    {"mode": "multi_sync", "num_collectors": 2},
    {"mode": "multi_async", "num_collectors": 1},
]


@pytest.mark.parametrize("more", STATES)
def test_a_state_that_is_changed_in_place_is_copied_into_batches(more: dict[str, Any]) -> None:
    """`state` was that at the end of the batch, and `next_state` of older batches changed."""
    with shoal.Collector(
        functools.partial(CounterEnv, 100), InPlace(), num_envs=4, frames_per_batch=8, num_workers=0, **more
    ) as collector:
        found = []
        for _ in range(3):
            found.append(next(collector))
        begun = [(batch["state"]["steps"].tolist(), batch["next_state"]["steps"].tolist()) for batch in found]
        assert begun == [([2.0 * i] * 4, [2.0 * i + 2] * 4) for i in range(3)]
        found[-1]["next_state"]["steps"][:] = 77
        found[-1]["state"]["steps"][:] = 77
        batch = next(collector)
        assert batch["value"][:, 0].tolist() == [6, 7] and batch["state"]["steps"].tolist() == [6] * 4


@pytest.mark.parametrize("more", STATES)
def test_what_is_written_into_a_batch_is_not_what_a_policy_remembers(more: dict[str, Any]) -> None:
    with shoal.Collector(
        functools.partial(CounterEnv, 100), Recalls(), num_envs=4, frames_per_batch=8, num_workers=0, **more
    ) as collector:
        for i in range(3):
            batch = next(collector)
            assert batch["value"].tolist() == [[min(i, 1.0)] * 4, [1.0] * 4]
            for name in ("obs", "state", "next_state"):
                batch[name][:] = 77


def test_a_module_may_change_its_state_in_place() -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def initial_state(self, num_envs: int) -> Any:
            return torch.zeros(num_envs)

        def forward(self, obs: Any, state: Any, is_first: Any) -> Any:
            state[is_first] = 0
            return {"action": torch.zeros(len(obs), dtype=torch.int64), "state": state.add_(1)}

    with shoal.Collector(
        functools.partial(CounterEnv, 100), Net(), num_envs=2, frames_per_batch=4, num_workers=0
    ) as collector:
        found = [next(collector) for _ in range(3)]
        saved = collector.state_dict()
        expected = next(collector)
        assert [batch["next_state"].tolist() for batch in found] == [[2.0] * 2, [4.0] * 2, [6.0] * 2]
        assert [batch["state"].tolist() for batch in found] == [[0.0] * 2, [2.0] * 2, [4.0] * 2]
        for _ in range(2):
            collector.load_state_dict(saved)
            assert next(collector)["state"].tolist() == expected["state"].tolist() == [6.0] * 2


class Keeps:
    """Keeps what it is given, and writes into it. Its value is the difference to what it was given before."""

    def __init__(self) -> None:
        self.before: Any = None

    def __call__(self, obs: np.ndarray) -> dict[str, Any]:
        obs += 10
        before, self.before = obs if self.before is None else self.before, obs
        return {"action": zeros(obs), "value": (obs - before)[:, 1].astype(np.float32)}


@pytest.mark.parametrize("as_module", [False, True])
def test_what_a_policy_does_with_its_observations_is_the_same_for_any_number_of_collectors(as_module: bool) -> None:
    """With several collectors what it had kept changed under it, and what it wrote was not in the batch."""

    def policy() -> Any:
        keeps = Keeps()
        if not as_module:
            return keeps
        torch = pytest.importorskip("torch")

        class Net(torch.nn.Module):
            def forward(self, obs: Any) -> Any:
                return {name: torch.from_numpy(value) for name, value in keeps(obs.numpy()).items()}

        return Net()

    collect = functools.partial(
        batches, functools.partial(CounterEnv, 100), num_envs=4, frames_per_batch=8, total_frames=24, num_workers=0,
        output="numpy", seed=1,
    )  # fmt: skip
    expected = collect(policy())
    assert expected[0]["obs"][:, 0].tolist() == [[11, 10], [11, 11]]
    assert [batch["value"][:, 0].tolist() for batch in expected] == [[0, 1], [1, 1], [1, 1]]
    for collectors in (1, 2, 4):
        assert_same(collect(policy(), mode="multi_sync", num_collectors=collectors), expected)


# --- weights


def test_updates_of_a_network_take_its_weights_and_are_counted() -> None:
    with shoal.Collector(CARTPOLE, "sb3", num_envs=4, frames_per_batch=16, seed=1) as collector:
        first = next(collector)
        weights = collector.state_dict()["source"]["groups"][0]["actor"]["weights"]
        weights["critic.4.bias"] = weights["critic.4.bias"] + np.float32(100)
        assert collector.update_weights(weights) == 1 == collector.policy_version
        second = next(collector)
        assert (first["policy_version"] == 0).all() and (second["policy_version"] == 1).all()
        assert first["value"].max() < 50 < second["value"].min()
        with pytest.raises(ValueError, match=r"there is no array actor\.0\.weight"):
            collector.update_weights({"critic.4.bias": weights["critic.4.bias"]})
        assert collector.policy_version == 1
        with pytest.raises(TypeError, match="takes its weights"):
            collector.update_weights()


def test_updates_of_a_module_are_counted_or_loaded() -> None:
    torch = pytest.importorskip("torch")
    policy, other = torch_policy(1), torch_policy(2)
    with shoal.Collector(CARTPOLE, policy, num_envs=2, frames_per_batch=4) as collector:
        assert collector.update_weights() == 1
        assert collector.update_weights(other.state_dict()) == 2
        assert torch.equal(policy.body.weight, other.body.weight)
        assert (next(collector)["policy_version"] == 2).all()
    with shoal.Collector(CARTPOLE, zeros, frames_per_batch=4) as plain:
        assert plain.update_weights() == 1
        with pytest.raises(TypeError, match="no load_state_dict"):
            plain.update_weights({})
