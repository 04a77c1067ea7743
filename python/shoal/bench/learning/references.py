"""What others publish of the same tasks: their figures, not measured here. Of each: what kind of mean it is, after how many steps, of
how many runs, and what its spread is a spread of; figures of other kinds are not comparable, however near.

They stand in rl-baselines3-zoo's benchmark.md, CleanRL's documents of each algorithm, SLM-Lab's BENCHMARKS.md, tianshou's
examples/mujoco/README.md, and the documents of Sample Factory and of rl_games."""

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
BEST_LAMBDA = f"the best of three λ, {SLM}"
TIANSHOU = "v3, 10 seeds, most of the mean test curve"
TIANSHOU_PPO = f"{TIANSHOU} in the first 1 M steps of 3 M"
APPO = "v4, its APPO"
BEST = "one seed, its best"
STICKY = "with sticky actions"
NOT_STICKY = "without sticky actions"

# Of a task, first those that are like ours: of its version, of about as many steps.
REFERENCES = [
    Reference("ppo", "CartPole-v1", ZOO, 500, 0, 100_000, ONE_RUN),
    Reference("ppo", "CartPole-v1", "CleanRL", 490, 6.1, 500_000, CLEANRL),
    Reference("ppo", "CartPole-v1", "SLM-Lab", 498.9, None, 200_000, SLM),
    Reference("ppo", "Acrobot-v1", ZOO, -73.5, 18.2, 1_000_000, ONE_RUN),
    Reference("ppo", "Acrobot-v1", "CleanRL", -86.4, 1.3, 500_000, CLEANRL),
    Reference("ppo", "Acrobot-v1", "SLM-Lab", -81.3, None, 300_000, SLM),
    Reference("ppo", "Pendulum-v1", ZOO, -172.2, 104.2, 100_000, ONE_RUN),
    Reference("ppo", "Pendulum-v1", "SLM-Lab", -174.9, None, 300_000, SLM),
    Reference("ppo", "MountainCar-v0", ZOO, -110.4, 19.5, 1_000_000, ONE_RUN),
    Reference("ppo", "MountainCar-v0", "CleanRL", -200, 0, 500_000, CLEANRL),
    Reference("ppo", "MountainCarContinuous-v0", ZOO, 88.3, 2.6, 20_000, ONE_RUN),
    Reference("ppo", "LunarLander-v3", ZOO, 242.1, 31.8, 1_000_000, f"v2, {ONE_RUN}"),
    Reference("ppo", "LunarLander-v3", "SLM-Lab", 183.3, None, 300_000, SLM),
    Reference("ppo", "Pong-v5", "SLM-Lab", 16.7, None, 10_000_000, f"{STICKY}, {BEST_LAMBDA}"),
    Reference("ppo", "Pong-v5", "CleanRL", 20.4, 0.2, 10_000_000, f"{NOT_STICKY}, {CLEANRL}"),
    Reference("ppo", "Pong-v5", "CleanRL", 20.45, 0.09, 10_000_000, f"EnvPool, {NOT_STICKY}, {CLEANRL}"),
    Reference("ppo", "Pong-v5", "CleanRL", 20.8, 0.2, 10_000_000, f"JAX, {NOT_STICKY}, {CLEANRL}"),
    Reference("ppo", "Pong-v5", ZOO, 20.99, 0.1, 10_000_000, f"{NOT_STICKY}, {ONE_RUN}"),
    Reference("ppo", "Breakout-v5", "SLM-Lab", 326, None, 10_000_000, f"{STICKY}, {BEST_LAMBDA}"),
    Reference("ppo", "Breakout-v5", "CleanRL", 415, 28, 10_000_000, f"{NOT_STICKY}, {CLEANRL}"),
    Reference("ppo", "Breakout-v5", "CleanRL", 211, 152, 10_000_000, f"EnvPool, {NOT_STICKY}, {CLEANRL}"),
    Reference("ppo", "Breakout-v5", "CleanRL", 421, 17, 10_000_000, f"JAX, {NOT_STICKY}, {CLEANRL}"),
    Reference("ppo", "Breakout-v5", ZOO, 398, 33, 10_000_000, f"{NOT_STICKY}, {ONE_RUN}"),
    Reference("ppo", "Breakout-v5", "OpenAI Baselines", 406.6, 31.6, 10_000_000, f"{NOT_STICKY}, by CleanRL"),
    Reference("ppo", "HalfCheetah-v5", "tianshou", 5784, 1244, 1_000_000, TIANSHOU_PPO),
    Reference("ppo", "HalfCheetah-v5", ZOO, 5819, 664, 1_000_000, f"v3, {ONE_RUN}"),
    Reference("ppo", "HalfCheetah-v5", "CleanRL", 1443, 46, 1_000_000, f"v4, {CLEANRL}"),
    Reference("ppo", "HalfCheetah-v5", "tianshou", 7337, None, 3_000_000, TIANSHOU),
    Reference("ppo", "HalfCheetah-v5", "SLM-Lab", 6241, None, 10_000_000, SLM),
    Reference("ppo", "HalfCheetah-v5", "Sample Factory", 6262, None, 10_000_000, APPO),
    Reference("ppo", "HalfCheetah-v5", "rl_games", 1688, None, 17_000_000, BEST),
    Reference("ppo", "Hopper-v5", "tianshou", 2609, 701, 1_000_000, TIANSHOU_PPO),
    Reference("ppo", "Hopper-v5", ZOO, 2410, 10, 1_000_000, f"v3, {ONE_RUN}"),
    Reference("ppo", "Hopper-v5", "CleanRL", 2383, 272, 1_000_000, f"v4, {CLEANRL}"),
    Reference("ppo", "Hopper-v5", "SLM-Lab", 1654, None, 4_000_000, SLM),
    Reference("ppo", "Hopper-v5", "rl_games", 3485, None, 4_000_000, BEST),
    Reference("ppo", "Hopper-v5", "Sample Factory", 2793, None, 10_000_000, APPO),
    Reference("ppo", "Walker2d-v5", "tianshou", 3589, 757, 1_000_000, TIANSHOU_PPO),
    Reference("ppo", "Walker2d-v5", ZOO, 3479, 822, 1_000_000, f"v3, {ONE_RUN}"),
    Reference("ppo", "Walker2d-v5", "CleanRL", 2288, 572, 1_000_000, f"v4, {CLEANRL}"),
    Reference("ppo", "Walker2d-v5", "rl_games", 5186, None, 9_000_000, BEST),
    Reference("ppo", "Walker2d-v5", "SLM-Lab", 4379, None, 10_000_000, SLM),
    Reference("ppo", "Walker2d-v5", "Sample Factory", 5488, None, 10_000_000, APPO),
    Reference("a2c", "CartPole-v1", ZOO, 500, 0, 500_000, ONE_RUN),
    Reference("a2c", "CartPole-v1", "SLM-Lab", 496.7, None, 200_000, SLM),
    Reference("a2c", "Acrobot-v1", ZOO, -83.4, 17.2, 500_000, ONE_RUN),
    Reference("a2c", "Acrobot-v1", "SLM-Lab", -84, None, 300_000, SLM),
    Reference("a2c", "Pendulum-v1", ZOO, -163, 103.2, 1_000_000, ONE_RUN),
    Reference("a2c", "Pendulum-v1", "SLM-Lab", -820.7, None, 300_000, SLM),
    Reference("a2c", "MountainCar-v0", ZOO, -111.3, 24.1, 1_000_000, ONE_RUN),
    Reference("a2c", "MountainCarContinuous-v0", ZOO, 91.2, 0.3, 100_000, ONE_RUN),
    Reference("a2c", "Pong-v5", "SLM-Lab", 10.2, None, 10_000_000, f"{STICKY}, {SLM}"),
    Reference("a2c", "Pong-v5", ZOO, 17.3, 3.2, 10_000_000, f"{NOT_STICKY}, {ONE_RUN}"),
    Reference("dqn", "CartPole-v1", ZOO, 500, 0, 50_000, ONE_RUN),
    Reference("dqn", "CartPole-v1", "CleanRL", 488.7, 16, 500_000, CLEANRL),
    Reference("dqn", "CartPole-v1", "CleanRL", 498.4, 2.3, 500_000, f"JAX, {CLEANRL}"),
    Reference("dqn", "CartPole-v1", "SLM-Lab", 240, None, 200_000, SLM),
    Reference("dqn", "CartPole-v1", "SLM-Lab", 452, None, 200_000, f"double, prioritised; {SLM}"),
    Reference("dqn", "LunarLander-v3", ZOO, 154, 79, 100_000, f"v2, {ONE_RUN}"),
    Reference("dqn", "LunarLander-v3", "SLM-Lab", 195, None, 300_000, SLM),
    Reference("dqn", "LunarLander-v3", "SLM-Lab", 266, None, 300_000, f"double, prioritised; {SLM}"),
    Reference("dqn", "Pong-v5", ZOO, 20.6, 0.6, 10_000_000, f"{NOT_STICKY}, {ONE_RUN}"),
    Reference("dqn", "Pong-v5", "CleanRL", 20.25, 0.41, 10_000_000, f"{NOT_STICKY}, {CLEANRL}"),
    Reference("sac", "Pendulum-v1", ZOO, -157, 89, 20_000, ONE_RUN),
    Reference("sac", "Pendulum-v1", "SLM-Lab", -151, None, 300_000, SLM),
    Reference("sac", "HalfCheetah-v5", "tianshou", 12139, 1049, 1_000_000, TIANSHOU),
    Reference("sac", "HalfCheetah-v5", "CleanRL", 9635, 1424, 1_000_000, f"v4, {CLEANRL}"),
    Reference("sac", "HalfCheetah-v5", ZOO, 9535, 100, 1_000_000, f"v3, {ONE_RUN}"),
    Reference("sac", "HalfCheetah-v5", "SLM-Lab", 9815, None, 4_000_000, SLM),
    Reference("sac", "Hopper-v5", "tianshou", 3542, 52, 1_000_000, TIANSHOU),
    Reference("sac", "Hopper-v5", "CleanRL", 2310, 343, 1_000_000, f"v4, {CLEANRL}"),
    Reference("sac", "Hopper-v5", ZOO, 2326, 1130, 1_000_000, f"v3, {ONE_RUN}"),
    Reference("sac", "Hopper-v5", "SLM-Lab", 1417, None, 3_000_000, SLM),
    Reference("sac", "Walker2d-v5", "tianshou", 5007, 252, 1_000_000, TIANSHOU),
    Reference("sac", "Walker2d-v5", "CleanRL", 3591, 911, 1_000_000, f"v4, {CLEANRL}"),
    Reference("sac", "Walker2d-v5", ZOO, 3863, 254, 1_000_000, f"v3, {ONE_RUN}"),
    Reference("sac", "Walker2d-v5", "SLM-Lab", 3124, None, 3_000_000, SLM),
    Reference("recurrent_ppo", "CartPoleNoVel-v1", ZOO, 500, 0, 100_000, ONE_RUN),
    Reference("recurrent_ppo", "Pong-v5", "CleanRL", 19.8, 0.6, 10_000_000, f"{NOT_STICKY}, {CLEANRL}"),
]
