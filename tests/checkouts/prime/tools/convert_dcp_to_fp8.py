from converting import FP8, convert_checkpoint

convert_checkpoint("-FP8", **FP8)
