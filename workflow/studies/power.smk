"""
The study of power limits and clocks: three networks are trained at each operating point, again and again, every run is
recorded. Finished records lie in results/studies/power/{gpu}/records, which no rule declares: a job that was killed
goes on with the run that it was at.

OUTPUTS, in results/studies/power/{gpu}/:

    measured    runs.parquet, epochs.parquet, readings.parquet     what the records say
    tables      summary.*, fits.*                                  means and deviations, fits and optima
    figures     figures/*.png, *.pdf and *.csv
"""


def power_study(gpu):
    """What the study asks of a GPU."""
    return campaign.studies.power.gpus[gpu]


def power_study_settings(wildcards):
    """What the runs on a GPU depend on."""
    asked = campaign.studies.power.model_dump(mode="json", exclude={"gpus"})
    return gpu_settings(wildcards.gpu) | asked | power_study(wildcards.gpu).model_dump(mode="json")


rule study_power_runs:
    """Train every network at every operating point of a GPU, recorded."""
    output:
        runs=at("studies/power/{gpu}/runs.parquet"),
        epochs=at("studies/power/{gpu}/epochs.parquet"),
        readings=at("studies/power/{gpu}/readings.parquet"),
    log:
        at("logs/studies/power/{gpu}/runs.log"),
    benchmark:
        at("benchmarks/studies/power/{gpu}/runs.tsv")
    conda:
        "../../envs/torch.yaml"
    resources:
        **GPU_RESOURCES,
    params:
        results=results_dir,
        settings=power_study_settings,
    shell:
        """
        python -m clockwatt study-power run \
            --config "$CLOCKWATT_RUN"/config.yaml \
            --gpu {wildcards.gpu:q} \
            --output-dir {params.results:q}/studies/power/{wildcards.gpu:q} \
            >{log:q} 2>&1
        """
