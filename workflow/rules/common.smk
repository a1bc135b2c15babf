"""
What rules share: where files lie, and what those that use a GPU take from its part of the campaign.
"""


def at(path):
    """Where a file of the campaign lies; wildcards in its path stay wildcards."""
    return f"{RESULTS}/{path}"


def told_once(function):
    """A function that says its parameters without being looked into, which Snakemake does several times for each job."""
    function.__signature__ = inspect.signature(function)
    return function


@told_once
def results_dir(wildcards):
    """The campaign's results folder, for commands that are told whole folders."""
    return RESULTS


# Functions, since Snakemake compares all files of a list that is an input with each other, which took a minute for 20,000.
def measurement_files(wildcards):
    """Every file of measurements of the campaign."""
    return [at(f"measurements/{path}") for path in campaign.measurement_files()]


def calibration_files(wildcards):
    """Every calibration of the campaign."""
    return [at(f"measurements/{path}") for path in campaign.calibration_files()]


def telemetry_of_networks(wildcards):
    """Readings of the sensors while the campaign's networks were measured."""
    return [
        at(f"measurements/{layout.telemetry_file(path)}")
        for path in campaign.measurement_files()
        if path.name.startswith("networks-")
    ]


STUDY_FILES = {}
"""Target of a study to what `all` makes of it where the campaign configures it; studies that have such fill it in."""


def studies_configured(wildcards):
    """What `all` makes of the studies that the campaign configures."""
    return [path for study in campaign.studies.configured for path in STUDY_FILES.get(study, [])]


def study_picture(study, gpu, name):
    """A figure of a study."""
    return at(f"studies/{study}/{gpu}/figures/{name}.png")


def study_input(study, *inputs):
    """Lists of files that are the inputs of a study's target, or what to say where the campaign does not configure it."""

    def wanted(wildcards):
        try:
            getattr(campaign.studies, study)()
        except ClockwattError as error:
            raise WorkflowError(str(error)) from None
        return [path for paths in inputs for path in paths]

    return wanted


def announce(logs, *, stopped=False):
    """Say what became of the run, and what changed while it went on."""
    disk = failures.probe(Path(RESULTS))
    outcomes = summary.outcomes(campaign, BEGAN_S, [Path(log) for log in logs], disk)
    for line in summary.lines(campaign, outcomes, time.time() - BEGAN_S, disk, stopped=stopped):
        say(line)
    for change in snapshot.changes(run, config_files, CHECKOUT):
        say(change)


@functools.cache
def gpu_settings(gpu):
    """What all jobs on a GPU depend on: thousands of them ask."""
    return campaigns.measurement_settings(campaign, gpu)


@told_once
def calibration_settings(wildcards):
    """What a calibration depends on."""
    return gpu_settings(wildcards.gpu)


def shard_settings(shards):
    """What one of `shards` shards depends on."""
    return told_once(lambda wildcards: gpu_settings(wildcards.gpu) | {"shard": f"{wildcards.shard}/{shards}"})


def shuffled(kind):
    """The turn of a job, in an order of operating points that the seed decides."""

    @told_once
    def priority(wildcards):
        return campaigns.measuring_priority(campaign, kind, *wildcards)

    return priority


@functools.cache
def slurm_resources(gpu, attempt):
    """What a job on a GPU asks Slurm for."""
    return campaigns.slurm_resources(campaign.gpus[gpu], attempt)


def slurm_resource(name):
    """One of the resources that a job on a GPU asks Slurm for."""
    return told_once(lambda wildcards, attempt: slurm_resources(wildcards.gpu, attempt)[name])


def stage_resources(stage):
    """What a stage without a GPU asks Slurm for."""
    asked = campaigns.STAGES[stage]
    return {
        "mem_mb": lambda wildcards, attempt: asked.mem_mb * attempt,
        "runtime": lambda wildcards, attempt: asked.runtime_min * attempt,
    }


@told_once
def real_gpu(wildcards):
    """1 where the GPU is a real one, 0 where it is virtual."""
    return REAL_GPUS[wildcards.gpu]


REAL_GPUS = {label: int(gpu.virtual_model is None) for label, gpu in campaign.gpus.items()}


def gpu_resources():
    """What jobs on a GPU ask for; constant where all GPUs ask for the same, since a function is called for every job."""
    found = {}
    for name in campaigns.SLURM_RESOURCES:
        asked = {slurm_resources(label, 1)[name] for label in campaign.gpus}
        if asked != {None}:
            found[name] = asked.pop() if len(asked) == 1 and name != "runtime" else slurm_resource(name)
    return found


GPU_RESOURCES = gpu_resources()
GPU_RESOURCES["real_gpu"] = real_gpu if len(set(REAL_GPUS.values())) > 1 else next(iter(REAL_GPUS.values()))


def survey_cards(wildcards):
    """Every measurement of the cards of a GPU in the survey."""
    cards = campaign.studies.survey.cards(wildcards.gpu)
    return [at(f"studies/survey/{wildcards.gpu}/{layout.survey_file(*card)}") for card in cards]


@told_once
def survey_patterns(wildcards):
    """Shell patterns of `survey_cards`, whose names together may be longer than a command can be."""
    survey, folder = campaign.studies.survey, shlex.quote(at(f"studies/survey/{wildcards.gpu}"))
    sessions = f"{{1..{survey.sessions}}}"
    return [
        f"{folder}/{layout.survey_file(node, f'{{0..{cards - 1}}}', sessions)}"
        for node, cards in survey.gpus[wildcards.gpu].items()
    ]


def survey_conditions(wildcards):
    """Every measurement of the conditions of the survey on a GPU."""
    nodes = campaign.studies.survey.shared_nodes(wildcards.gpu)
    return [at(f"studies/survey/{wildcards.gpu}/{layout.conditions_file(*node)}") for node in nodes]


def resources_of(asking, names):
    """What jobs ask Slurm for that do not ask for one GPU: `asking` makes a job's GPU of its wildcards."""

    def resource(name):
        return told_once(lambda wildcards, attempt: campaigns.slurm_resources(asking(wildcards), attempt)[name])

    return {name: resource(name) for name in names - {"real_gpu"}} | {"real_gpu": GPU_RESOURCES["real_gpu"]}


def survey_gpu(wildcards):
    """The GPU of a job of the survey, which asks for all cards of its node."""
    cards = campaign.studies.survey.gpus[wildcards.gpu][wildcards.node]
    return campaigns.whole_node(campaign.gpus[wildcards.gpu], wildcards.node, cards)


SURVEY_RESOURCES = resources_of(survey_gpu, {*GPU_RESOURCES, "slurm_extra"})


PARALLEL_RESOURCES = resources_of(lambda wildcards: campaigns.several(campaign.gpus[wildcards.gpu]), set(GPU_RESOURCES))


# profiles/default lets one job at a time use a real GPU: on this machine, not on the nodes of a cluster.
resource_scopes:
    real_gpu="local",
