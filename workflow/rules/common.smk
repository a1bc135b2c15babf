"""
What rules share: where files lie, and what those that use a GPU take from its part of the campaign.
"""


def at(path):
    """Where a file of the campaign lies; wildcards in its path stay wildcards."""
    return f"{RESULTS}/{path}"


def results_dir(wildcards):
    """The campaign's results folder, for commands that are told whole folders."""
    return RESULTS


def announce():
    """Say what became of the run, and what changed while it went on."""
    for line in summary.lines(campaign, summary.outcomes(campaign, BEGAN_S), time.time() - BEGAN_S):
        say(line)
    for change in snapshot.changes(run, config_files, CHECKOUT):
        say(change)


def calibration_settings(wildcards):
    """What a calibration depends on."""
    return campaigns.measurement_settings(campaign, wildcards.gpu)


def shard_settings(shards):
    """What one of `shards` shards depends on."""
    return lambda wildcards: campaigns.measurement_settings(campaign, wildcards.gpu, f"{wildcards.shard}/{shards}")


def shuffled(kind):
    """The turn of a job, in an order of operating points that the seed decides."""

    def priority(wildcards):
        return campaigns.measuring_priority(campaign, kind, *wildcards)

    return priority


def slurm_resource(name):
    """One of the resources that a job on a GPU asks Slurm for."""
    return lambda wildcards, attempt: campaigns.slurm_resources(campaign.gpus[wildcards.gpu], attempt)[name]


def real_gpu(wildcards):
    """1 where the GPU is a real one, 0 where it is virtual."""
    return int(campaign.gpus[wildcards.gpu].virtual_model is None)


GPU_RESOURCES = {name: slurm_resource(name) for name in campaigns.SLURM_RESOURCES}
GPU_RESOURCES["real_gpu"] = real_gpu


# profiles/default lets one job at a time use a real GPU: on this machine, not on the nodes of a cluster.
resource_scopes:
    real_gpu="local",
