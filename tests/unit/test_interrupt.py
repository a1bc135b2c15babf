"""Ctrl-C ends a command with one line, and a second one does not disturb what is put back."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import sys, time
from clockwatt.cli.app import app
from clockwatt.cli.main import main

@app.command("wait")
def wait():
    try:
        print("waits", flush=True)
        time.sleep(600)
    finally:
        print("cleans", flush=True)
        time.sleep(1)
        print("cleaned", flush=True)

sys.argv[1:] = ["wait"]
main()
"""


def test_a_second_interrupt_leaves_the_end_alone():
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in ("waits\n", "cleans\n"):
        assert process.stdout.readline() == line
        process.send_signal(signal.SIGINT)
    said, complaint = process.communicate()
    assert said == "cleaned\n"
    assert "Traceback" not in complaint
    assert process.returncode == 130
