"""What the README and the docs tell a reader to type and to expect."""

import re
from fnmatch import fnmatch

from sage.loggers.jsonl import read_metrics
from tests.smoke.test_run import SMALL, run_folders, sage_run


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_the_readmes_own_guide_runs_from_a_folder_outside_the_repository(root, tmp_path):
    readme = (root / "README.md").read_text()
    for block in code_blocks(readme, "python") + code_blocks(readme, "yaml"):
        first, rest = block.split("\n", 1)
        path = tmp_path / first.removeprefix("# ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rest)
    (command,) = [line for line in readme.splitlines() if line.startswith("sage-run --config-dir")]
    short = [*SMALL, "train.steps=1", "eval.every=0", "logger=jsonl"]
    sage_run(tmp_path, tmp_path / "cache", root, *command.split()[1:], *short)
    (folder,) = run_folders(tmp_path)
    (row,) = [row for row in read_metrics(folder / "metrics.jsonl") if row["step"] == 1]
    # gain 0.2 on the first 6 tokens of each response, 1 on the others
    assert row["guide/q_max"] == 1.2000000476837158
    assert row["guide/q_min"] == 1
    assert 0 < row["guide/q_changed_share"] < 1


def test_every_metric_of_a_run_is_documented_and_every_documented_one_exists(root, tmp_path):
    documented = re.findall(r"^\| (`.*?`) \|", (root / "docs" / "metrics.md").read_text(), flags=re.MULTILINE)
    names = [name for cell in documented for name in re.findall(r"`(.*?)`", cell)]
    sage_run(tmp_path, tmp_path / "cache", root, *SMALL, "logger=jsonl")
    (folder,) = run_folders(tmp_path)
    logged = {name for row in read_metrics(folder / "metrics.jsonl") for name in row if name != "step"}
    short = {name.split("/", 2)[2] if name.startswith(("eval/", "test/")) else name for name in logged}
    patterns = [re.sub(r"<.*?>", "*", name) for name in names]
    unknown = {name for name in short if not any(fnmatch(name, pattern) for pattern in patterns)}
    assert not unknown, "add these to docs/metrics.md"
    # The tiny model of this short run solves nothing, so there are no right completions to average over; grpo has no critic, and
    # kl=reverse no bank.
    elsewhere = {"completion/tokens_correct_mean", "value/mean", "value/loss", "value/explained_variance"}
    elsewhere |= {name for name in names if name.startswith("bank/")} | {"engine/weights_norm"}  # of rollout=vllm
    absent = {p for p in patterns if not any(fnmatch(name, p) for name in short)} - elsewhere
    assert not absent, "docs/metrics.md names metrics that no run logs"
