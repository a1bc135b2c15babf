"""Train two dense layers of 512 on images of digits, 128 at a time."""

from __future__ import annotations

import sys

from clockwatt.studies.power.training import main

if __name__ == "__main__":
    assert __doc__
    sys.exit(main("dense_512", __doc__))
