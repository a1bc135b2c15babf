"""Train two dense layers of 16,384 on images of digits, 32 at a time."""

from __future__ import annotations

import sys

from clockwatt.studies.power.training import main

if __name__ == "__main__":
    assert __doc__
    sys.exit(main("dense_16384", __doc__))
