"""The training flow: SFT, rollouts, batches, updates, checkpoints."""
