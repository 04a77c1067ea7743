"""What the worker processes of a vector environment are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["WorkerOptions"]


@dataclass(frozen=True)
class WorkerOptions:
    """How worker processes are set up. All of it is in place before a worker's interpreter starts.

    Attributes:
        threads: threads of OpenMP, MKL, OpenBLAS and NumExpr in each worker. Many workers on few cores run best with 1.
        gpu: "none" hides every GPU from the workers, and a worker that uses one all the same is an error; "own" leaves
            the caller's GPUs visible.
        affinity: "auto" confines each worker to a CPU of its own when there is exactly one worker for every CPU that
            this process may use and `threads` is 1, and leaves placing to the kernel otherwise; "none" always does.
        preload: names of modules that the zygote imports once, before any worker exists. The module of a registered
            environment, class or function is added by itself.
        env: environment variables, on top of the caller's.
        start_timeout: seconds until every worker must have built its environments.
        allow_unsafe_fork: with `context="fork"`, fork although it is known to break here.
    """

    threads: int = 1
    gpu: str = "none"
    affinity: str = "auto"
    preload: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    start_timeout: float = 60.0
    allow_unsafe_fork: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.threads, int) or isinstance(self.threads, bool) or self.threads < 1:
            raise ValueError(f"WorkerOptions(threads=…) takes a positive int, got {self.threads!r}")
        if self.gpu not in ("none", "own"):
            raise ValueError(f"WorkerOptions(gpu=…) takes 'none' or 'own', got {self.gpu!r}")
        if self.affinity not in ("auto", "none"):
            raise ValueError(f"WorkerOptions(affinity=…) takes 'auto' or 'none', got {self.affinity!r}")
        if isinstance(self.preload, str):
            raise TypeError(f"WorkerOptions(preload=…) takes a sequence of module names, got the str {self.preload!r}")
        if not self.start_timeout > 0:
            raise ValueError(f"WorkerOptions(start_timeout=…) takes a positive number, got {self.start_timeout!r}")

    @property
    def pin_workers(self) -> bool:
        """Whether workers may be confined to one CPU each."""
        return self.affinity == "auto" and self.threads == 1
