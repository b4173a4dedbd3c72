"""The configuration as Python sees it: read, checked and typed before anything heavy is imported.

:func:`load` turns the composed Hydra configuration into a :class:`RunConfig`, or raises one :class:`ConfigError` that
lists every fault with the nearest valid name. Nothing here imports torch, transformers, vLLM or W&B, and plug-ins are
checked by reading their source, so a mistyped command line is refused at once.
"""

from sage.config.compose import composed
from sage.config.errors import ConfigError, explain, readable_errors
from sage.config.folders import conf_dir, register_resolvers, use_plugin_folders
from sage.config.load import PLUGINS, check_plugin, load
from sage.config.schema import (
    CheckpointConfig,
    EvalConfig,
    OptimizerConfig,
    PathsConfig,
    RunConfig,
    SamplingConfig,
    SftConfig,
    TrainConfig,
)

__all__ = [
    "PLUGINS",
    "CheckpointConfig",
    "ConfigError",
    "EvalConfig",
    "OptimizerConfig",
    "PathsConfig",
    "RunConfig",
    "SamplingConfig",
    "SftConfig",
    "TrainConfig",
    "check_plugin",
    "composed",
    "conf_dir",
    "explain",
    "load",
    "readable_errors",
    "register_resolvers",
    "use_plugin_folders",
]
