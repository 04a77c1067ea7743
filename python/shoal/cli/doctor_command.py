"""`shoal doctor`: what there is on this machine that bears on Shoal, and what to change."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from shoal.cli.console import closing_json, say

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from shoal.doctor import Finding

_NARROW = 60
"""Characters of a line, below which what was found stands under its name."""


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(json: bool = typer.Option(False, "--json", help="Print one line of JSON instead.")) -> None:
    """Look at this machine and this process, and say what to change."""
    from dataclasses import asdict

    from shoal.doctor import examine

    findings = examine()
    counts = {status: sum(finding.status == status for finding in findings) for status in ("ok", "warn", "fail")}
    if json:
        closing_json({"findings": [asdict(finding) for finding in findings], **counts})
    else:
        _print(findings)
        say(f"\n{counts['ok']} fine, {counts['warn']} to look at, {counts['fail']} that stop Shoal")
    if counts["fail"]:
        raise typer.Exit(1)


def _print(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.text import Text

    ok, wrong = ("✓", "✗") if (sys.stdout.encoding or "utf-8").lower().startswith("utf") else ("ok", "x")
    marks = {"ok": Text(ok, "green"), "warn": Text("!", "yellow"), "fail": Text(wrong, "red")}
    area = None
    console = Console(highlight=False, soft_wrap=False)
    for finding in findings:
        if finding.area != area:
            area = finding.area
            console.print(f"[bold]{area}[/bold]")
        texts = [Text(finding.value)]
        if finding.advice:
            texts.append(Text(finding.advice, "dim" if finding.status == "ok" else "yellow"))
        if finding.remedy:
            texts.append(Text(f"$ {finding.remedy}", "dim" if finding.status == "ok" else "bold"))
        lay_out = _in_columns if console.width >= _NARROW else _below_each_other
        console.print(lay_out(marks[finding.status], Text(finding.name), texts))


def _in_columns(mark: Text, name: Text, texts: list[Text]) -> RenderableType:
    from rich.table import Table

    table = Table.grid(padding=(0, 1))
    table.add_column(width=3, justify="right")
    table.add_column(width=21)
    table.add_column()
    for text in texts:
        table.add_row(mark, name, text)
        mark = name = type(mark)()
    return table


def _below_each_other(mark: Text, name: Text, texts: list[Text]) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    return Group(Text(" ").join([mark, name]), *(Padding(text, (0, 0, 0, 2)) for text in texts))
