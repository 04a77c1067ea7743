"""What others publish of the same tasks: their figures, not measured here. Of each: what kind of mean it is, after how many steps, of
how many runs, and what its spread is a spread of; figures of other kinds are not comparable, however near."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["REFERENCES", "Reference"]


@dataclass(frozen=True)
class Reference:
    """A published figure.

    Attributes:
        algorithm, task: whose, and of what; the task's version where it is another than ours is in `kind`.
        source: who publishes it.
        mean, spread: returns; None: no spread is published.
        steps: of the environment.
        kind: of runs, of means and of spreads.
    """

    algorithm: str
    task: str
    source: str
    mean: float
    spread: float | None
    steps: int
    kind: str

    def said(self) -> str:
        spread = "" if self.spread is None else f" ± {self.spread:g}"
        steps = f"{self.steps / 1e6:g} M" if self.steps >= 1_000_000 else f"{self.steps / 1e3:g} k"
        return f"{self.source}: {self.mean:g}{spread} after {steps} ({self.kind})"


ZOO = "rl-baselines3-zoo"
ONE_RUN = "one run, ± over episodes"
CLEANRL = "3 seeds, the last 100 training episodes"
SLM = "4 sessions, training average"
TIANSHOU = "v3, 10 seeds, most of the mean test curve"
TIANSHOU_PPO = f"{TIANSHOU} in the first 1 M steps of 3 M"

REFERENCES = [
    Reference("ppo", "CartPole-v1", ZOO, 500, 0, 100_000, ONE_RUN),
    Reference("ppo", "Pong-v5", "CleanRL", 20.4, 0.2, 10_000_000, f"without sticky actions, {CLEANRL}"),
    Reference("ppo", "Pong-v5", ZOO, 21.0, None, 10_000_000, "without sticky actions, one run"),
    Reference("ppo", "Breakout-v5", "CleanRL", 415, 28, 10_000_000, f"without sticky actions, {CLEANRL}"),
    Reference("ppo", "Breakout-v5", ZOO, 398, None, 10_000_000, "without sticky actions, one run"),
    Reference("ppo", "HalfCheetah-v5", "tianshou", 5784, 1244, 1_000_000, TIANSHOU_PPO),
    Reference("ppo", "HalfCheetah-v5", ZOO, 5819, None, 1_000_000, "v3, one run"),
    Reference("ppo", "HalfCheetah-v5", "CleanRL", 1443, 46, 1_000_000, f"v4, {CLEANRL}"),
    Reference("ppo", "Hopper-v5", "tianshou", 2609, 701, 1_000_000, TIANSHOU_PPO),
    Reference("ppo", "Hopper-v5", ZOO, 2410, None, 1_000_000, "v3, one run"),
    Reference("ppo", "Hopper-v5", "CleanRL", 2383, 272, 1_000_000, f"v4, {CLEANRL}"),
    Reference("ppo", "Walker2d-v5", "tianshou", 3589, 757, 1_000_000, TIANSHOU_PPO),
    Reference("ppo", "Walker2d-v5", ZOO, 3479, None, 1_000_000, "v3, one run"),
    Reference("ppo", "Walker2d-v5", "CleanRL", 2288, 572, 1_000_000, f"v4, {CLEANRL}"),
    Reference("dqn", "CartPole-v1", ZOO, 500, 0, 50_000, ONE_RUN),
    Reference("dqn", "CartPole-v1", "CleanRL", 488.7, 16, 500_000, CLEANRL),
    Reference("dqn", "CartPole-v1", "SLM-Lab", 452, None, 200_000, f"double, prioritised; {SLM}"),
    Reference("dqn", "LunarLander-v3", ZOO, 154, 79, 100_000, f"v2, {ONE_RUN}"),
    Reference("dqn", "LunarLander-v3", "SLM-Lab", 195, None, 300_000, SLM),
    Reference("dqn", "LunarLander-v3", "SLM-Lab", 266, None, 300_000, f"double, prioritised; {SLM}"),
    Reference("sac", "Pendulum-v1", ZOO, -157, 89, 20_000, ONE_RUN),
    Reference("sac", "Pendulum-v1", "SLM-Lab", -151, None, 20_000, SLM),
    Reference("sac", "HalfCheetah-v5", "tianshou", 12139, 1049, 1_000_000, TIANSHOU),
    Reference("sac", "HalfCheetah-v5", "CleanRL", 9635, 1423, 1_000_000, f"v4, {CLEANRL}"),
    Reference("sac", "HalfCheetah-v5", ZOO, 9535, None, 1_000_000, "v3, one run"),
    Reference("sac", "Hopper-v5", "tianshou", 3542, 52, 1_000_000, TIANSHOU),
    Reference("sac", "Hopper-v5", "CleanRL", 2310, 343, 1_000_000, f"v4, {CLEANRL}"),
    Reference("sac", "Hopper-v5", ZOO, 2326, None, 1_000_000, "v3, one run"),
    Reference("recurrent_ppo", "CartPoleNoVel-v1", ZOO, 500, 0, 100_000, ONE_RUN),
]
