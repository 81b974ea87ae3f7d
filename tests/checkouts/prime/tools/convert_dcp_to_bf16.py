from converting import convert_checkpoint

convert_checkpoint("")
