"""All models of a document, and the docstrings of their fields: for the reference and the JSON schema. Both are read on
demand, the docstrings from the source."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from itertools import pairwise
from typing import Any, get_args, get_origin

from pydantic import BaseModel


@cache
def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """Field -> the docstring below it, in its class or in a base class."""
    docs: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            docs |= _docs_of_class(owner)
    return {name: docs[name] for name in model.model_fields if name in docs}


def _docs_of_class(owner: type) -> dict[str, str]:
    (definition,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(owner))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value).strip()
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def models_below(root: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """The models of what a document may have below a model, by name, in the order in which a reader meets them."""
    known: dict[str, type[BaseModel]] = {}

    def meet(model: type[BaseModel]) -> None:
        for field in model.model_fields.values():
            for inner in _models_in(field.annotation):
                if inner.__name__ not in known:
                    known[inner.__name__] = inner
                    meet(inner)

    meet(root)
    return known


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and not get_origin(annotation):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for inner in get_args(annotation) for model in _models_in(inner)]
