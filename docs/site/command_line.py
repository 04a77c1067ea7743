"""The directive `shoal-commands`: every command with its arguments and options, as the program itself has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from sphinx.util.docutils import SphinxDirective

from shoal.cli.app import app as shoal_app


def reference() -> list[str]:
    """Lines of Markdown: a section for each command."""
    group: Any = typer.main.get_command(shoal_app)
    lines = []
    for name, command in group.commands.items():
        paragraphs = (command.help or "").replace("\\[", "[").split("\n\n")
        arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
        options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
        usage = " ".join(["shoal", name, *(word_of(argument) for argument in arguments), "[OPTIONS]"])
        lines += [f"## `shoal {name}`", "", *(line for text in paragraphs for line in (" ".join(text.split()), ""))]
        lines += ["```text", usage, "```", ""]
        rows = [(f"`{word_of(argument)}`", help_of(argument)) for argument in arguments]
        rows += [
            (", ".join(f"`{flag}`" for flag in option.opts) + value_of(option), help_of(option)) for option in options
        ]
        lines += ["| | |", "|---|---|", *(f"| {left} | {right} |" for left, right in rows)]
        lines.append("")
    return lines


BACKSLASH, BAR = "\\", "\\|"


def word_of(argument: Any) -> str:
    word = (argument.metavar or argument.name.upper()).strip("{}")
    return word if argument.required else f"[{word}]"


def value_of(option: Any) -> str:
    """What is written behind the flag, or nothing."""
    if option.is_flag:
        return ""
    kinds = [kind for kind in (int, float, Path) if str(kind.__name__) in str(option.type_descriptor.annotation)]
    word = option.metavar or ({int: "N", float: "NUMBER", Path: "PATH"}[kinds[0]] if kinds else "WORD")
    return f" `{word}`".replace("|", BAR)


def help_of(parameter: Any) -> str:
    text = " ".join((parameter.help or "").split())
    if parameter.show_default and parameter.default not in (None, False, ()):
        text += f" [default: {parameter.default}]"
    return text.replace(BACKSLASH, "").replace("|", BAR)


class Commands(SphinxDirective):
    def run(self) -> list[Any]:
        return self.parse_text_to_nodes("\n".join(reference()), allow_section_headings=True)


def setup(app: Any) -> dict[str, Any]:
    app.add_directive("shoal-commands", Commands)
    return {"parallel_read_safe": True}
