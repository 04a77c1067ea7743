"""`shoal guide`: the guide's pages in the terminal, for where there is no clone and no browser."""

from __future__ import annotations

import os
import shlex
import sys

import typer

from shoal.cli import completion
from shoal.cli.console import fail, program, say, wrong_use


def register(app: typer.Typer) -> None:
    app.command("guide")(guide)


def guide(
    page: str = typer.Argument(
        None, metavar="PAGE", help="Its name or its title.", show_default=False, autocompletion=completion.pages
    ),
    section: str = typer.Argument(
        None,
        metavar="SECTION",
        help="Only this section of it: an error's name, for one.",
        show_default=False,
        autocompletion=completion.sections,
    ),
    find: str = typer.Option(None, "--find", metavar="WORDS", help="Name the sections that have all of these words."),
) -> None:
    """Read the guide: a page, a section of it, or the list of pages."""
    from shoal.cli.pages import the_page, the_section

    if find is not None:
        if page is not None:
            wrong_use("--find looks in all pages: it goes without PAGE")
        _name_those_with(find)
    elif page is None:
        _list()
    else:
        chosen = the_page(page)
        _show(chosen.text if section is None else the_section(chosen, section).text)


def _list() -> None:
    from shoal.cli.pages import pages

    known = pages()
    width = max(len(page.name) for page in known)
    caption = ""
    for page in known:
        if page.caption != caption:
            say(f"{caption and chr(10)}{page.caption}")
            caption = page.caption
        say(f"  {page.name:{width}}  {page.title}")
    say(f"\n{program()} guide PAGE prints one, --find WORDS says where something is.")


def _name_those_with(words: str) -> None:
    """As commands that print them. Of sections in each other, only the innermost."""
    from shoal.cli.pages import pages

    wanted = words.casefold().split()
    if not wanted:
        wrong_use("--find takes words, and was given none")
    found = False
    for page in pages():
        has = [each for each in page.sections if all(word in each.text.casefold() for word in wanted)]
        for section in has:
            if any(other is not section and other.text in section.text for other in has):
                continue
            found = True
            own = [] if section.level == 1 else [section.title]
            say(shlex.join([program(), "guide", page.name, *own]))
    if not found:
        fail(f"no section of the guide has all of {', '.join(wanted)}")


def _show(text: str) -> None:
    """As it was written where a program reads it; for people, set as a page, in their pager."""
    if not sys.stdout.isatty():
        return say(text.rstrip("\n"))
    from rich.console import Console
    from rich.markdown import Markdown

    os.environ.setdefault("LESS", "-RF")  # colours; and a page that fits is printed
    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(text))
