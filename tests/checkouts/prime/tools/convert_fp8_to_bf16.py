from converting import convert_folder

convert_folder("-BF16", drop="quantization_config")
