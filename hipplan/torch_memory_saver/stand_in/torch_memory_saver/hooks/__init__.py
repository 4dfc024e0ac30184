"""There are no hooks: nothing is preloaded."""
