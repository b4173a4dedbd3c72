"""The configuration is found from a checkout and from an installed wheel."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sage.config import conf_dir


def test_the_checkout_uses_its_top_level_folder(root: Path) -> None:
    assert conf_dir() == root / "conf"


def test_a_wheel_carries_every_yaml_and_finds_it(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="the build backend is in the dev extra")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(root)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("sage_rlvr-*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    ours = {path.relative_to(root / "conf") for path in (root / "conf").rglob("*.yaml")}
    assert {path.relative_to(installed / "sage" / "conf") for path in installed.rglob("*.yaml")} == ours

    # -I keeps the checkout off the path; the installed copy goes before an editable install of the same name.
    code = f"import sys; sys.path.insert(0, {str(installed)!r}); import sage.config; print(sage.config.conf_dir())"
    found = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert found.stdout.strip() == str(installed / "sage" / "conf"), found.stderr
