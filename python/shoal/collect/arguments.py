"""What a `shoal.Collector` is given: checked, and made of it what the collector goes by."""

from __future__ import annotations

import importlib
import operator
import os
from collections.abc import Mapping
from itertools import accumulate
from numbers import Real
from typing import Any

import numpy as np

from shoal.names import needs_torch
from shoal.process.error_report import first_line
from shoal.serve.client import ServiceModel
from shoal.serve.face import ServiceFace
from shoal.serve.local import LocalModel
from shoal.vector.faults import FaultPolicy
from shoal.vector.options import WorkerOptions

__all__ = [
    "check_env_kwargs",
    "check_mode",
    "check_steps",
    "check_switch",
    "check_worker_options",
    "cohort_size",
    "fault_policy",
    "number_of_collectors",
    "number_of_envs",
    "output_and_device",
    "random_rows",
    "rows",
    "rows_of_policy",
    "seed_or_none",
    "shares",
    "time_limit",
]

_MODES = ("sync", "multi_sync", "multi_async")
_OUTPUTS = ("auto", "numpy", "torch", "tensordict")
_POLICY_BATCH = 8
_MOST_STEPS = 2**31 - 1
"""Of a batch, which counts them in 32 bits."""


def check_mode(mode: str, *, num_collectors: int | None, preemptive_threshold: float | None, ahead: int) -> None:
    if mode not in _MODES:
        raise ValueError(f"mode= takes {', '.join(map(repr, _MODES))}, got {mode!r}")
    if mode == "sync" and num_collectors is not None:
        raise ValueError(
            'num_collectors= is of mode="multi_sync" and mode="multi_async"; with "sync" there is num_workers='
        )
    if preemptive_threshold is not None:
        if mode != "multi_sync":
            raise ValueError(
                f'preemptive_threshold= is of mode="multi_sync", where some wait for others; got mode={mode!r}'
            )
        if not isinstance(preemptive_threshold, Real) or not 0 < preemptive_threshold <= 1:
            raise ValueError(
                f"preemptive_threshold= takes a share of the collectors, from 0 to 1, got {preemptive_threshold!r}"
            )
    if not isinstance(ahead, int) or isinstance(ahead, bool) or ahead < 1:
        raise ValueError(f"ahead= takes a number of batches, 1 or more, got {ahead!r}")


def number_of_envs(env: Any, wanted: Any) -> int:
    if isinstance(env, list | tuple):
        if not env:
            raise ValueError("env= is an empty list: give a factory for each environment")
        if wanted not in (None, len(env)):
            raise ValueError(f"env= is a list of {len(env)} factories, and num_envs={wanted!r}: leave num_envs out")
        return len(env)
    count = 1 if wanted is None else _whole_number(wanted)
    if count is None or count < 1:
        raise ValueError(f"num_envs= takes a number of environments, 1 or more, got {wanted!r}")
    return count


def seed_or_none(seed: Any) -> int | None:
    if seed is None:
        return None
    number = _whole_number(seed)
    if number is None or not 0 <= number < 2**63:
        raise ValueError(f"seed= takes a number from 0 to 2**63 - 1, got {seed!r}")
    return number


def random_rows(wanted: Any) -> int:
    count = _whole_number(wanted)
    if count is None or count < 0:
        raise ValueError(f"init_random_frames= takes a number of rows, 0 or more, got {wanted!r}")
    return count


def check_switch(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name}= takes True or False, got {value!r}")


def check_env_kwargs(kwargs: Any) -> None:
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TypeError(f"env_kwargs= takes a dict of keyword arguments, got {kwargs!r}")


def check_worker_options(options: Any) -> None:
    if options is not None and not isinstance(options, WorkerOptions):
        raise TypeError(f"worker= takes shoal.WorkerOptions(…), got {options!r}")


def _whole_number(value: Any) -> int | None:
    """None for what is none."""
    return None if isinstance(value, bool) or not hasattr(value, "__index__") else operator.index(value)


def number_of_collectors(wanted: Any, num_envs: int, mode: str) -> int:
    if wanted is None:
        most = min(num_envs, len(os.sched_getaffinity(0)))
        return max(n for n in range(1, most + 1) if mode == "multi_sync" or num_envs % n == 0)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not 1 <= wanted <= num_envs:
        raise ValueError(f"num_collectors= takes a number from 1 to num_envs={num_envs}, got {wanted!r}")
    if mode == "multi_async" and num_envs % wanted:
        fit = [n for n in range(1, num_envs + 1) if num_envs % n == 0]
        near = min(fit, key=lambda n: abs(n - wanted))
        raise ValueError(
            f"num_collectors={wanted} does not divide num_envs={num_envs}, of which each collector has as many: try {near}"
        )
    return wanted


def shares(num_envs: int, collectors: int) -> list[tuple[int, int]]:
    """First environment and how many, of each collector."""
    each, more = divmod(num_envs, collectors)
    counts = [each + (i < more) for i in range(collectors)]
    return list(zip(accumulate(counts, initial=0), counts, strict=False))


def rows_of_policy(wanted: Any, policy: Any, num_envs: int, mode: str) -> int:
    if wanted is None:
        served = isinstance(policy, ServiceFace | ServiceModel | LocalModel)
        return num_envs if mode == "sync" or served else min(num_envs, _POLICY_BATCH)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1:
        raise ValueError(f"policy_batch= takes a number of environments, 1 or more, got {wanted!r}")
    return min(num_envs, wanted)


def cohort_size(cohorts: Any, num_envs: int, mode: str, policy_batch: int | None) -> int:
    if mode != "sync":
        raise ValueError(f'cohorts= is of mode="sync", where the policy waits for the environments; got mode={mode!r}')
    if policy_batch is not None:
        raise ValueError("cohorts= says for how many environments the policy is asked: leave policy_batch= out")
    if not isinstance(cohorts, int) or isinstance(cohorts, bool) or not 1 <= cohorts <= num_envs or num_envs % cohorts:
        raise ValueError(f"cohorts= takes a number that divides num_envs={num_envs}, got {cohorts!r}")
    return num_envs // cohorts


def fault_policy(on_fault: str | FaultPolicy) -> FaultPolicy:
    if not isinstance(on_fault, str | FaultPolicy):
        raise ValueError(f"on_fault= takes 'raise' or 'restart', or a shoal.FaultPolicy, got {on_fault!r}")
    policy = FaultPolicy(on_fault) if isinstance(on_fault, str) else on_fault
    if policy.on_fault == "drop":
        raise ValueError(
            'on_fault= takes "raise" or "restart" of collectors: without one, its environments are missing'
        )
    return policy


def output_and_device(output: str, device: Any) -> tuple[str, Any]:
    if output not in _OUTPUTS:
        raise ValueError(f"output= takes {', '.join(map(repr, _OUTPUTS[:-1]))} or {_OUTPUTS[-1]!r}, got {output!r}")
    if device is not None:
        if output == "numpy":
            raise ValueError(f"device={device!r} is of tensors, and output='numpy' gives arrays: leave one of them out")
        with needs_torch(f"device={device!r}"):
            import torch
        device = _checked_device(device, torch)
        output = "torch" if output == "auto" else output
    if output == "tensordict":
        try:
            importlib.import_module("tensordict")
        except ImportError:
            raise ImportError("output='tensordict' needs the package tensordict: pip install tensordict") from None
    return output, device


def _checked_device(device: Any, torch: Any) -> Any:
    """Raises ValueError for one that there is not. CUDA is not begun to be used for that, where its management library
    counts the devices."""
    try:
        checked = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device= takes a device as torch names it, got {device!r}: {first_line(error)}") from None
    if checked.type != "cuda":
        return checked
    count = torch.cuda.device_count() if torch.backends.cuda.is_built() else 0
    if (checked.index or 0) >= count:
        have = (
            "this torch was built without CUDA"
            if not torch.backends.cuda.is_built()
            else f"torch finds {count} CUDA devices"
        )
        raise ValueError(
            f'device={device!r} is not here, for {have}: give another one, as device="cpu", or leave it out'
        )
    return checked


def rows(name: str, frames: Any, num_envs: int, collectors: int = 0) -> int:
    if not isinstance(frames, int | np.integer) or isinstance(frames, bool) or frames < 1:
        raise ValueError(f"{name}= takes a number of rows, got {frames!r}")
    if frames % num_envs:
        below = frames - frames % num_envs
        near = f"{below} or {below + num_envs}" if below else f"{num_envs}"
        of = (
            f"num_envs={num_envs}"
            if not collectors
            else f"the {num_envs} environments of each of {collectors} collectors"
        )
        raise ValueError(f"{name}={frames} is no multiple of {of}, of which each has a row a step: try {near}")
    return int(frames)


def check_steps(frames: int, num_envs: int) -> None:
    if frames // num_envs > _MOST_STEPS:
        raise ValueError(
            f"frames_per_batch={frames} is {frames // num_envs} steps of {num_envs} environments, and a batch has {_MOST_STEPS} "
            "at most: give less"
        )


def time_limit(env: Any, wanted: int | None, replaced: int | None) -> int | None:
    """The time limit that make_vec is to set, in the place of an id's own: the shorter one of `wanted` and of `replaced`,
    by default the id's own."""
    if wanted is None or replaced is not None:
        return min((limit for limit in (wanted, replaced) if limit is not None), default=None)
    if not isinstance(env, str):
        return wanted
    import gymnasium

    from shoal.envs import register

    register()
    own = gymnasium.spec(env).max_episode_steps
    return wanted if own is None else min(own, wanted)
