"""`shoal test --all`: runs the parts, one table of how they ended, and the figures that CONTRIBUTING.md shows."""

from __future__ import annotations

import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from shoal.cli.console import did_you_mean, fail, note, say, wrong_use
from shoal.cli.test_job import Failed, Job, LeftOut
from shoal.cli.test_parts import PARTS, Part

BEGIN, END = "<!-- figures: written by ./shoal test --all --record -->", "<!-- end of figures -->"
FIGURES = Path("tests/figures.json")
PAGE = Path("CONTRIBUTING.md")
LAST = Path("build/test-all")
"""Each part's log and figures here."""


def list_parts() -> None:
    for part in PARTS:
        say(f"{part.name:12} {part.what}")


def run(source: Path, environment: dict[str, str], only: list[str] | None, copies: Path | None, record: bool) -> None:
    """Runs the parts, or those that are named; ends with status 1 where one failed."""
    names = [part.name for part in PARTS]
    for name in only or ():
        if name not in names:
            wrong_use(f"there is no part {name!r}{did_you_mean(name, names)}; there are {', '.join(names)}")
    if copies is not None and not copies.is_dir():
        wrong_use(f"there is no folder {str(copies)!r}")
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # once what the part has started is ended
    results = []
    try:
        for part in PARTS:
            if only and part.name not in only:
                continue
            note(f"shoal: {part.name}: {part.what} …")
            results.append(play(part, source, environment, copies and copies.resolve()))
            note(f"shoal: {part.name}: {told(results[-1])}")
            (source / LAST / f"{part.name}.json").write_text(written(results[-1]))
    finally:
        signal.signal(signal.SIGTERM, before)
    if record:
        keep(source, results)
    say("")
    for result in results:
        say(f"{result['part']:12} {result['outcome']:9} {minutes(result['seconds']):>6}  {result['closing']}")
        for reason in result["left_out"]:
            say(f"{'':30}left out: {reason}")
    failed = [result["part"] for result in results if result["outcome"] == "failed"]
    if failed:
        fail(f"failed: {', '.join(failed)}; build/test-all/{failed[0]}.log has what was printed")


def play(part: Part, source: Path, environment: dict[str, str], copies: Path | None) -> dict[str, Any]:
    """One part's figures. A part that cannot run here is left out; one that ends otherwise than by its count fails."""
    job = Job(part.name, source, environment, part.minutes, copies)
    start, commit = time.monotonic(), commit_of(source)
    try:
        outcome, closing = "passed", part.run(job)
    except LeftOut as reason:
        outcome, closing, job.left_out = "left out", str(reason), []
    except Failed as reason:
        outcome, closing = "failed", str(reason)
    except Exception as error:  # of the part's own code: the parts after it run all the same
        outcome, closing = "failed", f"{type(error).__name__}: {error}"
    return {
        "part": part.name,
        "outcome": outcome,
        "closing": closing,
        "left_out": job.left_out,
        "seconds": round(time.monotonic() - start, 1),
        "date": datetime.date.today().isoformat(),
        "commit": commit,
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
    }


def record_last(source: Path) -> None:
    """Puts into the table what the parts did when they ran here last."""
    files = [source / LAST / f"{part.name}.json" for part in PARTS]
    results = [json.loads(file.read_text()) for file in files if file.is_file()]
    if not results:
        fail(f"no part has run here: {source / LAST} has no figures; ./shoal test --all --record runs all of them")
    keep(source, results)
    for result in results:
        say(f"{result['part']:12} {told(result)}")


def written(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def told(result: dict[str, Any]) -> str:
    return f"{result['outcome']} after {minutes(result['seconds'])}: {result['closing']}"


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def commit_of(source: Path) -> str:
    """That of the sources, with a + where they have changed since."""
    found = subprocess.run(
        ["git", "-C", str(source), "describe", "--always", "--abbrev=9", "--dirty=+"], capture_output=True, text=True
    )
    return found.stdout.strip() if found.returncode == 0 else ""


def keep(source: Path, results: list[dict[str, Any]]) -> None:
    """Puts the figures into the record and the table. A part that was left out leaves its earlier figures there."""
    record = source / FIGURES
    kept = {result["part"]: result for result in json.loads(record.read_text())} if record.is_file() else {}
    for result in results:
        if result["outcome"] != "left out" or kept.get(result["part"], result)["outcome"] == "left out":
            kept[result["part"]] = result
    found = [kept[part.name] for part in PARTS if part.name in kept]
    page = source / PAGE
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        fail(f"{page} lacks the lines {BEGIN} and {END}")
    record.write_text(written(found))
    page.write_text(f"{before}{BEGIN}\n\n{table(found)}\n\n{END}{after}")


def table(results: list[dict[str, Any]]) -> str:
    """Of all parts, those without figures too."""
    found = {result["part"]: result for result in results}
    lines = ["| part | what | last figures | left out | took | on |", "|---|---|---|---|---|---|"]
    for part in PARTS:
        result = found.get(part.name)
        if result is None:
            lines.append(f"| `{part.name}` | {part.what} | none yet | | | |")
            continue
        closing = (
            result["closing"] if result["outcome"] == "passed" else f"**{result['outcome']}**: {result['closing']}"
        )
        cells = [closing, "; ".join(result["left_out"]), minutes(result["seconds"]), where(result)]
        lines.append(f"| `{part.name}` | {part.what} | {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)


def where(result: dict[str, Any]) -> str:
    return f"{result['date']}, {result['cpus']} CPUs, Python {result['python']}, {result['commit']}"
