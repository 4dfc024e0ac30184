"""Contents and checkpoints from the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import numpy
import pytest

import hipplan as library
from hipplan.language.checkpoints import plan_of
from tests.cli.conftest import Run, command
from tests.conftest import ROOT
from tests.pauses import Pause

DATA = ROOT / "plans" / "data"


def test_apply_loads_and_saves(hipplan: Run, tmp_path: Path) -> None:
    saves = ["--save", f"mirror={tmp_path / 'm.bin'}", "--save", f"layer.wq={tmp_path / 'wq.npy'}"]
    saves += ["--save", f"layer={tmp_path / 'layer.safetensors'}"]
    result = hipplan("apply", ROOT / "plans" / "contents.yaml", "--runtime", "sim", "--once", *saves)

    assert result.returncode == 0, result.stderr
    assert (tmp_path / "m.bin").read_bytes() == (DATA / "particles.bin").read_bytes()
    assert numpy.load(tmp_path / "wq.npy").tolist() == numpy.arange(24.0).reshape(4, 6).tolist()
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(("save", "why"), [("mirror", "is not NAME=FILE"), ("miror=x", "did you mean 'mirror'?")])
def test_a_save_that_is_wrong_is_reported_before_anything_is_done(save: str, why: str, hipplan: Run) -> None:
    result = hipplan("apply", ROOT / "plans" / "contents.yaml", "--runtime", "sim", "--once", "--save", save)

    assert result.returncode == 2
    assert why in result.stderr


@pytest.mark.parametrize(
    ("save", "code", "why"),
    [
        ("layer.norm={}/norm.npy", "HP421", "NumPy has no bf16"),
        ("layer={}/layer.npy", "HP421", "'layer' is a region"),
        ("mirror={}/none/m.bin", "HP413", "No such file or directory"),
        ("mirror={}", "HP413", "it is a folder"),
        ("mirror=/dev/full", "HP413", "it is not a regular file"),
        ("mirror=/dev/stdout", "HP413", "it is not a regular file"),
    ],
)
def test_what_cannot_be_saved_is_reported_before_the_first_call(
    save: str, code: str, why: str, hipplan: Run, tmp_path: Path
) -> None:
    line = ["apply", ROOT / "plans" / "contents.yaml", "--runtime", "sim", "--save", save.format(tmp_path)]
    result = hipplan(*line)  # without --once: it would hold

    assert (result.returncode, result.stdout) == (2, "")
    assert f"error[{code}]" in result.stderr
    assert why in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_save_that_fails_is_reported_and_the_layout_is_torn_down(hipplan: Run, tmp_path: Path) -> None:
    plan = '{"hipplan": 1, "buffers": {"b": {"kind": "device", "size": 64}}}'
    line = ["apply", "-", "--runtime", "sim", "--once", "--save", f"b={tmp_path / 'b.bin'}"]
    result = hipplan(*line, stdin=plan, env={"HIPSIM_FAIL": "hipMemcpyAsync@1+=hipErrorInvalidValue"})

    assert result.returncode == 4
    assert "hipMemcpyAsync failed for 'b'" in result.stderr
    assert "nothing leaked" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_whole_registered_file_is_saved(hipplan: Run, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(bytes(range(256)) * 16)
    (tmp_path / "plan.yaml").write_text("hipplan: 1\nbuffers: {x: {kind: registered, file: data.bin}}\n")
    save = f"x={tmp_path / 'x.npy'}"
    result = hipplan("apply", tmp_path / "plan.yaml", "--runtime", "sim", "--once", "--save", save)

    assert result.returncode == 0, result.stderr
    assert numpy.load(tmp_path / "x.npy").tobytes() == (tmp_path / "data.bin").read_bytes()


def test_a_missing_file_is_reported_with_its_place(hipplan: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("hipplan: 1\nbuffers: {b: {kind: device, size: 64}}\ncontents: {b: {file: none.bin}}\n")
    result = hipplan("apply", plan, "--runtime", "sim", "--once")

    assert result.returncode == 4
    assert f"{plan}:3:22: error[HP405]: {tmp_path / 'none.bin'} cannot be read" in result.stderr


def test_a_signal_stops_a_load_and_rolls_back(tmp_path: Path) -> None:
    (tmp_path / "zeros.bin").write_bytes(b"")
    with (tmp_path / "zeros.bin").open("r+b") as file:
        file.truncate(2**30)
    plan = tmp_path / "plan.yaml"
    plan.write_text("hipplan: 1\nbuffers: {b: {kind: device, size: 1GiB}}\ncontents: {b: {file: zeros.bin}}\n")
    ledger, trace, pause = tmp_path / "ledger.json", tmp_path / "trace", Pause(tmp_path, "hipMemcpyAsync@2")
    env = {
        "HIPSIM_LEDGER_AT_EXIT": str(ledger),
        "HIPSIM_TRACE": str(trace),
        "HIPSIM_FAIL": pause.rule,
    }
    process = subprocess.Popen(
        command("apply", plan, "--runtime", "sim", "--once"),
        stderr=subprocess.PIPE,
        text=True,
        env={**__import__("os").environ, **env},
    )
    with pause.under_way():
        process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=600)

    assert process.returncode == 143
    assert "SIGTERM: rolled back" in err
    assert json.loads(ledger.read_text())["buffers"] == []
    assert trace.read_text().count("hipMemcpyAsync") < 2**30 // 2**22


def test_an_imported_checkpoint_applies_and_loads(hipplan: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    assert hipplan("import", "safetensors", DATA / "layer.safetensors", "-o", plan).returncode == 0
    assert hipplan("fmt", "--check", plan).returncode == 0
    result = hipplan("apply", plan, "--runtime", "sim", "--once", "--save", f"rank.0={tmp_path / 'back.safetensors'}")

    assert result.returncode == 0, result.stderr
    assert (tmp_path / "back.safetensors").read_bytes()[-124:] == (DATA / "layer.safetensors").read_bytes()[-124:]


@pytest.mark.parametrize(
    ("data", "code"),
    [(None, "HP405"), (b"\xff" * 8 + b"{}", "HP422"), (b"\2\0\0\0\0\0\0\0[]", "HP422"), (b"", "HP422")],
)
def test_hostile_checkpoints_are_diagnostics(data: bytes | None, code: str, hipplan: Run, tmp_path: Path) -> None:
    if data is not None:
        (tmp_path / "m.safetensors").write_bytes(data)
    result = hipplan("import", "safetensors", tmp_path / "m.safetensors")

    assert result.returncode == 2
    assert f"error[{code}]" in result.stderr
    assert result.stdout == ""


def test_a_checkpoint_whose_name_no_plan_can_hold(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    file = write(folder / "m.safetensors", a=("F32", [4]))

    # from there the file has a name that is text
    assert "file: m.safetensors}" in plan_of(str(file), 1, str(folder)).text
    with pytest.raises(library.PlanError, match=r"HP405.*\ufffd/m\.safetensors' is not text"):
        plan_of(str(file), 1, str(tmp_path))


@pytest.mark.parametrize("tensors", [{}, {"a": ("F32", [0])}])
def test_a_checkpoint_without_a_byte_makes_no_plan(tensors: dict[str, tuple[str, list[int]]], tmp_path: Path) -> None:
    file = write(tmp_path / "m.safetensors", **tensors)
    with pytest.raises(library.PlanError, match=r"HP421.*m\.safetensors"):
        plan_of(str(file))


def test_what_is_imported_is_reported_exactly(tmp_path: Path) -> None:
    text = plan_of(str(write(tmp_path / "m.safetensors", a=("F32", [4])))).text
    write(tmp_path / "m-2.safetensors", b=("F4", [4]))
    (index := tmp_path / "m.safetensors.index.json").write_text('{"weight_map": {"b": "m-2.safetensors"}}')

    assert text.startswith("# 1 tensor, 16 bytes. ")
    assert "# rank.0 on gpu.0\n" in text
    with pytest.raises(library.PlanError, match=r"HP104.*'b' in .*m-2\.safetensors"):
        plan_of(str(index))


def write(path: Path, **tensors: tuple[str, list[int]]) -> Path:
    """A file of zeros."""
    header, end = {}, 0
    sizes = {"BF16": 2, "F32": 4, "I8": 1, "F4": 1}
    for name, (dtype, shape) in tensors.items():
        size = int(numpy.prod(shape)) * sizes[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))
    return path


def test_tensor_parallel_splits_by_the_name_of_the_module(tmp_path: Path) -> None:
    prefix = "model.layers.0."
    file = write(tmp_path / "m.safetensors", **{
        prefix + "self_attn.q_proj.weight": ("BF16", [8, 6]), prefix + "self_attn.q_proj.bias": ("BF16", [8]),
        prefix + "self_attn.o_proj.weight": ("BF16", [6, 8]), prefix + "self_attn.o_proj.bias": ("BF16", [6]),
        prefix + "norm.weight": ("F32", [8]), prefix + "self_attn.k_proj.weight": ("BF16", [3, 6]),
        "lm_head.weight": ("BF16", [10, 6]),
    })  # fmt: skip
    plan = tmp_path / "plan.yaml"
    text, whole, split, *sizes = plan_of(str(file), 2, str(tmp_path))
    assert (whole, split) == ((prefix + "self_attn.k_proj.weight",), 4)
    assert sizes == [7, 408, (96 + 16 + 96 + 120) // 2 + 12 + 32 + 36]  # tensors, bytes, bytes on each device
    assert "k_proj.weight: {dtype: bf16, shape: [3, 6]}  # whole: 2 does not divide 3\n" in text
    plan.write_text(text)
    with library.apply(plan, runtime="sim") as layout:
        shapes = {name.removeprefix("rank.1."): layout[name].shape for name in layout if name.startswith("rank.1.")}

        assert shapes == {
            prefix + "self_attn.q_proj.weight": (4, 6), prefix + "self_attn.q_proj.bias": (4,),
            prefix + "self_attn.o_proj.weight": (6, 4), prefix + "self_attn.o_proj.bias": (6,),
            prefix + "norm.weight": (8,), prefix + "self_attn.k_proj.weight": (3, 6), "lm_head.weight": (5, 6),
        }  # fmt: skip
        assert layout["rank.1.lm_head.weight"].device == "gpu.1"


def test_names_that_a_plan_cannot_have_are_distinguished(tmp_path: Path) -> None:
    names = [
        "a/b",
        "a:b",
        "a_b",
        "0.weight",
        "x..y",
        "$(n)",
        "true",
        "n" * 300,
        "\u00e9\n# x: y",
        "\"'{}[],&*#?|-<>=!%@",
    ]
    file = write(tmp_path / "m.safetensors", **{name: ("I8", [3]) for name in names}, empty=("I8", [0, 4]))
    plan = tmp_path / "plan.yaml"
    plan.write_text(plan_of(str(file), 1, str(tmp_path)).text)
    with library.apply(plan, runtime="sim") as layout:
        assert sum(layout[name].kind == "tensor" for name in layout) == len(names)


def test_tensors_that_the_devices_cannot_share_are_reported(hipplan: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "m.safetensors", **{"lm_head.weight": ("I8", [6, 2]), "a.w1.weight": ("I8", [7, 2])})
    done = hipplan("import", "safetensors", file, "--tp", "7")

    assert done.returncode == 0
    assert "warning: 7 does not divide 1 of 2 tensors that would be split" in done.stderr
    assert done.stderr.endswith("each device gets a full copy: lm_head.weight\n")


def test_a_tensor_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(library.PlanError, match=r"HP421.*a tensor without a name"):
        plan_of(str(write(tmp_path / "m.safetensors", **{"": ("I8", [1])})))


def test_an_unknown_dtype(tmp_path: Path) -> None:
    file = write(tmp_path / "m.safetensors", a=("F4", [4]))
    with pytest.raises(library.PlanError, match="there is no dtype 'F4'"):
        plan_of(str(file))


def test_preview_says_how_much_is_pinned_to_move_bytes(hipplan: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(
        "hipplan: 1\ndevices: {gpu: {count: 2}}\n"
        "buffers: {a: {kind: device, size: 8GiB}, b: {kind: device, device: gpu.1, size: 1MiB}}\n"
        "contents: {a: {file: a.bin}, b: {file: b.bin}}\n"
    )
    done = hipplan("preview", path, "--machine", "sim-2")

    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("device memory: gpu.0 8GiB, gpu.1 1MiB; pinned to move bytes: 65MiB")
