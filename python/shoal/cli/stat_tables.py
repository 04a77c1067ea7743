"""A snapshot of shoal.stat as lines: a table for each kind of thing, units in its head."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any

from shoal._version import __version__
from shoal.cli.console import printable

__all__ = ["tables"]

_LONG = 1.0
"""Seconds in one environment after which a worker gets a line of its own."""
_WIDEST = 72
"""Characters of what a run says of its end; --json has all."""
_NARROWEST = 24
"""Characters that are left of a name in a table that is too wide."""
_INDENT = "    "
"""Of what does not fit on a line."""

Row = Sequence[str]


def tables(
    seen: dict[str, Any], before: dict[str, Any] | None = None, workers: bool = False, width: int | None = None
) -> str:
    """Those that have rows. Rates are of the time since `before`, where there is one; else of all time.

    Args:
        workers: a line for each, not only for those that need a look.
        width: characters of a line: names are cut, and rows have further lines. None: as long as it is.
    """
    clock = time.strftime("%H:%M:%S", time.localtime(seen.get("time")))
    lines = [f"shoal {__version__}, {clock}, rates {'of the last interval' if before else 'since the beginning'}"]
    for name, head, rows in (
        ("environments", _ENVIRONMENTS, _environments),
        ("pools", _POOLS, _pools),
        ("collectors", _COLLECTORS, _collectors),
        ("remote_collectors", _REMOTE, _remote),
        ("listening_services", _LISTENING, _listening),
        ("runs", _RUNS, _runs),
    ):
        made = [row for each in seen.get(name, []) for row in rows(each, _Rate(seen, before, name), workers)]
        if made:
            lines += ["", *_aligned([(name.replace("_", " "), *head), *made], width)]
    services = seen.get("services", [])
    if services:
        lines.append("")
    rate = _Rate({**seen, "models": _models(seen)}, before and {**before, "models": _models(before)}, "models")
    for service in services:
        told = [f"{service['address']}  made by process {service['pid']}, {_instances(service)}"]
        told += [f"  {model['name']}  {_line(model, rate)}" for model in _models_of(service)]
        lines += [part for line in told for part in _folded(printable(line), width)]
    if len(lines) == 1:
        lines.append("nothing runs")
    return "\n".join(lines)


class _Rate:
    """Of a total that only grows, a second."""

    def __init__(self, seen: dict[str, Any], before: dict[str, Any] | None, name: str) -> None:
        self._seconds = seen["time"] - before["time"] if before else 0.0
        self._before = {self._key(each): each for each in before.get(name, [])} if before else {}

    def __call__(self, each: dict[str, Any], total: str, mean: float | None) -> str:
        old = self._before.get(self._key(each))
        if old is not None and self._seconds > 0 and each[total] >= old[total]:
            mean = (each[total] - old[total]) / self._seconds
        return "" if mean is None else f"{mean:,.0f}" if mean >= 10 else f"{mean:.2g}"

    @staticmethod
    def _key(each: dict[str, Any]) -> Any:
        return each.get("run_dir") or each["id"]


_ENVIRONMENTS = ("pid", "backend", "envs", "workers", "state", "steps", "steps/s", "wait %", "restarts", "MiB", "age")


def _environments(each: dict[str, Any], rate: _Rate, every: bool) -> list[Row]:
    rows: list[Row] = [
        (
            each["title"] or "environments",
            str(each["pid"]),
            each["backend"],
            str(each["envs"]),
            str(each["num_workers"]),
            f"{each['state']} {_time(each['state_seconds'])}",
            f"{each['steps']:,}",
            rate(each, "steps", each["steps_per_second"]),
            f"{100 * each['wait_seconds'] / max(each['seconds'], 1e-9):.0f}",
            str(each["restarts"]),
            _mib(each["memory_bytes"]),
            _time(each["seconds"]),
        )
    ]
    for i, worker in enumerate(each["workers"]):
        long = worker.get("env") is not None and worker["state_seconds"] > _LONG
        if every or long or worker["state"] not in ("idle", "stepping"):
            rows.append(_worker(i, worker, each["seconds"]))
    return rows


def _worker(number: int, worker: dict[str, Any], seconds: float) -> Row:
    state = worker["state"]
    if worker.get("env") is not None:
        call = "reset" if worker["in_reset"] else "step"
        state = f"{state} {_time(worker['state_seconds'])} in {call} of environment {worker['env']}"
    busy = f"busy {100 * worker['busy_seconds'] / max(seconds, 1e-9):.0f} %" if "busy_seconds" in worker else ""
    return (
        f"  worker {number}",
        str(worker["pid"] or ""),
        busy,
        "",
        "",
        state,
        "",
        "",
        "",
        "",
        _mib(worker["memory_bytes"]),
        "",
    )


_POOLS = ("pid", "workers", "state", "waiting", "given", "done", "done/s", "failed", "restarts", "MiB", "age")


def _pools(each: dict[str, Any], rate: _Rate, every: bool) -> list[Row]:
    counts = (each["waiting"], each["given"], each["done"])
    return [
        (
            "pool",
            str(each["pid"]),
            str(each["num_workers"]),
            each["state"],
            *(f"{count:,}" for count in counts),
            rate(each, "done", each["tasks_per_second"]),
            f"{each['failed']:,}",
            str(each["restarts"]),
            _mib(each["memory_bytes"]),
            _time(each["seconds"]),
        )
    ]


_COLLECTORS = (
    "pid",
    "envs",
    "processes",
    "state",
    "frames",
    "of",
    "frames/s",
    "wait %",
    "pending",
    "weights",
    "restarts",
    "MiB",
    "age",
)


def _collectors(each: dict[str, Any], rate: _Rate, every: bool) -> list[Row]:
    rows: list[Row] = [
        (
            each["mode"],
            str(each["pid"]),
            str(each["envs"]),
            str(each["num_collectors"]),
            f"{each['state']} {_time(each['state_seconds'])}",
            f"{each['frames']:,}",
            "" if each["total_frames"] is None else f"{each['total_frames']:,}",
            rate(each, "frames", each["frames_per_second"]),
            f"{100 * each['wait_seconds'] / max(each['seconds'], 1e-9):.0f}",
            str(each["pending"]),
            str(each["policy_version"]),
            str(each["restarts"]),
            _mib(each["memory_bytes"]),
            _time(each["seconds"]),
        )
    ]
    for i, worker in enumerate(each["workers"] if every else ()):
        rows.append((f"  process {i}", str(worker["pid"]), *[""] * 10, _mib(worker["memory_bytes"]), ""))
    return rows


_REMOTE = (
    "pid",
    "there",
    "came",
    "lost",
    "state",
    "steps",
    "steps/s",
    "stale steps",
    "lost rollouts",
    "refused",
    "MiB in",
    "MiB out",
    "age",
)


def _remote(each: dict[str, Any], rate: _Rate, every: bool) -> list[Row]:
    return [
        (
            each["address"],
            str(each["pid"]),
            str(each["num_collectors"]),
            str(each["joined"]),
            str(each["lost"]),
            each["state"],
            f"{each['steps']:,}",
            rate(each, "steps", each["steps_per_second"]),
            f"{each['stale_steps']:,}",
            f"{each['lost_rollouts']:,}",
            str(each["refused"]),
            _mib(each["received_bytes"]),
            _mib(each["sent_bytes"]),
            _time(each["seconds"]),
        )
    ]


_LISTENING = ("pid", "relays", "joined", "lost", "state", "rows", "rows/s", "refused", "MiB in", "MiB out", "age")


def _listening(each: dict[str, Any], rate: _Rate, every: bool) -> list[Row]:
    return [
        (
            each["address"],
            str(each["pid"]),
            str(each["relays"]),
            str(each["joined"]),
            str(each["lost"]),
            each["state"],
            f"{each['rows']:,}",
            rate(each, "rows", each["rows_per_second"]),
            str(each["refused"]),
            _mib(each["received_bytes"]),
            _mib(each["sent_bytes"]),
            _time(each["seconds"]),
        )
    ]


_RUNS = ("pid", "environment", "algorithm", "state", "steps", "of", "steps/s", "return", "MiB", "written")


def _runs(each: dict[str, Any], rate: _Rate, every: bool) -> list[Row]:
    why = each["error"] or each["ending"]
    state = _cut(f"{each['state']}: {why}") if why else each["state"]
    total, mean = each["total_steps"], each["mean_return"]
    return [
        (
            each["run_dir"],
            str(each["pid"] or ""),
            str(each["environment"] or ""),
            str(each["algorithm"] or ""),
            state,
            f"{each['steps']:,}",
            "" if total is None else f"{total:,}",
            rate(each, "steps", each["steps_per_second"]) if each["state"] == "training" else "",
            "" if mean is None else f"{mean:.4g}",
            _mib(each["memory_bytes"]) if each["memory_bytes"] else "",
            "" if each["record_seconds"] is None else f"{_time(each['record_seconds'])} ago",
        )
    ]


def _aligned(rows: list[Row], width: int | None) -> list[str]:
    """Texts to the left, numbers to the right; no wider than `width`."""
    columns = [[printable(cell) for cell in column] for column in zip(*rows, strict=True)]
    right = [all(_is_number(cell) for cell in column[1:]) for column in columns]
    widths = [max(map(len, column)) for column in columns]
    if width is not None:
        over = sum(widths) + 2 * (len(widths) - 1) - width
        widths[0] = min(widths[0], max(widths[0] - over, _NARROWEST))
        columns[0] = [_cut_front(cell, widths[0]) for cell in columns[0]]
    adjust: list[Callable[[str, int], str]] = [str.rjust if is_right else str.ljust for is_right in right]
    columns = [[f(cell, size) for cell in column] for f, size, column in zip(adjust, widths, columns, strict=True)]
    bands = [range(len(columns))] if width is None else _bands(widths, width)
    lines = []
    for row in zip(*columns, strict=True):
        parts = ["  ".join(row[i] for i in band).rstrip() for band in bands]
        lines += [parts[0], *(f"{_INDENT}{part}" for part in parts[1:] if part)]
    return lines if width is None else [_cut(line, width) for line in lines]


def _bands(widths: list[int], width: int) -> list[range]:
    """The columns of each line of a row that has several."""
    bands, begin, used = [], 0, 0
    for i, size in enumerate(widths):
        if i > begin and used + size > width:
            bands.append(range(begin, i))
            begin, used = i, len(_INDENT)
        used += size + 2
    return [*bands, range(begin, len(widths))]


def _folded(line: str, width: int | None) -> list[str]:
    return [line] if width is None else textwrap.wrap(line, max(width, _NARROWEST), subsequent_indent=_INDENT)


def _is_number(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell[0] == "-"


def _cut(text: str, most: int = _WIDEST) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _cut_front(text: str, most: int) -> str:
    return text if len(text) <= most else "…" + text[len(text) - most + 1 :]


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f}"


def _instances(service: dict[str, Any]) -> str:
    n, running, restarts = service["instances"], service["running"], service["restarts"]
    if service["state"] == "starting":
        return "no server takes requests yet"
    said = "1 server" if n == 1 else f"{n} servers"
    if running < n:
        said = f"{running} of {n} servers running" if running else "no server runs now: these are the last counts"
    if restarts:
        said += f", {restarts} restart{'s' if restarts > 1 else ''}"
    return f"{said}, {_mib(service['memory_bytes'])} MiB"


def _models(seen: dict[str, Any]) -> list[dict[str, Any]]:
    return [model for service in seen.get("services", []) for model in _models_of(service)]


def _models_of(service: dict[str, Any]) -> list[dict[str, Any]]:
    """Of a service, each with its name, what tells it from those of other services, and its rate of all time."""
    return [
        {
            **model,
            "id": (service["address"], name),
            "name": name,
            "rows_per_second": model["rows"] / max(service["seconds"], 1e-9),
        }
        for name, model in service["models"].items()
    ]


def _line(model: dict[str, Any], rate: _Rate) -> str:
    """One model's counters."""

    def ms(values: dict[str, Any], part: str) -> str:
        return f"{1000 * values[part]:.3g}"

    latency, wait = model["latency"], model["queue_wait"]
    parts = [
        f"{model['clients']} clients",
        f"{model['rows']:,} rows ({rate(model, 'rows', model['rows_per_second'])}/s)",
        f"{model['batch_rows']['mean']:.2g} a batch",
        f"latency p50 {ms(latency, 'p50')} p99 {ms(latency, 'p99')} ms",
        f"waiting p50 {ms(wait, 'p50')} p99 {ms(wait, 'p99')} ms",
        f"weights {model['version']}",
    ]
    if model["padding_waste"]:
        parts.append(f"{100 * model['padding_waste']:.1f} % padding")
    parts += [f"{model[f'{kind}_rows']:,} {kind}" for kind in ("failed", "expired", "dropped") if model[f"{kind}_rows"]]
    return ", ".join(parts)
