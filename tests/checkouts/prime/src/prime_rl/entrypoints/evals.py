from prime_rl.parts import evals as main  # noqa: F401
