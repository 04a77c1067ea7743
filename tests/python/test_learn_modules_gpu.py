"""Networks of one's own that compute on a CUDA device."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import learn_envs  # noqa: E402
import learn_modules  # noqa: E402
import shoal  # noqa: E402
from learn_module_runs import PPO  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device, or a torch that was built without"),
]


@pytest.mark.parametrize("algorithm", ["ppo", "appo"])
def test_cartpole_is_learned_on_a_device(tmp_path: Path, algorithm: str) -> None:
    given = {"policy": learn_modules.ActorCritic, "device": "cuda", "target_return": 475}
    result = shoal.learn.train("CartPole-v1", algorithm, seed=1, num_workers=1, run_dir=tmp_path, **given)
    assert result.ending == "target"
    policy = shoal.learn.load_policy(tmp_path, device="cuda")
    assert next(policy.module.parameters()).is_cuda
    assert shoal.learn.evaluate(tmp_path, episodes=5, device="cuda").mean_return >= 450


def test_a_stopped_run_goes_on_there(tmp_path: Path) -> None:
    outer = torch.cuda.get_rng_state()
    for name, pauses in (("whole", [None]), ("parts", [450, None])):
        for number, pause in enumerate(pauses):
            more = {} if number else {"policy": learn_modules.Dropping, "device": "cuda", **PPO}
            more |= {"pause_at_step": pause, "resume": number > 0}
            shoal.learn.train(learn_envs.Drift, run_dir=tmp_path / name, num_workers=0, **more)
    policies = [(tmp_path / name / "checkpoints/last/policy.safetensors").read_bytes() for name in ("whole", "parts")]
    assert policies[0] == policies[1]
    assert torch.equal(torch.cuda.get_rng_state(), outer)
