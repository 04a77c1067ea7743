"""Training of anyone's network: `shoal.learn.train(policy=…)`. The guide's page "Networks of your own" says what a module must have.

Torch is imported here, and `shoal.learn` imports this only when a module is trained or loaded.
"""
