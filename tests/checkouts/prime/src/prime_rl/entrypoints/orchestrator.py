from prime_rl.parts import orchestrator as main  # noqa: F401
