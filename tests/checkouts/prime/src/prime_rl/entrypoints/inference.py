from prime_rl.parts import inference as main  # noqa: F401
