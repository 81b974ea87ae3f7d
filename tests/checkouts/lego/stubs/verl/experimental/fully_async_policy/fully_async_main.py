"""The asynchronous entry of the stand-in trainer: the same step lines."""
from verl.trainer.main_ppo import main

if __name__ == "__main__":
    main()
