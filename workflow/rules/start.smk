"""
What a run begins with.
"""


def start_run():
    """Write the snapshot, once, in the process that holds the lock: dry runs leave it alone."""
    try:
        run.write()
        # for people, and for what is done by hand: the campaign of the last run
        files.write_text(campaign_config.dump(campaign), Path(at("config.yaml")))
    except ClockwattError as error:
        raise WorkflowError(str(error)) from None
    if workflow.overwrite_configfiles:
        workflow.overwrite_configfiles[:] = [run.config_file.absolute()]  # which the commands of the jobs name
    if workflow.executor_plugin.name == "slurm":
        if getattr(workflow.executor_settings, "array_jobs", None):
            raise WorkflowError("--slurm-array-jobs: the workflow cannot follow job arrays. Leave this option out.")
        cluster.end_with(submitted)  # not in `onerror`: a second interrupt ends Snakemake without it
        threading.Thread(target=cluster.report_silence, args=(submitted, logger.warning), daemon=True).start()
        with contextlib.suppress(cluster.SlurmUnavailableError):
            for misfit in job_limits.all_misfits(campaign):
                say(misfit)


def start_both(handler, register=workflow.onstart):
    """Register the `onstart` of a Snakefile that includes this one, which Snakemake would call alone."""
    register(lambda log: (start_run(), handler(log)))


workflow.onstart = start_both
