"""Finding the source of a class or function by its dotted name, without importing it."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

Definition = ast.ClassDef | ast.FunctionDef
_MOST_HOPS = 8


class TargetError(ValueError):
    """A ``_target_`` names nothing that exists."""


@dataclass(frozen=True, slots=True)
class Module:
    """The names that a module's source binds at its top level."""

    name: str
    path: Path
    is_package: bool
    definitions: dict[str, Definition]
    imports: dict[str, str]
    """Local name -> dotted path that it stands for."""
    assigned: dict[str, ast.expr]
    """Type aliases and constants."""

    def dotted(self, expression: ast.expr) -> str:
        """The full dotted path of a name or attribute as this module writes it, e.g. of a base class."""
        head, _, rest = ast.unparse(expression).partition(".")
        known = self.imports.get(head, f"{self.name}.{head}" if head in self.definitions else head)
        return f"{known}.{rest}" if rest else known


def locate(target: str) -> tuple[Module, Definition] | None:
    """The class or function that ``target`` names, re-exports followed.

    Args:
        target: ``module.Name``.

    Returns:
        Its module and definition; ``None`` where the module exists but has no Python source to read.

    Raises:
        TargetError: no such module, or no such name in it.
    """
    for _ in range(_MOST_HOPS):
        module_name, _, name = target.rpartition(".")
        if not module_name:
            raise TargetError("expected package.module.Class")
        module = read_module(module_name)
        if module is None:
            return None
        if name in module.definitions:
            return module, module.definitions[name]
        if name not in module.imports:
            raise TargetError(_no_such_name(module, name))
        target = module.imports[name]
    raise TargetError("is imported from module to module in a circle")


def _no_such_name(module: Module, name: str) -> str:
    public = [known for known in (*module.definitions, *module.imports) if not known.startswith("_")]
    nearest = get_close_matches(name, public, n=1)
    hint = f"; did you mean {module.name}.{nearest[0]}?" if nearest else ""
    return f"{module.path} defines no {name}{hint}"


def read_module(name: str) -> Module | None:
    """Parse a module; ``None`` for one without Python source (built in, compiled).

    Raises:
        TargetError: it does not exist, or is not valid Python.
    """
    spec = _find_spec(name)
    if spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return _parse(name, Path(spec.origin), spec.submodule_search_locations is not None)


def _find_spec(name: str) -> ModuleSpec:
    # importlib.util.find_spec imports the parents of a dotted name, which may import torch; a top-level name has none.
    head, *rest = name.split(".")
    spec = importlib.util.find_spec(head)
    known = ""
    for part in (*rest, ""):
        if spec is None:
            where = f"the package {known}" if known else "any folder of the Python path"
            raise TargetError(f"no module {name.removeprefix(known).lstrip('.').split('.')[0]} in {where}")
        if not part:
            break
        known = f"{known}.{spec.name.rpartition('.')[2]}".lstrip(".")
        spec = PathFinder.find_spec(f"{known}.{part}", spec.submodule_search_locations or [])
    assert spec is not None
    return spec


@cache
def _parse(name: str, path: Path, is_package: bool) -> Module:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    except SyntaxError as error:
        raise TargetError(f"{path}, line {error.lineno}: {error.msg}") from error
    package = name if is_package else name.rpartition(".")[0]
    module = Module(name=name, path=path, is_package=is_package, definitions={}, imports={}, assigned={})
    for node in _top_level(tree.body):
        match node:
            case ast.ClassDef() | ast.FunctionDef():
                module.definitions[node.name] = node
            case ast.Import():
                for alias in node.names:
                    # "import a.b" binds a; "import a.b as c" binds the module a.b.
                    module.imports[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            case ast.ImportFrom():
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                module.imports.update({alias.asname or alias.name: f"{base}.{alias.name}" for alias in node.names})
            case ast.Assign(targets=[ast.Name(id=alias_name)]):
                module.assigned[alias_name] = node.value
            case ast.AnnAssign(target=ast.Name(id=alias_name), value=ast.expr() as value):
                module.assigned[alias_name] = value
            case _:
                pass
    return module


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module, those under ``if TYPE_CHECKING`` and in ``try`` included."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _top_level([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _top_level([*node.body, *node.orelse, *node.finalbody])
