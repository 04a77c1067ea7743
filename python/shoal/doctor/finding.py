"""What one check of the doctor says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    area: str  # software, processes, machine, memory, accelerators
    name: str  # of what was looked at: "start method", "open files"
    value: str  # what was seen
    status: str = "ok"  # ok; warn: works, and something could be better; fail: Shoal does not work like this
    advice: str = ""  # what it means, or what to change; one line
    remedy: str | None = None  # a command that changes it, or looks further; None: there is none
