from prime_rl.configs.kinds import SFTConfig  # noqa: F401
