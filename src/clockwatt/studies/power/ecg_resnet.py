"""Train a residual network of 34 layers on ECGs of 12 leads and 4,096 samples."""

from __future__ import annotations

import sys

from clockwatt.studies.power.training import main

if __name__ == "__main__":
    assert __doc__
    sys.exit(main("ecg_resnet", __doc__))
