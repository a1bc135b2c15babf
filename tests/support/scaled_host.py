"""A host without a profile, of which one factor is known."""

from dataclasses import dataclass

from clockwatt.predict.hosts import HostCosts


@dataclass(frozen=True)
class ScaledHost:
    """Its calls cost `factor` times those of the median host."""

    name: str
    factor: float

    def costs(self, model, pass_):
        return HostCosts(name=self.name, overall=model.hosts_seen.costs(pass_, is_network=True).overall * self.factor)
