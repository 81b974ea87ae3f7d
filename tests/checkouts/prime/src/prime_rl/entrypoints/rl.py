from prime_rl.launcher import rl as main  # noqa: F401
