"""A model's first apply in a process, beside from_pretrained: from files in the page cache to parameters on a GPU.

    python benchmarks/model.py [--runtime cuda] [--layers 32] [--rounds 3] [--folder /dev/shm] [--json FILE]

The model has the shape of Llama-3.1-8B and random weights: 32 layers are 16 GB. Each time is of a process of its own,
which has imported its modules and made the device's context with PyTorch before. "first" is its first hipplan.apply of
the plan that `hipplan import safetensors` wrote, "second" the next one, after the first was closed. from_pretrained
loads the same files to the same device. One more process keeps a record of both applies: the driver calls that take
the most time are listed.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common import arguments, keep, opened, positive, table

MAKE = """
import sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(hidden_size=4096, intermediate_size=14336, num_hidden_layers=int(sys.argv[2]), vocab_size=128256,
                     num_attention_heads=32, num_key_value_heads=8, pad_token_id=0)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda:0" if torch.cuda.is_available() else "cpu"):
    model = LlamaForCausalLM(config)
model.cpu().save_pretrained(sys.argv[1], max_shard_size="4GB")
"""
HIPPLAN = """
import json, sys, time
import torch
import hipplan
plan, runtime, *record = sys.argv[1:]
if torch.cuda.is_available():
    torch.zeros(1, device="cuda:0")
times = []
for number in range(2):
    began = time.perf_counter()
    layout = hipplan.apply(plan, runtime=runtime, answer=False, record=f"{record[0]}.{number}" if record else None)
    times.append(time.perf_counter() - began)
    layout.close()
print(json.dumps({"first": times[0], "second": times[1]}))
"""
PRETRAINED = """
import json, sys, time
import torch
from transformers import LlamaForCausalLM
device = "cuda:0" if torch.cuda.is_available() else "cpu"
torch.zeros(1, device=device)
began = time.perf_counter()
model = LlamaForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16, device_map=device)
if torch.cuda.is_available():
    torch.cuda.synchronize()
print(json.dumps({"from_pretrained": time.perf_counter() - began}))
"""


def process(code: str, *given: object) -> Any:
    """What the last line says that a process prints."""
    command = [sys.executable, "-c", code, *map(str, given)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def slowest(record: Path) -> Counter[str]:
    """Driver call -> microseconds, all its steps together; "verify" is reading back."""
    took: Counter[str] = Counter()
    for event in map(json.loads, filter(None, record.read_text().splitlines())):
        if event["event"] == "step":
            took[event["call"]] += event["us"]
        elif event["event"] == "verify":
            took["verify"] += event["us"]
    return took


def calls(records: Iterable[Path]) -> list[tuple[str, float, float]]:
    first, second = (slowest(record) for record in records)
    names = sorted(first | second, key=lambda call: -max(first[call], second[call]))[:8]
    return [(call, first[call] / 1000, second[call] / 1000) for call in names]


def main() -> None:
    parser = arguments(__doc__ or "", rounds=3)
    parser.add_argument("--layers", type=positive, default=32)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    given = parser.parse_args()
    chosen = opened(given)
    if find_spec("transformers") is None or find_spec("torch") is None:
        print("not measured: it needs transformers and PyTorch")
        return
    folder = Path(tempfile.mkdtemp(prefix="hipplan-model-", dir=given.folder))
    try:
        subprocess.run([sys.executable, "-c", MAKE, str(folder), str(given.layers)], check=True)
        files = sorted(folder.glob("*.safetensors"))
        size = sum(file.stat().st_size for file in files)
        index = next(folder.glob("*.index.json"), files[0])
        plan = folder / "plan.yaml"
        subprocess.run(
            [sys.executable, "-m", "hipplan", "import", "safetensors", str(index), "-o", str(plan)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        rounds = [process(HIPPLAN, plan, chosen.kind) | process(PRETRAINED, folder) for _ in range(given.rounds)]
        took = {what: [times[what] for times in rounds] for what in rounds[0]}
        print(f"{size / 1e9:.2f} GB in {len(files)} files; medians of {given.rounds}")
        pretrained = statistics.median(took["from_pretrained"])
        rows = [(what, (s := statistics.median(each)), size / s / 1e9, s / pretrained) for what, each in took.items()]
        table(["", "s", "GB/s", "to from_pretrained"], rows)
        process(HIPPLAN, plan, chosen.kind, folder / "record")
        table(["ms, with a record", "first", "second"], calls(folder / f"record.{number}" for number in range(2)))
        keep(given.json, "model", chosen, took | {"bytes": size})
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
