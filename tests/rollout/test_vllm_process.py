"""A library that takes the process for its own leaves it as it was."""

import logging
import os

import pytest
import torch

from sage.rollout.vllm_process import guest


@pytest.mark.parametrize("fails", [False, True])
def test_environment_and_threads_are_restored_and_stderr_goes_to_the_log(monkeypatch, caplog, capfd, fails):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("SAGE_TEST_KEPT", "before")
    monkeypatch.setenv("SAGE_TEST_LOST", "before")
    threads, set_threads = torch.get_num_threads(), torch.set_num_threads

    def body():
        with guest():
            os.environ |= {"SAGE_TEST_KEPT": "after", "SAGE_TEST_NEW": "1"}
            del os.environ["SAGE_TEST_LOST"]
            torch.set_num_threads(threads + 1)
            torch.set_num_threads = lambda count: None
            os.write(2, b"written by C++\n")
            if fails:
                raise RuntimeError("it fails")

    if fails:
        with pytest.raises(RuntimeError, match="it fails"):
            body()
    else:
        body()
    assert os.environ["SAGE_TEST_KEPT"] == os.environ["SAGE_TEST_LOST"] == "before"
    assert "SAGE_TEST_NEW" not in os.environ
    assert torch.set_num_threads is set_threads
    assert torch.get_num_threads() == threads
    assert "written by C++" in caplog.text
    os.write(2, b"and this is seen\n")
    assert capfd.readouterr().err == "and this is seen\n"
