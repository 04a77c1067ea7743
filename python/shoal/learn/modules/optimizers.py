"""What turns gradients into steps: the optimisers that options name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

__all__ = ["RMSpropTF", "make_optimizer"]


class RMSpropTF(torch.optim.Optimizer):
    """RMSProp as TensorFlow had it: averages begin at 1, and eps is added under the root. Results of older libraries come of it."""

    def __init__(self, params: Iterable[torch.nn.Parameter], lr: float, alpha: float, eps: float) -> None:
        super().__init__(params, {"lr": lr, "alpha": alpha, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]  # torch's has overloads
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["square_avg"] = torch.ones_like(parameter)
                average = state["square_avg"]
                average.mul_(group["alpha"]).addcmul_(parameter.grad, parameter.grad, value=1 - group["alpha"])
                parameter.addcdiv_(parameter.grad, (average + group["eps"]).sqrt(), value=-group["lr"])
        return loss


def make_optimizer(parameters: list[torch.nn.Parameter], config: Mapping[str, Any]) -> torch.optim.Optimizer:
    rate = config["learning_rate"]
    if config["optimizer"] == "adam":
        betas = (config["adam_beta1"], config["adam_beta2"])
        # One call, where there are ten for each parameter.
        fused = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in parameters)
        return torch.optim.Adam(parameters, lr=rate, betas=betas, eps=config["adam_eps"], fused=fused)
    alpha, eps = config["rmsprop_alpha"], config["rmsprop_eps"]
    if config["optimizer"] == "rmsprop":
        return torch.optim.RMSprop(parameters, lr=rate, alpha=alpha, eps=eps)
    return RMSpropTF(parameters, lr=rate, alpha=alpha, eps=eps)
