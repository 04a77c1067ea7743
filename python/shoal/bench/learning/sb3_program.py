"""One seed by Stable-Baselines3 with the settings of one of Shoal's presets, as a process of its own, run by path: it needs
Stable-Baselines3 and Gymnasium, and nothing of Shoal's. Its argument, a task in JSON, is what `suite` writes; it ends with a line of JSON.

What Stable-Baselines3 has not is named, and then nothing is trained: a comparison with other settings would be none. `missing()` says so
where Stable-Baselines3 is not installed, too.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

EPISODES = 100
EVALUATION_SEED, APART = 1_000_000, 1_000  # as in program.py
ALGORITHMS = ("ppo", "a2c", "dqn", "sac")
# What Shoal's options must be, since Stable-Baselines3 has no such option.
ALWAYS: dict[str, Any] = {
    "double_dqn": False,
    "dueling": False,
    "prioritized": False,
    "td_loss": "huber",
    "bootstrap_truncated": True,
    "pessimistic_value_clip": False,
    "recompute_advantages": False,
    "normalize_returns": False,
    "shared_hidden": False,
    "sign_reward": False,
    "value_gain": 1.0,
    "precision": "float32",
    "pixel_mean": 0.0,
    "entropy_coef_schedule": "constant",
}
OF_ALGORITHM: dict[str, dict[str, Any]] = {
    "ppo": {"optimizer": "adam"},
    "dqn": {"optimizer": "adam", "orthogonal_init": False},
    "sac": {"optimizer": "adam", "orthogonal_init": False, "max_grad_norm": 0.0},
}


def missing(settings: dict[str, Any]) -> list[str]:
    """Options whose values Stable-Baselines3 has not."""
    if settings["algorithm"] not in ALGORITHMS:
        return [f"algorithm={settings['algorithm']}"]
    always = ALWAYS | OF_ALGORITHM.get(settings["algorithm"], {})
    unlike = [f"{name}={settings[name]}" for name, value in always.items() if settings.get(name, value) != value]
    if settings.get("clip_range_value") is None:
        unlike = [name for name in unlike if not name.startswith("pessimistic_value_clip")]
    if settings["algorithm"] in ("dqn", "sac"):
        unlike += [f"{name}=true" for name in ("normalize_obs", "normalize_reward") if settings[name]]
        if settings["num_envs"] > 1 and settings["train_freq"] % settings["num_envs"]:
            unlike.append("train_freq that num_envs does not divide")
    elif settings["advantage_normalization"] == "rollout":
        unlike.append("advantage_normalization=rollout")
    return unlike


def scheduled(settings: dict[str, Any], name: str) -> Any:
    value = settings[name]
    if settings.get(f"{name}_schedule") == "linear":
        return lambda remaining: remaining * value
    return value


def optimizer(settings: dict[str, Any]) -> dict[str, Any]:
    import torch
    from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

    if settings["optimizer"] == "adam":
        betas = (settings["adam_beta1"], settings["adam_beta2"])
        return {"optimizer_class": torch.optim.Adam, "optimizer_kwargs": {"eps": settings["adam_eps"], "betas": betas}}
    kwargs = {"alpha": settings["rmsprop_alpha"], "eps": settings["rmsprop_eps"]}
    kind = {"rmsprop": torch.optim.RMSprop, "rmsprop_tf": RMSpropTFLike}[settings["optimizer"]]
    return {"optimizer_class": kind, "optimizer_kwargs": kwargs}


def learner(settings: dict[str, Any], envs: Any) -> BaseAlgorithm:
    import torch
    from stable_baselines3 import A2C, DQN, PPO, SAC

    hidden = {"pi": settings["policy_hidden"], "vf": settings.get("value_hidden", [])}
    activation = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[settings["activation"]]
    common = {
        "gamma": settings["gamma"],
        "learning_rate": scheduled(settings, "learning_rate"),
        "seed": settings["seed"],
        "device": "cpu",
    }
    algorithm = settings["algorithm"]
    if algorithm in ("ppo", "a2c"):
        common |= {
            "n_steps": settings["num_steps"],
            "gae_lambda": settings["gae_lambda"],
            "ent_coef": settings["entropy_coef"],
            "vf_coef": settings["value_coef"],
            "max_grad_norm": settings["max_grad_norm"] or 1e30,
            "normalize_advantage": settings["advantage_normalization"] != "none",
        }
        policy = {
            "net_arch": hidden,
            "activation_fn": activation,
            "ortho_init": settings["orthogonal_init"],
            "log_std_init": settings["log_std_init"],
        }
    else:
        common |= {
            "buffer_size": settings["buffer_size"],
            "learning_starts": settings["learning_starts"],
            "batch_size": settings["batch_size"],
            "tau": settings["tau"],
            "train_freq": settings["train_freq"] // settings["num_envs"],  # of all environments together
            "gradient_steps": settings["gradient_steps"],
            "n_steps": settings["n_step"],
        }
        policy = {"activation_fn": activation}
    policy |= optimizer(settings)
    if algorithm == "ppo":
        return PPO(
            "MlpPolicy",
            envs,
            batch_size=settings["batch_size"],
            n_epochs=settings["epochs"],
            clip_range=scheduled(settings, "clip_range"),
            clip_range_vf=settings["clip_range_value"],
            target_kl=settings["target_kl"],
            policy_kwargs=policy,
            **common,
        )
    if algorithm == "a2c":
        return A2C("MlpPolicy", envs, use_rms_prop=False, policy_kwargs=policy, **common)
    if algorithm == "dqn":
        return DQN(
            "MlpPolicy",
            envs,
            target_update_interval=settings["target_update_interval"],
            exploration_fraction=settings["exploration_fraction"],
            exploration_initial_eps=settings["exploration_initial"],
            exploration_final_eps=settings["exploration_final"],
            max_grad_norm=settings["max_grad_norm"] or 1e30,
            policy_kwargs=policy | {"net_arch": settings["policy_hidden"]},
            **common,
        )
    return SAC(
        "MlpPolicy",
        envs,
        ent_coef=f"auto_{settings['entropy_coef']}" if settings["automatic_entropy"] else settings["entropy_coef"],
        target_entropy="auto" if settings["target_entropy"] is None else settings["target_entropy"],
        policy_kwargs=policy | {"net_arch": {"pi": hidden["pi"], "qf": hidden["vf"]}},
        **common,
    )


def train(task: dict[str, Any]) -> dict[str, Any]:
    settings = task["settings"] | {"seed": task["seed"]}
    if unlike := missing(settings):
        return {"missing": unlike}

    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    begin = time.perf_counter()
    envs: Any = make_vec_env(task["env"], n_envs=settings["num_envs"], seed=task["seed"])
    if settings["normalize_obs"] or settings["normalize_reward"]:
        envs = VecNormalize(
            envs,
            norm_obs=settings["normalize_obs"],
            norm_reward=settings["normalize_reward"],
            clip_obs=settings["clip_obs"],
            clip_reward=settings["clip_reward"],
            gamma=settings["gamma"],
        )
    model = learner(settings, envs)
    model.learn(task["steps"])
    seconds = time.perf_counter() - begin
    if isinstance(envs, VecNormalize):
        envs.training = envs.norm_reward = False
    tests: Any = make_vec_env(task["env"], n_envs=10, seed=EVALUATION_SEED + APART * task["seed"])
    if isinstance(envs, VecNormalize):
        tests = VecNormalize(tests, training=False, norm_obs=settings["normalize_obs"], norm_reward=False)
        tests.obs_rms, tests.clip_obs = envs.obs_rms, envs.clip_obs
    mean, _ = evaluate_policy(model, tests, n_eval_episodes=EPISODES, deterministic=True)
    ended = [episode["r"] for episode in model.ep_info_buffer or ()]
    last = [[model.num_timesteps, sum(ended) / len(ended)]] if ended else []
    return {
        "steps": model.num_timesteps,
        "seconds": seconds,
        "return": float(mean),
        "training": last,
        "evaluations": [],
    }


if __name__ == "__main__":
    import gymnasium

    gymnasium.logger.min_level = gymnasium.logger.ERROR
    print(json.dumps(train(json.loads(sys.argv[1]))))
