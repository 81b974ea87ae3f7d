from prime_rl.configs.kinds import InferenceConfig  # noqa: F401
