"""The constructor parameters of a plug-in, read from its source without importing it."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sage.config.source import Module, TargetError, locate

_EMPTY_BASES = frozenset({"abc.ABC", "typing.Protocol", "typing.Generic", "object", "builtins.object"})
_CONTAINERS: tuple[Any, ...] = (list, tuple, set, frozenset, dict, Mapping, Sequence)
_PLAIN: dict[str, Any] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "None": None,
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "Mapping": Mapping,
    "Sequence": Sequence,
    "Path": Path,
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One constructor parameter."""

    expected: Any
    """Its annotation as a type of plain values; ``Any`` where it says nothing about a yaml value."""
    required: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """What a constructor takes."""

    parameters: dict[str, Parameter]
    is_open: bool = False
    """Whether further keys may be taken: ``**kwargs``, or a base class whose source cannot be read."""


def signature_of(target: str) -> Signature | None:
    """The parameters of the class or function ``target``; ``None`` where there is no source to read.

    Raises:
        TargetError: the target does not exist.
    """
    found = locate(target)
    if found is None:
        return None
    module, node = found
    if isinstance(node, ast.FunctionDef):
        return _of_function(module, node, skip_first=False)
    return _of_class(module, node)


def _of_class(module: Module, node: ast.ClassDef) -> Signature:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            return _of_function(module, statement, skip_first=True)
    bases = [_of_base(module, base) for base in node.bases]
    if not _is_dataclass(node):
        return next((base for base in bases if base is not None), Signature({}))
    parameters: dict[str, Parameter] = {}
    for base in reversed(bases):
        parameters |= base.parameters if base is not None else {}
    parameters |= _own_fields(module, node)
    return Signature(parameters, is_open=any(base is not None and base.is_open for base in bases))


def _of_base(module: Module, base: ast.expr) -> Signature | None:
    """What a base class takes; ``None`` for one that takes nothing by design."""
    dotted = module.dotted(base.value if isinstance(base, ast.Subscript) else base)
    if dotted in _EMPTY_BASES:
        return None
    try:
        signature = signature_of(dotted)
    except TargetError:
        signature = None
    return Signature({}, is_open=True) if signature is None else signature


def _own_fields(module: Module, node: ast.ClassDef) -> dict[str, Parameter]:
    fields: dict[str, Parameter] = {}
    for statement in node.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if "ClassVar" in ast.unparse(statement.annotation):
            continue
        options = _field_options(statement.value)
        if isinstance(options.get("init"), ast.Constant) and ast.unparse(options["init"]) == "False":
            continue
        has_default = bool(options.keys() & {"default", "default_factory"}) or (
            statement.value is not None and not _is_field_call(statement.value)
        )
        fields[statement.target.id] = Parameter(_expected(module, statement.annotation), not has_default)
    return fields


def _is_field_call(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "field"


def _field_options(value: ast.expr | None) -> dict[str, ast.expr]:
    if not isinstance(value, ast.Call) or not _is_field_call(value):
        return {}
    return {keyword.arg: keyword.value for keyword in value.keywords if keyword.arg is not None}


def _is_dataclass(node: ast.ClassDef) -> bool:
    calls = [item.func if isinstance(item, ast.Call) else item for item in node.decorator_list]
    return any(ast.unparse(call).rpartition(".")[2] == "dataclass" for call in calls)


def _of_function(module: Module, node: ast.FunctionDef, *, skip_first: bool) -> Signature:
    positional = [*node.args.posonlyargs, *node.args.args]
    first_default = len(positional) - len(node.args.defaults)
    parameters = {
        argument.arg: Parameter(_expected(module, argument.annotation), index < first_default)
        for index, argument in enumerate(positional)
        if index > 0 or not skip_first
    }
    for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        parameters[argument.arg] = Parameter(_expected(module, argument.annotation), default is None)
    return Signature(parameters, is_open=node.args.kwarg is not None)


def _expected(module: Module, node: ast.expr | None) -> Any:
    """An annotation as a runtime type, ``Any`` for what says nothing about plain values."""
    match node:
        case ast.Constant(value=None):
            return None
        case ast.Constant(value=str() as quoted):
            return _expected(module, ast.parse(quoted, mode="eval").body)
        case ast.Name(id=name) if name in module.assigned:
            return _expected(module, module.assigned[name])
        case ast.Name() | ast.Attribute():
            return _PLAIN.get(ast.unparse(node).rpartition(".")[2], Any)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _union(_expected(module, left), _expected(module, right))
        case ast.Subscript(value=outer, slice=inner):
            return _subscript(module, ast.unparse(outer).rpartition(".")[2], inner)
        case _:
            return Any


def _union(*members: Any) -> Any:
    if Any in members:
        return Any
    joined = members[0]
    for member in members[1:]:
        joined = joined | member
    return joined


def _subscript(module: Module, outer: str, inner: ast.expr) -> Any:
    items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if outer == "Literal":
        return Literal[tuple(ast.literal_eval(item) for item in items)]
    if outer == "Optional":
        return _union(_expected(module, inner), None)
    if outer == "Union":
        return _union(*(_expected(module, item) for item in items))
    if outer == "Annotated":
        return _expected(module, items[0])
    container: Any = _PLAIN.get(outer)
    if container in _CONTAINERS:
        inside = [... if ast.unparse(item) == "..." else _expected(module, item) for item in items]
        return container[tuple(inside)]
    return Any
