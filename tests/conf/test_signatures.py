"""Constructor parameters are read from source, and the yaml files state exactly those."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from hydra.utils import get_class
from omegaconf import DictConfig

from sage.config.signatures import signature_of
from sage.config.source import TargetError
from tests.conf.test_compose import PLUGIN_OPTIONS

Composed = Callable[..., DictConfig]


@pytest.mark.parametrize("option", PLUGIN_OPTIONS)
def test_a_yaml_states_exactly_the_parameters_of_its_class(composed: Composed, option: str) -> None:
    section = composed(option)[option.partition("=")[0]]
    signature = signature_of(section._target_)
    assert signature is not None
    assert {str(key) for key in section} - {"_target_"} == signature.parameters.keys()
    assert not signature.is_open
    assert [name for name, parameter in signature.parameters.items() if not parameter.required] == []


@pytest.mark.parametrize("option", PLUGIN_OPTIONS)
def test_what_is_read_from_source_is_what_python_sees(composed: Composed, option: str) -> None:
    target = composed(option)[option.partition("=")[0]]._target_
    signature = signature_of(target)
    assert signature is not None
    seen = inspect.signature(get_class(target)).parameters
    # A class without a constructor of its own shows (*args, **kwargs) or nothing.
    named = {name for name, item in seen.items() if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)}
    assert signature.parameters.keys() == named


SOURCE = """
import abc, dataclasses
import dataclasses as dc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Optional
from . import other
from .other import Base as Renamed
from .other import Reexported
import somewhere_else

Norm = Literal["minmax", "rank"]

@dataclass(frozen=True, kw_only=True)
class Data(Renamed):
    own: int
    text: str = "x"
    made: list[int] = field(default_factory=list)
    wanted: "float | None" = dc.field()
    shared: ClassVar[int] = 3
    derived: int = field(init=False, default=0)

class Inherits(Data):
    pass

class Init(abc.ABC):
    def __init__(self, first: int, /, second: bool, *, norm: Norm, pair: tuple[float, float] = (0.0, 1.0)) -> None: ...

class Open(other.Base):
    def __init__(self, *, name: Optional[str], columns: Mapping[str, int], **rest) -> None: ...

class Stranger(somewhere_else.Thing):
    pass

def function(a: list, b: Unknown = None): ...
"""
OTHER = """
from dataclasses import dataclass
from .deep import Reexported

@dataclass
class Base:
    strength: float
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's package whose import would fail."""
    name = f"package_{tmp_path.name.replace('-', '_')}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "main.py").write_text(SOURCE)
    (folder / "other.py").write_text(OTHER)
    (folder / "deep.py").write_text("class Reexported:\n    def __init__(self, *, depth: int): ...")
    (folder / "broken.py").write_text("class Broken(:")
    (folder / "circle.py").write_text("from .circle import Round")
    monkeypatch.syspath_prepend(tmp_path)
    return name


def parameters(target: str) -> dict[str, tuple[Any, bool]]:
    signature = signature_of(target)
    assert signature is not None
    return {name: (item.expected, item.required) for name, item in signature.parameters.items()}


def test_dataclass_fields_are_read_with_those_of_an_imported_base(package: str) -> None:
    expected = {
        "strength": (float, True),
        "own": (int, True),
        "text": (str, False),
        "made": (list[int], False),
        "wanted": (float | None, True),
    }
    assert parameters(f"{package}.main.Data") == expected
    assert parameters(f"{package}.main.Inherits") == expected


def test_constructors_and_functions_are_read(package: str) -> None:
    assert parameters(f"{package}.main.Init") == {
        "first": (int, True),
        "second": (bool, True),
        "norm": (Literal["minmax", "rank"], True),
        "pair": (tuple[float, float], False),
    }
    assert parameters(f"{package}.main.Open") == {"name": (str | None, True), "columns": (Mapping[str, int], True)}
    assert parameters(f"{package}.main.function") == {"a": (list, True), "b": (Any, False)}


def test_re_exported_names_are_followed(package: str) -> None:
    assert parameters(f"{package}.main.Reexported") == {"depth": (int, True)}


@pytest.mark.parametrize("name", ["Open", "Stranger"])
def test_a_class_that_may_take_more_than_can_be_read_is_open(package: str, name: str) -> None:
    signature = signature_of(f"{package}.main.{name}")
    assert signature is not None
    assert signature.is_open


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("main.Dta", r"main\.py defines no Dta; did you mean .*\.main\.Data\?"),
        ("mian.Data", "no module mian in the package package_"),
        ("main.deeper.Data", r"no module deeper in the package package_.*\.main"),
        ("broken.Broken", r"broken\.py, line 1: "),
        ("circle.Round", "in a circle"),
    ],
)
def test_a_target_that_does_not_exist_is_refused(package: str, target: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        signature_of(f"{package}.{target}")


def test_code_without_python_source_is_not_judged() -> None:
    assert signature_of("math.sqrt") is None or signature_of("itertools.chain") is None


def test_sequences_are_containers_of_plain_values() -> None:
    assert parameters("sage.loggers.wandb.WandbLogger")["tags"] == (Sequence[str], True)
