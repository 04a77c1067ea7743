"""Environments with DI-engine's interface on Shoal's engine. Needs no DI-engine: `shoal.compat.ding` is its face."""
