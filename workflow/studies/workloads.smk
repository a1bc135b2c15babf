"""
The study of workloads: a dozen programs run on each GPU, one after another with a rest between, recorded by all sensors.
Finished records lie in results/studies/workloads/{gpu}/records, which no rule declares: a job that was killed goes on
with the program that it was at.

OUTPUTS, in results/studies/workloads/{gpu}/:

    table       workloads.parquet       a row for each workload: temperature, use, memory, power, energy
    sensors     sensors.parquet         all sensors on a grid of a second
    figures     figures/*.png, *.pdf and *.csv
"""

from clockwatt.studies.workloads.names import figure_names

WORKLOADS = campaign.studies.workloads
WORKLOADS_GPUS = (WORKLOADS.gpus or list(campaign.gpus)) if WORKLOADS else []
WORKLOADS_FIGURES = figure_names(WORKLOADS.workloads) if WORKLOADS else []


rule study_workloads_run:
    """Record every workload on a GPU."""
    output:
        table=at("studies/workloads/{gpu}/workloads.parquet"),
        sensors=at("studies/workloads/{gpu}/sensors.parquet"),
    log:
        at("logs/studies/workloads/{gpu}/run.log"),
    benchmark:
        at("benchmarks/studies/workloads/{gpu}/run.tsv")
    conda:
        "../../envs/torch.yaml"
    resources:
        **GPU_RESOURCES,
    params:
        results=results_dir,
        settings=lambda wildcards: gpu_settings(wildcards.gpu) | WORKLOADS.settings,
    shell:
        """
        python -m clockwatt study-workloads-run \
            --config "$CLOCKWATT_RUN"/config.yaml \
            --gpu {wildcards.gpu:q} \
            --study-dir {params.results:q}/studies/workloads/{wildcards.gpu:q} \
            >{log:q} 2>&1
        """


rule study_workloads_figures:
    """Draw what was recorded on a GPU."""
    input:
        table=rules.study_workloads_run.output.table,
        sensors=rules.study_workloads_run.output.sensors,
    output:
        [
            at(f"studies/workloads/{{gpu}}/figures/{name}.{kind}")
            for name in WORKLOADS_FIGURES
            for kind in ("png", "pdf", "csv")
        ]
        or at("studies/workloads/{gpu}/figures/workloads.png"),
    log:
        at("logs/studies/workloads/{gpu}/figures.log"),
    benchmark:
        at("benchmarks/studies/workloads/{gpu}/figures.tsv")
    conda:
        "../../envs/torch.yaml"
    resources:
        **stage_resources("figures"),
    params:
        results=results_dir,
        code=run.code.stages["study_workloads"],
    shell:
        """
        python -m clockwatt study-workloads \
            --config "$CLOCKWATT_RUN"/config.yaml \
            --gpu {wildcards.gpu:q} \
            --study-dir {params.results:q}/studies/workloads/{wildcards.gpu:q} \
            >{log:q} 2>&1
        """


rule study_workloads:
    """All workloads on every GPU of the study, with figures."""
    input:
        study_input(
            "study_workloads",
            [study_picture("workloads", gpu, name) for gpu in WORKLOADS_GPUS for name in WORKLOADS_FIGURES],
        ),


localrules:
    study_workloads,


STUDY_FILES["study_workloads"] = [study_picture("workloads", gpu, "workloads") for gpu in WORKLOADS_GPUS]
