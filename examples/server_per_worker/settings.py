"""Settings of the simulator, as a program has them: a module whose values `main.py` changes before it trains."""

WORLD = "empty"
GOAL = 5


class Physics:
    friction = 0.0
