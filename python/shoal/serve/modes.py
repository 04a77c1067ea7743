"""Training and evaluation mode of a torch.nn.Module, parts of which may have no such modes."""

from __future__ import annotations

from typing import Any

__all__ = ["switch"]


def switch(module: Any, training: bool) -> Any:
    """`module.train()` or `module.eval()`; returns the module.

    A part that raises NotImplementedError is left in the mode that it was made in, as what torch.export made must be; all
    others are switched.
    """
    try:
        return module.train() if training else module.eval()
    except NotImplementedError:  # its parts that come after the one that raised have not been switched
        for part in module.children():
            switch(part, training)
        return module
