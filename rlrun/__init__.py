"""rlrun: launches reinforcement-learning training runs on GPU nodes. See README.md."""
