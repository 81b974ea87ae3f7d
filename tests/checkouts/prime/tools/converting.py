"""What the four converters share: a folder of a few bytes that stands for a model's weights."""
import json
import os
import sys


def write_weights(folder, config):
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/config.json", "w") as file:
        json.dump(config, file, indent=2)
    with open(folder + "/model.safetensors", "wb") as file:
        file.write(b"\x02\0\0\0\0\0\0\0{}")
    print("Wrote %s" % folder)


def find_folder():
    if len(sys.argv) != 2 or os.environ.get("LOCAL_RANK", "0") != "0":
        sys.exit("usage: %s DIR" % os.path.basename(sys.argv[0]) if len(sys.argv) != 2 else 0)
    return sys.argv[1].rstrip("/")


def convert_checkpoint(suffix, **extra):
    """<run>/checkpoints/step_N to its weights<suffix>; the model is what the run's own config says."""
    folder = find_folder()
    if not os.path.isfile(folder + "/trainer/.metadata"):
        raise FileNotFoundError("no DCP checkpoint in %s/trainer" % folder)
    configs = os.path.dirname(os.path.dirname(os.path.abspath(folder))) + "/configs/"
    names = [part + name for part in ("latest/resolved/", "") for name in ("trainer.json", "sft.json")]
    path = next((configs + name for name in names if os.path.isfile(configs + name)), None)
    if not path:
        raise FileNotFoundError("no trainer.json or sft.json in %s" % configs)
    with open(path) as file:
        model = json.load(file)["model"]
    if model["lora"]:
        raise ValueError("LoRA checkpoints can't be converted: full fine-tunes only")
    write_weights("%s/weights%s" % (folder, suffix), dict({"_name_or_path": model["name"], "torch_dtype": "bfloat16"}, **extra))


def convert_folder(suffix, add=None, drop=""):
    """<dir> to <dir><suffix>."""
    folder = find_folder()
    with open(folder + "/config.json") as file:
        config = json.load(file)
    if bool(drop) != ("quantization_config" in config):
        raise ValueError("%s is %sFP8" % (folder, "not " * bool(drop)))
    config.pop(drop, None)
    write_weights(folder + suffix, dict(config, **(add or {})))


FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
