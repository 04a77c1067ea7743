"""Imported only where there is no extension module `_core` for this Python, which comes before it: without this file, Python would
take the folder of stubs for a package, and what is asked of it would be an AttributeError."""

import sys

raise ImportError(
    f"shoal is not built for Python {sys.version_info.major}.{sys.version_info.minor}: call ./shoal in a source folder, or "
    "pip install the package again, with this Python",
    name=__name__,
)
