"""How Sphinx makes the guide out of this folder and of the documents beside the sources: `./shoal docs`.

The source folder is the repository's root, so that a link between two documents is the same in the repository and on the site.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs/site"))
if str(ROOT / "python") not in sys.path:
    sys.path.insert(0, str(ROOT / "python"))

from shoal._version import __version__  # noqa: E402

project = "Shoal"
author = "the Shoal authors"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "command_line",
    "cpp_headers",
    "docstrings",
    "front_door",
]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**.md",
    "benchmarks/README.md",
    "examples/README.md",
    "examples/*/README.md",
    "python/**/README.md",
    "src/**/README.md",
    "tests/**/README.md",
]
exclude_patterns = ["build", ".venv", "runs"]
highlight_language = "none"

myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 90
default_role = "py:obj"  # what a docstring has between single backticks
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"Shoal {version}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
