"""Looks at this machine and this process the way an expert would, and says what to change.

Reads only: no CUDA context, no group of processes, nothing left behind. Imports neither torch nor gymnasium.
"""

from __future__ import annotations

from shoal.doctor.finding import Finding


def examine() -> list[Finding]:
    """Every finding, in the order in which one would read them."""
    from shoal.doctor import accelerators, machine, memory, processes, software

    findings: list[Finding] = []
    for area in (software, processes, machine, memory, accelerators):
        findings += area.examine()
    return findings


__all__ = ["Finding", "examine"]
