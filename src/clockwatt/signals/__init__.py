"""Signals of recorded programs: even grids, averages over runs, energy, phases.

Pure functions on arrays and data frames: nothing is read or written, and nothing depends on which GPU it was. Times are
in s, powers in W, energies in J.
"""

from __future__ import annotations

from clockwatt.signals.average import average_runs as average_runs
from clockwatt.signals.energy import counted_energy_j as counted_energy_j
from clockwatt.signals.energy import cumulative_energy_j as cumulative_energy_j
from clockwatt.signals.energy import energy_delay_product_j_s as energy_delay_product_j_s
from clockwatt.signals.energy import integrated_energy_j as integrated_energy_j
from clockwatt.signals.energy import summed_energy_j as summed_energy_j
from clockwatt.signals.fit import LEAST_R2 as LEAST_R2
from clockwatt.signals.fit import r_squared as r_squared
from clockwatt.signals.grid import joined as joined
from clockwatt.signals.grid import measured_rate_hz as measured_rate_hz
from clockwatt.signals.grid import relative_time_s as relative_time_s
from clockwatt.signals.grid import resample as resample
from clockwatt.signals.phases import energy_of_phases as energy_of_phases
from clockwatt.signals.phases import energy_of_runs as energy_of_runs
