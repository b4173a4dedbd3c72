"""``kl=forward_bank`` end to end, as a process."""

from sage.loggers.jsonl import read_metrics
from tests.smoke.test_run import SMALL, run_folders, sage_run


def test_runs_share_a_bank_that_is_drawn_once_reported_at_step_0_and_counted_as_spent(root, tmp_path):
    small = [*SMALL, "logger=jsonl", "eval.every=0", "kl_mode.samples=4", "kl_mode.weighting=hardness"]
    done = sage_run(tmp_path, tmp_path / "cache", root, "kl=forward_bank", "guide=none", *small)
    assert "✓ bank" in done.stdout
    assert "bank of 273 problems x 4 samples of the base = 1,092" in done.stdout
    assert "kl=forward_bank" in done.stdout
    assert "guide=none,verdict,verdict_flat" in done.stdout, "the next commands can be typed as they stand"
    again = sage_run(tmp_path, tmp_path / "cache", root, "kl=forward_bank", "guide=verdict_flat", "seed=1", *small)
    assert "✓ bank" not in again.stdout
    assert len(list((tmp_path / "cache" / "bank").iterdir())) == 1
    for folder in run_folders(tmp_path):
        zero, first, _ = read_metrics(folder / "metrics.jsonl")
        assert zero["bank/samples"] == 1092
        assert first["progress/samples"] == 1092 + 32
        assert zero["bank/tokens"] < first["progress/tokens"]
        assert 0 <= zero["bank/pass_rate"] <= zero["bank/solved_problems"] <= 1
        assert "kl/reference" not in first


def test_pairs_that_cannot_act_are_refused_before_anything_runs(root, tmp_path):
    for arguments, way in (
        (["kl=forward_bank", "guide=branch"], "guide=verdict"),
        (["kl=reverse", "guide=verdict"], "kl=forward_bank"),
        (["kl=none", "guide=verdict_flat"], "kl=forward_bank"),
        (["kl=forward_bank", "guide=none", "train.target_kl=0.1"], "train.target_kl"),
    ):
        done = sage_run(tmp_path, tmp_path / "cache", root, *arguments, expect=1)
        assert way in done.stderr
        assert "Traceback" not in done.stderr
    assert run_folders(tmp_path) == []
