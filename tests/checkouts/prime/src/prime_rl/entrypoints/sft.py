from prime_rl.launcher import sft as main  # noqa: F401
