"""Write a checkpoint of the smallest Pythia with random weights and data, for litgpt: ``... FOLDER TOKENIZER``."""

import json
import shutil
import sys
from pathlib import Path

import torch
from litgpt import GPT, Config
from litgpt.utils import save_config

folder, tokenizer = map(Path, sys.argv[1:])
folder.mkdir()
config = Config.from_name("pythia-14m")
torch.save(GPT(config).state_dict(), folder / "lit_model.pth")
save_config(config, folder)
for name in ("tokenizer.json", "tokenizer_config.json"):
    shutil.copy(tokenizer / name, folder)
line = {"instruction": "name the tide", "input": "", "output": "the tide rises and falls at dawn and at dusk"}
(folder / "data.json").write_text(json.dumps([line] * 100))
