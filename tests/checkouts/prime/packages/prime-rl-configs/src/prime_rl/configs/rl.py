from prime_rl.configs.kinds import RLConfig  # noqa: F401
