"""The docstrings of the models' fields: for the reference and the JSON schema. Read from the source, on demand."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from itertools import pairwise

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
