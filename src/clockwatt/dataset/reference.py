"""Reference data that the project ships, or `clockwatt import` wrote, as a part of a campaign's dataset.

A reference lies below `resources/reference/`, or in a folder of the user's, as a campaign's results do: `config.yaml`,
`catalogue/` and `measurements/`. Its rows are measured ones and keep their own GPU label.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from clockwatt import config
from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.errors import ConfigError, DataFileError
from clockwatt.io.resources import reference_folder
from clockwatt.schema import layout


@dataclass(frozen=True, eq=False)
class Source:
    """Measurements that a dataset is joined from.

    Attributes
    ----------
    config
        The campaign that they were measured with: it names the files.
    measurements, catalogue
        Folders, see `clockwatt.schema.layout`.
    reference
        Name of the reference data, None for the campaign's own.
    """

    config: CampaignConfig
    measurements: Path
    catalogue: Path
    reference: str | None = None

    def files(self) -> list[Path]:
        """Return every file that a dataset is made from."""
        own = [*self.config.measurement_files(), *self.config.calibration_files()]
        return [
            *(self.measurements / path for path in own),
            *(self.catalogue / name for name in layout.CATALOGUE_FILES),
        ]

    def digest(self) -> str:
        """Hash of the config and of what these files hold: the same wherever they lie, whenever they were written.

        Raises
        ------
        DataFileError
            If one cannot be read.
        """
        # without defaults: a key that is new in a campaign changes no campaign that lacks it
        digest = hashlib.sha256(self.config.model_dump_json(exclude_defaults=True).encode())
        for path in self.files():
            try:
                digest.update(hashlib.sha256(path.read_bytes()).digest())
            except OSError as error:
                raise DataFileError(f"{path}: cannot be read ({error.strerror}). Install clockwatt again.") from None
        return digest.hexdigest()[:16]

    def points(self) -> list[tuple[str, OperatingPoint]]:
        """Return every GPU's label with each of its operating points."""
        return [(label, point) for label, gpu in self.config.gpus.items() for point in gpu.points]

    def measurement_files(self, gpu: str, point: OperatingPoint) -> list[Path]:
        """Return files of measurements of one GPU at one operating point."""
        folder = layout.point_dir(gpu, point)
        return [self.measurements / path for path in self.config.measurement_files() if path.parent == folder]


def references(campaign: CampaignConfig) -> list[Source]:
    """Return the reference data that a campaign's dataset includes, in the campaign's order.

    Raises
    ------
    ConfigError
        If a label stands for another device in the reference than in the campaign or in a reference before: one label
        stands for one GPU in training.
    """
    sources = []
    known = [("here", campaign)]
    for name in campaign.reference:
        folder = reference_folder(name)
        shipped = config.load(folder / "config.yaml")
        for where, other in known:
            for label in other.gpus.keys() & shipped.gpus.keys():
                own, theirs = other.gpus[label].device, shipped.gpus[label].device
                if own != theirs:
                    raise ConfigError(
                        f"gpus.{label}: is {own} {where} and {theirs} in the reference data {name!r}, which are never "
                        f"mixed. Give yours another label, or remove {name!r} from reference."
                    )
        known.append((f"in the reference data {name!r}", shipped))
        sources.append(Source(shipped, folder / layout.MEASUREMENTS, folder / layout.CATALOGUE, name))
    return sources
