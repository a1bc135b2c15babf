"""What every PyTorch operation costs on every GPU of a campaign at every clock: measured, predicted, drawn."""

import atexit
import contextlib
import functools
import inspect
import os
import secrets
import shlex
import shutil
import sys
import threading
import time
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger
from snakemake.utils import min_version

min_version("9.20")  # priorities that depend on wildcards

if not workflow.modifier.is_main_snakefile():
    raise WorkflowError("This Snakefile cannot be a module, of which Snakemake calls no `onstart`. Use `include:`.")
BEGAN_S = time.time()
# Of this file, which a campaign's own Snakefile may include: a checkout, or a folder of the installed package.
CHECKOUT = Path(workflow.current_basedir.get_path_or_uri(secret_free=True))
if (CHECKOUT / "src").is_dir():
    sys.path.insert(0, str(CHECKOUT / "src"))

from clockwatt import config as campaign_config
from clockwatt.io import files
from clockwatt.io.progress import say
from clockwatt.schema import layout
from clockwatt.workflow import settings as campaigns
from clockwatt.workflow import cluster, failures, job_limits, snapshot, summary
from clockwatt.workflow.missing_inputs import check_awaited
from clockwatt.workflow.network_names import check_names
from clockwatt.control.points import check_campaign
from clockwatt.dataset.reference import references
from clockwatt.errors import ClockwattError
from clockwatt.figures.names import QUESTIONS, figures
from clockwatt.workflow.fingerprint import fingerprints
from clockwatt.workflow.study_data import check_study_data

# Jobs run the Python that runs Snakemake, unless conda gives them another one, and the sources beside this file.
os.environ.update(PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.getenv('PATH', os.defpath)}")
# Images often forbid bytecode; then each job would compile PyTorch anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# What a user has Slurm's programs select or print must not hide jobs from the run.
for variable in os.environ.keys() - cluster.environment().keys():
    del os.environ[variable]
# and Slurm's own programs behind those of the workflow, which say in their heads what they mend.
for folder, program in (("status", "squeue"), ("submit", "sbatch")):
    if workflow.is_main_process and shutil.which(program):
        os.environ.update(PATH=f"{CHECKOUT / 'workflow' / 'slurm' / folder}{os.pathsep}{os.getenv('PATH')}")
PYTHONPATH = shlex.quote(str(snapshot.importable(CHECKOUT))) + "${{PYTHONPATH:+:$PYTHONPATH}}"
shell.prefix(f"set -euo pipefail; export PYTHONPATH={PYTHONPATH}; ")


# A campaign given with --configfile stands for itself: merged into the default one it would measure its GPUs as well.
if workflow.is_main_process and not workflow.overwrite_configfiles:
    if os.path.exists("config/config.yaml"):
        try:
            campaign_config.read_yaml(Path("config/config.yaml"))  # Snakemake shows a traceback where it is no UTF-8
        except ClockwattError as error:
            raise WorkflowError(str(error)) from None

    configfile: "config/config.yaml"


# What the run began with: a job reads it where the main process left it, and never the files that are being edited.
try:
    if workflow.is_main_process:
        for path in workflow.configfiles:
            campaign_config.read_yaml(Path(path))  # Snakemake keeps the last of two keys without a word
        source = ", ".join(str(path) for path in workflow.configfiles)
        campaign = campaign_config.parse(config, source=source)
        check_campaign(campaign)
        check_study_data(campaign, source)
        check_names(campaign, source)
        campaign.studies.check_targets(sys.argv)
        # by what they hold: as inputs they would count by path and time, and a copy of the checkout would make all anew
        digests = {source.reference: source.digest() for source in references(campaign)}
        config_files = {Path(path): Path(path).read_bytes() for path in workflow.configfiles}
        run = snapshot.Run(campaign, snapshot.Code.present(CHECKOUT, fingerprints(), digests))
        os.environ[snapshot.VARIABLE] = str(run.folder)
        submitted = run.folder.absolute() / f"submitted-{secrets.token_hex(8)}.tsv"
        os.environ[cluster.SUBMITTED] = str(submitted)
        os.environ[cluster.PROCESS] = str(os.getpid())
    else:
        check_awaited(sys.argv)
        run = snapshot.read(Path(os.environ[snapshot.VARIABLE]))
        if changed := snapshot.check_sources(run, CHECKOUT):
            say(changed)
except ClockwattError as error:
    raise WorkflowError(str(error)) from None


envvars:
    snapshot.VARIABLE,  # executors hand it to their jobs, whose commands read the campaign in that folder


campaign = run.campaign
RESULTS = campaign.results_dir
FIGURES = figures(campaign.passes)


report: "workflow/report/campaign.rst"


wildcard_constraints:
    gpu=campaign_config.LABEL_PATTERN,
    point=campaign_config.POINT_PATTERN,
    shard=r"\d+",


onstart:
    start_run()


onsuccess:
    atexit.unregister(cluster.cancel_jobs)
    announce(log)
    if Path(at("validation/networks.parquet")).exists():
        shell(f"python -m clockwatt show --most 4 --results {shlex.quote(RESULTS)}")


onerror:
    announce(log, stopped=True)


include: "workflow/rules/start.smk"
include: "workflow/rules/common.smk"
include: "workflow/rules/catalogue.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/dataset.smk"
include: "workflow/rules/predict.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/page.smk"


# each with a target of its own; those that the campaign configures are among what it gives
for study in sorted((CHECKOUT / "workflow" / "studies").glob("*.smk")):

    include: study


localrules:
    all,
    measure_all,
    fit_all,


rule all:
    """Everything that users rely on: what is deleted of it is made again, also where nothing else needs it."""
    default_target: True
    input:
        measurement_files,
        calibration_files,
        rules.dataset.output,
        rules.fit.output,
        rules.validate.output,
        rules.figures.output,
        rules.page.output,
        studies_configured,


rule measure_all:
    """Everything that needs a GPU, and nothing of what is made from it."""
    input:
        measurements=measurement_files,
        calibrations=calibration_files,


rule fit_all:
    """Predictors, and how well whole networks come out of them; no figures."""
    input:
        predictors=rules.fit.output,
        validation=rules.validate.output,
