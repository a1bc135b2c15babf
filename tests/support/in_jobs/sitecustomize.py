"""Python reads this at its start where its folder is on PYTHONPATH, as in the jobs of a campaign that is disturbed.

There a virtual GPU is read by a logger process too, of a card of the stand-in NVML, so that it can be killed as that of
a real GPU.
"""

import sys

if "measure" in sys.orig_argv or "--multiprocessing-fork" in sys.orig_argv:
    from support import logged_bench

    logged_bench.install()
