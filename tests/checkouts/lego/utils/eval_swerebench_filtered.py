"""Stand-in for the rollout of infer: the same trials as the harbor stand-in."""
import os
import runpy

runpy.run_path(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "stubs", "bin", "harbor"))
