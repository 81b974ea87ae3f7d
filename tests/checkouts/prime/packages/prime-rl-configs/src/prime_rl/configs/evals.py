from prime_rl.configs.kinds import EvalsConfig  # noqa: F401
