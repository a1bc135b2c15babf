"""Train a residual network of 34 layers on ECGs of one lead, of 9,000 samples or as long as each is."""

from __future__ import annotations

import sys

from clockwatt.studies.power.training import main

if __name__ == "__main__":
    assert __doc__
    sys.exit(main("ecg_cinc17", __doc__))
