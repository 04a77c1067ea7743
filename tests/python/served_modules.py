"""Modules that test_serve_cuda.py asks on a stand-in, and test_serve_cuda_gpu.py on a device."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["AnswersOnHost", "Drifts", "Looks", "Moves", "MovesBuffer", "Nested", "Scale", "Sparse"]


class Scale(torch.nn.Module):
    """Multiplies, in the place of its input."""

    def __init__(self, by: float = 2.0) -> None:
        super().__init__()
        self.by = torch.nn.Parameter(torch.full((3,), by))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(self.by)


class Nested(torch.nn.Module):
    def forward(self, x: torch.Tensor, *, more: dict[str, torch.Tensor]) -> dict[str, Any]:
        return {"sum": x + more["y"], "both": (x, [more["y"]])}


class Looks(torch.nn.Module):
    """Looks at its values in mid-run, which no graph can."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum().item() > 0 else -x


class Moves(Scale):
    """Loads its weights in its own way: into other memory."""

    def load_state_dict(self, state: Any, *args: Any, **kwargs: Any) -> Any:
        return super().load_state_dict(state, assign=True)


class MovesBuffer(Scale):
    """Makes anew, with new weights, what no state_dict has."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("twice", 2 * self.by.detach(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.twice

    def load_state_dict(self, state: Any, *args: Any, **kwargs: Any) -> Any:
        done = super().load_state_dict(state)
        self.twice = 2 * self.by.detach()
        return done


class Sparse(Scale):
    """Has a buffer without an address."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sparse", torch.eye(3).to_sparse())


class Drifts(torch.nn.Module):
    """Changes its input, of which it takes only some values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.arange(10.0, device=x.device)[x.add_(4).long()]


class AnswersOnHost(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(x), 1)
