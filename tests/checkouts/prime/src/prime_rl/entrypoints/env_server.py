from prime_rl.parts import env_server as main  # noqa: F401
