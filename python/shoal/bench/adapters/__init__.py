"""How each contestant is built and stepped: a file a library, which runs in that library's interpreter.

`PACKAGE` names the library's module; `MODES` builds it in each of its modes. Nothing here is imported by `shoal bench` itself.
"""
