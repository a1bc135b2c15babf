"""
The study of temperature: models are fitted to what the studies of power limits and workloads recorded, and judged on runs
and workloads held out.

OUTPUTS, in results/studies/thermal/{gpu}/:

    fit         fit/thermal.json, fit/scores.csv       models for `clockwatt thermal forecast`, and their errors
    figures     figures/*.png, *.pdf and *.csv         errors against the horizon, and a forecast over time
"""

from clockwatt.studies.thermal.names import FIGURES as THERMAL_FIGURES

THERMAL_RECORDED = {"power": "runs.parquet", "workloads": "workloads.parquet"}
THERMAL_SOURCES = {
    gpu: [f"{RESULTS}/studies/{study}/{gpu}/{THERMAL_RECORDED[study]}" for study in sources]
    for gpu, sources in campaign.studies.thermal_sources(campaign.gpus).items()
}


rule study_thermal_fit:
    """Fit temperature models to the records of a GPU."""
    input:
        recorded=lambda wildcards: THERMAL_SOURCES[wildcards.gpu],
    output:
        fit=at("studies/thermal/{gpu}/fit/thermal.json"),
        scores=at("studies/thermal/{gpu}/fit/scores.csv"),
        png=expand(at("studies/thermal/{{gpu}}/figures/{name}.png"), name=THERMAL_FIGURES),
        pdf=expand(at("studies/thermal/{{gpu}}/figures/{name}.pdf"), name=THERMAL_FIGURES),
        csv=expand(at("studies/thermal/{{gpu}}/figures/{name}.csv"), name=THERMAL_FIGURES),
    log:
        at("logs/studies/thermal/{gpu}/thermal.log"),
    benchmark:
        at("benchmarks/studies/thermal/{gpu}/thermal.tsv")
    conda:
        "../../envs/analysis.yaml"
    resources:
        **stage_resources("figures"),
    params:
        results=results_dir,
        settings=campaign.studies.thermal.model_dump(mode="json") if campaign.studies.thermal else {},
        code=run.code.stages["study_thermal"],
    shell:
        """
        python -m clockwatt study-thermal \
            --config "$CLOCKWATT_RUN"/config.yaml \
            --gpu {wildcards.gpu:q} \
            --results-dir {params.results:q} \
            >{log:q} 2>&1
        """


rule study_thermal:
    """Temperature models of every GPU of the study."""
    input:
        study_input(
            "study_thermal",
            [study_picture("thermal", gpu, name) for gpu in THERMAL_SOURCES for name in THERMAL_FIGURES],
        ),


localrules:
    study_thermal,


STUDY_FILES["study_thermal"] = [study_picture("thermal", gpu, "forecast") for gpu in THERMAL_SOURCES]
