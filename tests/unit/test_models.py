"""Plans for models, from their published configs: weights to the byte, and the largest cache that fits."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from math import prod
from pathlib import Path
from typing import Any

import numpy
import pytest

import hipplan
from hipplan.errors import MachineError, PlanError
from hipplan.files.dtypes import BY_NAME
from hipplan.language.canonical import canonical
from hipplan.language.decoders import read_config
from hipplan.language.serving import Model, plan_text, read_model
from hipplan.language.source import load_yaml
from hipplan.machines.machine import Machine
from hipplan.machines.profiles import load_machine
from hipplan.program.fitting import fitted
from hipplan.program.open_sizes import KeptFree
from tests.conftest import ROOT

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
    "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8, "tie_word_embeddings": False,
    "attention_bias": False, "mlp_bias": False, "torch_dtype": "bfloat16", "vocab_size": 128256,
}  # fmt: skip
QWEN: dict[str, Any] = {
    "model_type": "qwen2", "hidden_size": 8192, "intermediate_size": 29568, "num_attention_heads": 64,
    "num_hidden_layers": 80, "num_key_value_heads": 8, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "vocab_size": 152064, "sliding_window": 131072, "use_sliding_window": False,
}  # fmt: skip
MIXTRAL: dict[str, Any] = {
    "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 32000, "sliding_window": None,
}  # fmt: skip
PUBLISHED: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "Llama-3-70B": (LLAMA, 723, 70_553_706_496, 327_680),
    "Llama-3.1-8B": (
        LLAMA | {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32},
        291, 8_030_261_248, 131_072,
    ),
    "Llama-3.2-3B": (
        LLAMA | {"hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 24, "num_hidden_layers": 28,
                 "head_dim": 128, "tie_word_embeddings": True},
        254, 3_212_749_824, 114_688,
    ),
    "Qwen2.5-72B": (QWEN, 963, 72_706_203_648, 327_680),
    "Qwen2.5-7B": (
        QWEN | {"hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28, "num_hidden_layers": 28,
                "num_key_value_heads": 4},
        339, 7_615_616_512, 57_344,
    ),
    "Qwen2-0.5B": (
        QWEN | {"hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14, "num_hidden_layers": 24,
                "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True},
        290, 494_032_768, 12_288,
    ),
    "Qwen3-8B": (
        QWEN | {"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32,
                "num_hidden_layers": 36, "head_dim": 128, "vocab_size": 151936, "attention_bias": False},
        399, 8_190_735_360, 147_456,
    ),
    "Qwen3-30B-A3B": (
        QWEN | {"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 32,
                "num_hidden_layers": 48, "head_dim": 128, "vocab_size": 151936, "num_key_value_heads": 4,
                "moe_intermediate_size": 768, "num_experts": 128, "decoder_sparse_step": 1, "mlp_only_layers": []},
        18867, 30_532_122_624, 98_304,
    ),
    "Mixtral-8x7B": (MIXTRAL, 995, 46_702_792_704, 131_072),
}  # fmt: skip
"""Config -> tensors and parameters as published, and bytes of the cache for a token: the model cards and the metadata
of the .safetensors indices."""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def writes(config: dict[str, Any] | str, **more: Any) -> Path:
        text = config if isinstance(config, str) else json.dumps(config | more)
        (tmp_path / "config.json").write_text(text)
        return tmp_path

    return writes


@pytest.mark.parametrize("name", PUBLISHED)
def test_weights_and_cache_are_those_of_the_published_model(name: str, write: Write) -> None:
    config, tensors, parameters, cache = PUBLISHED[name]
    model = read_model(str(write(config)), 1)

    assert len(model.weights) == tensors
    assert sum(prod(weight.shape) for weight in model.weights) == parameters
    assert model.weight_bytes == 2 * parameters
    assert model.decoder.cache_bytes("bf16") == cache
    assert model.page_bytes == 16 * cache


def taken(text: str, machine: Machine) -> dict[int, int]:
    """Device memory of a plan, by ordinal."""
    program = hipplan.compile(hipplan.load(StringIO(text)), machine)
    collected: dict[int, int] = {}
    for step in program.steps:
        if step.call == "hipMemCreate":
            collected[step.device] = collected.get(step.device, 0) + step.size  # type: ignore[attr-defined]
    return collected


@pytest.mark.in_parts
@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize(("machine", "ranks"), [("mi300x-8", 1), ("mi300x-8", 2), ("h200-4", 2), ("sim-2", 1)])
def test_fill_takes_all_but_the_reserve(name: str, machine: str, ranks: int, write: Write) -> None:
    there = load_machine(machine)
    config, *_ = PUBLISHED[name]
    small = config | {"num_hidden_layers": 2} if "sim" in machine or "num_experts" in config else config
    if "sim" in machine:
        small |= {"vocab_size": 512, "num_local_experts": 2, "num_experts": 2}
    model = read_model(str(write(small)), ranks)
    try:
        cache = fitted(model, there, None, KeptFree(share=0.1))
    except MachineError as error:
        assert error.diagnostics[0].code == "HP301"
        return
    memory = there.devices[0].memory
    assert memory is not None
    text = plan_text(model, cache, 2**20)
    used = taken(text, there)

    assert len(used) == ranks
    room = [memory - int(memory * 0.1) - item for item in used.values()]
    assert all(item >= 0 for item in room)
    assert min(room) < 2 * 2**21, "one more step would not fit"
    assert hipplan.compile(hipplan.load(StringIO(text)), there).warnings == ()


@pytest.mark.parametrize("name", ["Llama-3-70B", "Mixtral-8x7B", "Qwen3-8B"])
def test_what_is_missing_is_reported_to_the_byte(name: str, write: Write) -> None:
    """With so many bytes more it fits, and with one less it does not."""
    model = read_model(str(write(PUBLISHED[name][0])), 1)
    machine = load_machine("h200-1")

    def with_memory(size: int) -> Machine:
        device = machine.devices[0].model_copy(update={"memory": size, "in_use": 0})
        return machine.model_copy(update={"devices": [device]})

    reserve = KeptFree(size=2**30)
    with pytest.raises(MachineError) as caught:
        fitted(model, with_memory(2**33), 2**34, reserve)
    reported = caught.value.diagnostics[0]
    missing = int(reported.summary.partition("lacks ")[2].partition(" bytes")[0])

    assert reported.code == "HP301"
    assert caught.value.exit_code == 3
    assert str(2**34) in reported.why
    assert fitted(model, with_memory(2**33 + missing), 2**34, reserve) == 2**34
    with pytest.raises(MachineError, match="lacks 1 bytes"):
        fitted(model, with_memory(2**33 + missing - 1), 2**34, reserve)


def test_unknown_memory_sizes_are_reported(write: Write) -> None:
    machine = load_machine("h200-1")
    unknown = machine.model_copy(update={"devices": [machine.devices[0].model_copy(update={"memory": None})]})
    with pytest.raises(MachineError, match=r"HP301.*the memory of a device is unknown"):
        fitted(read_model(str(write(QWEN)), 1), unknown, None, KeptFree())


def test_too_few_devices_are_reported(write: Write) -> None:
    with pytest.raises(MachineError, match="HP310"):
        fitted(read_model(str(write(QWEN)), 8), load_machine("h200-4"), None, KeptFree())


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_tensors_and_cache_are_split_over_the_devices(ranks: int, write: Write) -> None:
    model = read_model(str(write(LLAMA)), ranks)
    machine = load_machine("mi300x-8")
    program = hipplan.compile(hipplan.load(StringIO(plan_text(model, 2**33, 0))), machine)
    norms = (2 * 80 + 1) * 8192 * 2
    tensors = [
        resource for resource in program.resources if resource.kind == "tensor" and resource.inside.startswith("rank")
    ]
    pages = next(resource for resource in program.resources if resource.name == "kv.0.pages")

    assert len(tensors) == 723 * ranks
    assert sum(tensor.size for tensor in tensors) == 141_107_412_992 + (ranks - 1) * norms
    assert pages.shape == (2**33 // (16 * 327_680 // ranks), 80, 2, 16, 8 // ranks, 128)


@pytest.mark.in_parts
@pytest.mark.parametrize(
    ("name", "ranks", "lines"),
    [("Llama-3-70B", 8, 50), ("Mixtral-8x7B", 8, 50), ("Qwen3-30B-A3B", 2, 50), ("Qwen3-30B-A3B", 4, 30_000)],
)
def test_the_plan_names_each_tensor_once_in_few_lines(name: str, ranks: int, lines: int, write: Write) -> None:
    """Of more than a document may repeat it writes each on a line."""
    config, *_ = PUBLISHED[name]
    layers = 16 if "num_experts" in config else config["num_hidden_layers"]
    model = read_model(str(write(config, num_hidden_layers=layers)), ranks)
    text = plan_text(model, 2**30, 2**20)
    result = hipplan.compile(hipplan.load(StringIO(text)), load_machine("mi300x-8")).resources

    assert len(text.splitlines()) < lines
    assert canonical(load_yaml(StringIO(text))) == text
    for rank in range(ranks):
        assert len({item.name for item in result if item.kind == "tensor" and item.inside == f"rank.{rank}"}) == len(
            model.weights
        )


TINY: dict[str, Any] = LLAMA | {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 128,
                                "num_hidden_layers": 2, "num_key_value_heads": 2, "torch_dtype": "float32"}  # fmt: skip


def with_files(folder: Path, *, index: bool = False, **changed: tuple[int, ...]) -> dict[str, Any]:
    """Weights beside a config, as a .safetensors library writes them; changed: shapes of tensors, () for none."""
    model = read_config(str(folder / "config.json"))
    generator = numpy.random.default_rng(5)
    tensors = {}
    for entry in model.entries():
        shape = changed.get(entry.name.replace(".", "_"), entry.shape)
        if shape:
            tensors[entry.name] = generator.random(shape, "f4")
    header: dict[str, Any] = {}
    at = 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    head = json.dumps(header).encode()
    body = b"".join(array.tobytes() for array in tensors.values())
    file = folder / ("model-1.safetensors" if index else "model.safetensors")
    file.write_bytes(len(head).to_bytes(8, "little") + head + body)
    if index:
        names = json.dumps({"weight_map": dict.fromkeys(tensors, file.name)})
        (folder / "model.safetensors.index.json").write_text(names)
    return tensors


def test_a_config_of_another_model_is_refused(write: Write) -> None:
    folder = write(TINY)
    with_files(folder, model_layers_1_self_attn_k_proj_weight=(64, 64))
    with pytest.raises(PlanError, match=r"HP421.*another model(?s:.*)'model\.layers\.1\.self_attn\.k_proj\.weight' is"):
        read_model(str(folder), 1)
    with_files(folder, lm_head_weight=())
    with pytest.raises(PlanError, match=r"HP421.*are not all of the model(?s:.*)'lm_head\.weight'"):
        read_model(str(folder), 1)


def test_quantized_weights_are_those_of_the_files(write: Write) -> None:
    folder = write(TINY, quantization_config={"quant_method": "fp8"})
    with pytest.raises(PlanError, match=r"HP421.*alone is not enough"):
        read_model(str(folder), 1)
    write(TINY)
    with_files(folder)
    write(TINY, quantization_config={"quant_method": "fp8"})
    assert read_model(str(folder), 1).weights


@pytest.mark.parametrize("dtype", ["f8_e4m3fn", "float8_e5m2", "float16"])
def test_the_cache_may_have_another_dtype(dtype: str, write: Write) -> None:
    model: Model = read_model(str(write(LLAMA)), 8, dtype)
    assert model.page_bytes == 16 * 40_960 // 2 * BY_NAME[dtype].size
    assert f"dtype: {BY_NAME[dtype].name}, shape: [-1, 80" in plan_text(model, 2**30, 0)
    with pytest.raises(PlanError, match=r"HP104.*there is no dtype 'f8' for the cache\n  hint: one of f8_e4m3fn, "):
        read_model(str(write(LLAMA)), 1, "f8")


@pytest.mark.parametrize("ranks", [3, 16])
def test_heads_that_cannot_be_split_are_refused(ranks: int, write: Write) -> None:
    with pytest.raises(PlanError, match=r"HP421.*8 key/value heads cannot be split over(?s:.*)one of 1, 2, 4, 8"):
        read_model(str(write(LLAMA)), ranks)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("", "HP422.*is not JSON"),
        ("[1]", "HP422.*no model's config.json"),
        ('{"model_type": NaN}', "HP422"),
        ("[" * 100_000, "HP422"),
        (" " * 2**21, "HP422.*no model's config.json"),
        ("{}", "HP421(?s:.*)no model_type"),
        (LLAMA | {"model_type": "mamba"}, "HP421(?s:.*)'mamba'(?s:.*)there are llama, mistral"),
        (LLAMA | {"model_type": 5}, "HP421"),
        (LLAMA | {"hidden_size": "many"}, "HP422(?s:.*)its hidden_size is"),
        (LLAMA | {"hidden_size": 0}, "HP422(?s:.*)its hidden_size is 0"),
        (LLAMA | {"num_hidden_layers": 10**30}, "HP422(?s:.*)its num_hidden_layers"),
        (LLAMA | {"num_hidden_layers": 2**23}, "HP421(?s:.*)more than 250000 tensors"),
        (LLAMA | {"vocab_size": None}, "HP422(?s:.*)its vocab_size is missing"),
        (LLAMA | {"vocab_size": True}, "HP422(?s:.*)its vocab_size is"),
        (LLAMA | {"torch_dtype": "int4"}, "HP422(?s:.*)its torch_dtype: there is no dtype 'int4'\n(?s:.*)8 bits"),
        (LLAMA | {"dtype": "float7"}, "HP422(?s:.*)its dtype: there is no dtype 'float7'\n(?s:.*)'float'"),
        (LLAMA | {"torch_dtype": 7}, "HP422(?s:.*)its torch_dtype is an integer"),
        (LLAMA | {"tie_word_embeddings": "yes"}, "HP422(?s:.*)tie_word_embeddings"),
        (LLAMA | {"num_attention_heads": 2**20}, "HP422(?s:.*)head_dim is missing"),
        (MIXTRAL | {"num_local_experts": -1}, "HP422(?s:.*)num_local_experts"),
        (PUBLISHED["Qwen3-30B-A3B"][0] | {"mlp_only_layers": [0]}, "HP421(?s:.*)no experts"),
    ],
)
def test_errors_of_a_wrong_config(config: Any, message: str, write: Write) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        read_model(str(write(config)), 1)
    assert caught.value.exit_code == 2


def test_the_error_of_a_missing_config(tmp_path: Path) -> None:
    for given in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(PlanError, match="HP405"):
            read_model(str(given), 1)


def test_the_shipped_plan_is_what_import_writes(write: Write) -> None:
    folder = write(MIXTRAL)
    shipped = (ROOT / "plans" / "mi300x-8" / "mixtral-8x7b.yaml").read_text()
    model = read_model(str(folder / "config.json"), 2)
    cache = fitted(model, load_machine("mi300x-8"), None, KeptFree(share=0.1))
    written = plan_text(model, cache, 64 * 2**20)
    begin = written.index("devices:")

    assert shipped[shipped.index("devices:") :] == written[begin:]
