"""The optimiser of rl-baselines3-zoo's entries is the one that Stable-Baselines3 makes of them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from shoal.learn import zoo
from shoal.runs import preset

pytest.importorskip("yaml")

LIKE_TF = "optimizer_class=RMSpropTFLike"
# File, lines of an entry, and of Stable-Baselines3's optimiser the kind and eps.
ENTRIES = [
    ("a2c", "gamma: 0.9", "rmsprop", 1e-5),
    ("a2c", "rms_prop_eps: 1e-3", "rmsprop", 1e-3),
    ("a2c", "use_rms_prop: false", "adam", 1e-5),
    ("a2c", "use_rms_prop: false\nrms_prop_eps: 1e-3", "adam", 1e-5),
    (
        "a2c",
        f'use_rms_prop: true\npolicy_kwargs: "dict({LIKE_TF}, optimizer_kwargs=dict(eps=1e-5))"',
        "rmsprop_tf",
        1e-5,
    ),
    (
        "a2c",
        f'use_rms_prop: false\npolicy_kwargs: "dict({LIKE_TF}, optimizer_kwargs=dict(eps=1e-5))"',
        "rmsprop_tf",
        1e-5,
    ),
    ("a2c", 'use_rms_prop: true\npolicy_kwargs: "dict(optimizer_class=th.optim.Adam)"', "adam", 1e-5),
    ("a2c", 'use_rms_prop: false\npolicy_kwargs: "dict(optimizer_kwargs=dict(eps=1e-3))"', "adam", 1e-3),
    ("a2c", 'use_rms_prop: false\npolicy_kwargs: "dict(optimizer_kwargs=dict(weight_decay=0))"', "adam", 1e-8),
    ("a2c", 'policy_kwargs: "dict(optimizer_kwargs=dict(eps=1e-3))"', "rmsprop", 1e-5),
    ("a2c", f'policy_kwargs: "dict({LIKE_TF})"', "rmsprop_tf", 1e-8),
    ("a2c", 'policy_kwargs: "dict(optimizer_class=th.optim.RMSprop)"', "rmsprop", 1e-8),
    (
        "a2c",
        f'rms_prop_eps: 1e-3\npolicy_kwargs: "dict({LIKE_TF}, optimizer_kwargs=dict(eps=1e-5))"',
        "rmsprop_tf",
        1e-5,
    ),
    ("ppo", 'policy_kwargs: "dict(optimizer_class=th.optim.RMSprop)"', "rmsprop", 1e-8),
    ("ppo", 'policy_kwargs: "dict(optimizer_class=th.optim.Adam)"', "adam", 1e-5),
    ("ppo", 'policy_kwargs: "dict(optimizer_kwargs=dict(betas=(0.8, 0.9)))"', "adam", 1e-8),
    ("dqn", 'policy_kwargs: "dict(optimizer_class=th.optim.RMSprop)"', "rmsprop", 1e-8),
    ("dqn", 'policy_kwargs: "dict(optimizer_kwargs=dict(eps=1e-3))"', "adam", 1e-3),
]


def entry(folder: Path, name: str, text: str) -> zoo.Entry:
    path = folder / f"{name}.yml"
    path.write_text("Mine-v0:\n" + textwrap.indent(text, "  "))
    return zoo.read(path, "Mine-v0")


def options(folder: Path, name: str, text: str) -> dict[str, Any]:
    """Those that a run of the entry has."""
    found = entry(folder, name, text)
    return preset(found.preset, found.algorithm) | found.arguments


@pytest.mark.parametrize(("name", "text", "kind", "eps"), ENTRIES)
def test_the_kind_and_eps_are_those_of_stable_baselines3(
    tmp_path: Path, name: str, text: str, kind: str, eps: float
) -> None:
    found = options(tmp_path, name, text)
    assert (found["optimizer"], found["adam_eps" if kind == "adam" else "rmsprop_eps"]) == (kind, eps)


@pytest.mark.parametrize(("name", "text", "kind", "eps"), ENTRIES)
def test_stable_baselines3_makes_that_of_the_entry(name: str, text: str, kind: str, eps: float) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    torch = pytest.importorskip("torch")
    import yaml
    from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

    arguments = yaml.safe_load(text)
    if "rms_prop_eps" in arguments:
        arguments["rms_prop_eps"] = float(arguments["rms_prop_eps"])
    if "policy_kwargs" in arguments:  # rl_zoo3 evaluates it so
        arguments["policy_kwargs"] = eval(arguments["policy_kwargs"], {"th": torch, "RMSpropTFLike": RMSpropTFLike})
    if name == "dqn":
        arguments["buffer_size"] = 100
    optimizer = getattr(sb3, name.upper())("MlpPolicy", "CartPole-v1", **arguments).policy.optimizer
    kinds = {torch.optim.Adam: "adam", torch.optim.RMSprop: "rmsprop", RMSpropTFLike: "rmsprop_tf"}
    assert (kinds[type(optimizer)], optimizer.param_groups[0]["eps"]) == (kind, eps)


def test_what_stable_baselines3_does_not_look_at_is_a_note(tmp_path: Path) -> None:
    (note,) = entry(tmp_path, "a2c", 'policy_kwargs: "dict(optimizer_kwargs=dict(eps=1e-3))"').notes
    assert note.startswith("policy_kwargs: optimizer_kwargs: {'eps': 0.001} (they are of an optimizer_class")
    (note,) = entry(tmp_path, "a2c", "use_rms_prop: false\nrms_prop_eps: 1e-7").notes
    assert note.startswith("rms_prop_eps: 1e-07 (it is of use_rms_prop without")
    assert not entry(tmp_path, "a2c", "rms_prop_eps: 1e-7").notes


def test_arguments_of_the_optimiser_are_its_own(tmp_path: Path) -> None:
    kwargs = f'policy_kwargs: "dict({LIKE_TF}, optimizer_kwargs=dict(alpha=0.9, eps=1e-6))"'
    assert options(tmp_path, "a2c", kwargs)["rmsprop_alpha"] == 0.9
    for said, refused in (
        ("optimizer_kwargs=dict(momentum=0.5, weight_decay=0)", "policy_kwargs: optimizer_kwargs: momentum: 0.5"),
        ("optimizer_kwargs=dict(alpha=0.9)", "policy_kwargs: optimizer_kwargs: alpha: 0.9"),
        (f"{LIKE_TF}, optimizer_kwargs=dict(betas=(0.9, 0.9))", "policy_kwargs: optimizer_kwargs: betas: "),
        ("optimizer_kwargs=dict(weight_decay=0.1)", "policy_kwargs: optimizer_kwargs: weight_decay: 0.1"),
        (
            "optimizer_class=th.optim.SGD",
            "policy_kwargs: optimizer_class: th.optim.SGD .there is Adam, RMSprop, RMSpropTFLike",
        ),
        ("optimizer_kwargs=3", "policy_kwargs: optimizer_kwargs is a dict, got 3"),
    ):
        with pytest.raises(ValueError, match=f"Shoal's ppo has not: {refused}"):
            entry(tmp_path, "ppo", f'policy_kwargs: "dict({said})"')
