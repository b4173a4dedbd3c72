"""The smallest command: composes and checks the configuration, then prints which heavy modules that loaded."""

import json
import logging
import sys

import hydra
from omegaconf import DictConfig

from sage.config import conf_dir, load, readable_errors, register_resolvers, use_plugin_folders

HEAVY = ("torch", "transformers", "vllm", "wandb", "datasets")


@hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")
def job(cfg: DictConfig) -> None:
    """Check ``cfg`` and print one line of JSON."""
    use_plugin_folders()
    config = load(cfg)
    logging.getLogger("minimal_job").info("checked")
    line = {"guide": cfg.guide._target_, "kl_mode": cfg.kl_mode._target_, "outputs": str(config.paths.outputs)}
    print(json.dumps({**line, "heavy": [name for name in HEAVY if name in sys.modules]}))
    if cfg.guide._target_.startswith("my_guide."):
        print(json.dumps({"built": type(hydra.utils.instantiate(cfg.guide)).__name__}))


if __name__ == "__main__":
    register_resolvers()
    with readable_errors():
        job()
