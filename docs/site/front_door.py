"""An index.html at the top of the pages that leads to the first one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Shoal</title><meta http-equiv="refresh" content="0; url={first}"></head>
<body><a href="{first}">Shoal</a></body>
</html>
"""


def setup(app: Any) -> dict[str, Any]:
    def write(app: Any, failure: Exception | None) -> None:
        if failure is None and app.builder.name == "html":
            first = f"{app.config.root_doc}.html"
            Path(app.outdir, "index.html").write_text(PAGE.format(first=first), encoding="utf-8")

    app.connect("build-finished", write)
    return {"parallel_read_safe": True}
