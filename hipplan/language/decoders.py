"""Decoder-only language models by their config.json: the shapes of their weights, and of their key/value cache.

Published architectures whose layers all have the same attention: llama, mistral, qwen2, qwen3, mixtral, qwen3_moe. A
config.json comes from strangers: it is read with bounds, and what is wrong with it is a PlanError.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from hipplan.errors import Diagnostic, PlanError, reason_of
from hipplan.files import strict_json
from hipplan.files.dtypes import BY_NAME, meant_dtype
from hipplan.files.tensorfiles import TENSORS_MAX, ArrayInFile, is_safetensors
from hipplan.plain import called

_MOST_BYTES = 2**20
_MOST = 2**24
"""The largest number allowed in a config."""
_MIXTURES = ("mixtral", "qwen3_moe")
KNOWN = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe")


@dataclass(frozen=True)
class Decoder:
    """The figures of a config."""

    source: str
    """The path of the config."""
    kind: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    experts: int
    dtype: str
    """Name of the dtype in hipplan."""
    is_tied: bool
    """The output head uses the embedding's weights."""
    has_qkv_bias: bool
    has_o_bias: bool
    has_mlp_bias: bool
    is_quantized: bool

    def cache_bytes(self, dtype: str, ranks: int = 1) -> int:
        """Bytes of the keys and values of one token on each device. ranks: number of devices."""
        return prod(self.page_shape(1, ranks)) * BY_NAME[dtype].size

    def page_shape(self, tokens: int, ranks: int = 1) -> tuple[int, ...]:
        """The shape of one page of the cache: layer, key or value, token, head, element."""
        return self.layers, 2, tokens, self.kv_heads // ranks, self.head_dim

    def require_ranks(self, ranks: int) -> None:
        """Raises PlanError (HP421) if the heads cannot be split over so many devices."""
        for count, what in ((self.kv_heads, "key/value heads"), (self.heads, "attention heads")):
            if count % ranks:
                able = ", ".join(
                    str(n) for n in range(1, self.kv_heads + 1) if not (self.kv_heads % n or self.heads % n)
                )
                summary = f"{count} {what} cannot be split over {ranks} devices"
                raise PlanError(Diagnostic("HP421", summary, hint=f"--tp is one of {able}"))

    def entries(self) -> Iterator[ArrayInFile]:
        """Its weights, as in checkpoint files. Raises PlanError (HP421) if the config lacks a figure."""
        if self.is_quantized:
            why = "its weights are quantized, and config.json does not say how large that makes them"
            raise PlanError(Diagnostic("HP421", f"{self.source} alone is not enough", why=why, hint=_NEEDS_FILES))
        if self.layers * (12 + 3 * self.experts) > TENSORS_MAX:
            raise PlanError(Diagnostic("HP421", f"{self.source} asks for more than {TENSORS_MAX} tensors"))
        for name, shape in self._tensors():
            yield ArrayInFile(name, self.dtype, shape, 0, prod(shape) * BY_NAME[self.dtype].size)

    def _tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "model.embed_tokens.weight", (self.vocabulary, self.hidden)
        for layer in range(self.layers):
            for name, shape in self._layer():
                yield f"model.layers.{layer}.{name}", shape
        yield "model.norm.weight", (self.hidden,)
        if not self.is_tied:
            yield "lm_head.weight", (self.vocabulary, self.hidden)

    def _layer(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield "input_layernorm.weight", (self.hidden,)
        for name, rows in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
            yield f"self_attn.{name}.weight", (rows, self.hidden)
            if self.has_qkv_bias:
                yield f"self_attn.{name}.bias", (rows,)
        yield "self_attn.o_proj.weight", (self.hidden, queries)
        if self.has_o_bias:
            yield "self_attn.o_proj.bias", (self.hidden,)
        if self.kind in ("qwen3", "qwen3_moe"):
            yield "self_attn.q_norm.weight", (self.head_dim,)
            yield "self_attn.k_norm.weight", (self.head_dim,)
        yield "post_attention_layernorm.weight", (self.hidden,)
        yield from self._feed_forward()

    def _feed_forward(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        up, down = (self.intermediate, self.hidden), (self.hidden, self.intermediate)
        if self.kind not in _MIXTURES:
            for name, shape in (("gate_proj", up), ("up_proj", up), ("down_proj", down)):
                yield f"mlp.{name}.weight", shape
                if self.has_mlp_bias:
                    yield f"mlp.{name}.bias", shape[:1]
            return
        mixtral = self.kind == "mixtral"
        block = "block_sparse_moe" if mixtral else "mlp"
        names = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
        yield f"{block}.gate.weight", (self.experts, self.hidden)
        for expert in range(self.experts):
            for name, shape in zip(names, (up, up, down), strict=True):
                yield f"{block}.experts.{expert}.{name}.weight", shape


_NEEDS_FILES = "put the .safetensors files, or their index, beside it"


def read_config(path: str) -> Decoder:
    """A model's config.json. Raises PlanError: HP405 unreadable, HP422 damaged, HP421 an unknown model."""
    data = _data(path)
    kind = data.get("model_type")
    if kind not in KNOWN:
        why = f"its model_type is {kind!r}" if isinstance(kind, str) else "it has no model_type"
        hint = f"there are {', '.join(KNOWN)}; `hipplan import safetensors` takes the weights of any model"
        raise PlanError(Diagnostic("HP421", f"{path} is of no model that hipplan knows", why=why[:200], hint=hint))
    read = _ConfigReader(path, data)
    heads = read.count("num_attention_heads")
    hidden = read.count("hidden_size")
    mixture = kind in _MIXTURES
    if kind == "qwen3_moe" and (data.get("decoder_sparse_step", 1) != 1 or data.get("mlp_only_layers")):
        raise read.wrong("some of its layers have no experts, which is not known here", "HP421")
    return Decoder(
        source=path,
        kind=kind,
        hidden=hidden,
        layers=read.count("num_hidden_layers"),
        heads=heads,
        kv_heads=read.count("num_key_value_heads", heads),
        head_dim=read.count("head_dim", hidden // heads or None),
        intermediate=read.count("moe_intermediate_size" if kind == "qwen3_moe" else "intermediate_size"),
        vocabulary=read.count("vocab_size"),
        experts=read.count("num_experts" if kind == "qwen3_moe" else "num_local_experts") if mixture else 0,
        dtype=read.dtype(),
        is_tied=read.flag("tie_word_embeddings"),
        has_qkv_bias=kind == "qwen2" or read.flag("attention_bias"),
        has_o_bias=kind != "qwen2" and read.flag("attention_bias"),
        has_mlp_bias=kind == "llama" and read.flag("mlp_bias"),
        is_quantized=data.get("quantization_config") is not None,
    )


def _data(path: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise PlanError(Diagnostic("HP405", f"{path} cannot be read", why=reason_of(error))) from None
    try:
        data = strict_json.loads(text) if len(text) <= _MOST_BYTES else None
    except (ValueError, RecursionError) as error:
        hint = ""
        if is_safetensors(path):
            hint = (
                "pass the folder of the checkpoint or its config.json; `hipplan import safetensors` takes such a file"
            )
        why = "it is not text" if isinstance(error, UnicodeDecodeError) else str(error)[:200]
        raise PlanError(Diagnostic("HP422", f"{path} is not JSON", why=why, hint=hint)) from None
    if not isinstance(data, dict):
        why = "it is larger than any config" if data is None else f"it is {called(data)}"
        raise PlanError(Diagnostic("HP422", f"{path} is no model's config.json", why=why))
    return data


class _ConfigReader:
    """Reads the figures of a config and checks their bounds."""

    def __init__(self, path: str, data: dict[str, Any]) -> None:
        self._path = path
        self._data = data

    def wrong(self, why: str, code: str = "HP422", hint: str = "") -> PlanError:
        return PlanError(Diagnostic(code, f"{self._path} cannot be used", why=why, hint=hint))

    def count(self, key: str, otherwise: int | None = None) -> int:
        value = self._data.get(key)
        value = otherwise if value is None else value
        if value.__class__ is not int:
            raise self.wrong(f"its {key} is {'missing' if value is None else called(value)}")
        if not 1 <= value <= _MOST:
            raise self.wrong(f"its {key} is {str(value)[:30]}, not 1 to {_MOST}")
        return int(value)

    def flag(self, key: str) -> bool:
        value = self._data.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(f"its {key} is {called(value)}, not true or false")
        return bool(value)

    def dtype(self) -> str:
        key = "dtype" if "dtype" in self._data else "torch_dtype"
        name = self._data.get(key, "bfloat16")
        if not isinstance(name, str):
            raise self.wrong(f"its {key} is {called(name)}")
        if name not in BY_NAME:
            raise self.wrong(f"its {key}: there is no dtype '{name[:60]}'", hint=meant_dtype(name[:60]))
        return BY_NAME[name].name
