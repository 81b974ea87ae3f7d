from converting import FP8, convert_folder

convert_folder("-FP8", FP8)
