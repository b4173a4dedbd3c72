"""sage: reinforcement learning with verifiable rewards against a shaped anchor.

The public names a plug-in author needs are ``Guide``, ``KLMode``, ``Algorithm``, ``RolloutEngine``, ``Reward`` and
``Benchmark`` in :mod:`sage.interfaces` and the carriers in :mod:`sage.types`.
"""

import os

# Sampling is thousands of tiny operations. Spinning OpenMP workers make each of them 5-20 times slower as soon as anything
# else runs on the machine; the variable is read once, when torch loads libgomp, so it is set before anything imports torch.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

__version__ = "0.1.0"
