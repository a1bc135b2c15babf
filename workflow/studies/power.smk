"""
The study of power limits and clocks: three networks are trained at each operating point, again and again, and every run
is recorded. Finished records lie in results/studies/power/{gpu}/records, which no rule declares: a job that was killed
goes on with the run that it was at.

OUTPUTS, in results/studies/power/{gpu}/:

    measured    runs.parquet, epochs.parquet, readings.parquet     what the records say
    main        figures/optimum_*.png, *.pdf and *.csv             the figures that `all` makes
    figures     figures/*.png, *.pdf and *.csv                     all others
    tables      summary.*, fits.*                                  means and deviations; fits and optima
"""

from clockwatt.studies.power import names as power_names

POWER_GPUS = campaign.studies.power.gpus if campaign.studies.power else {}
POWER_MAIN = {
    gpu: [figure for key, figure in power_names.MAIN.items() if getattr(asked, key)]
    for gpu, asked in POWER_GPUS.items()
}
POWER_FILES = [study_picture("power", gpu, name) for gpu, names in POWER_MAIN.items() for name in names]
POWER_OTHERS = [figure for figure in power_names.FIGURES if figure not in power_names.MAIN.values()]


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
        settings=lambda wildcards: gpu_settings(wildcards.gpu) | campaign.studies.power.settings_of(wildcards.gpu),
    shell:
        """
        python -m clockwatt study-power-run \
            --config "$CLOCKWATT_RUN"/config.yaml \
            --gpu {wildcards.gpu:q} \
            --study-dir {params.results:q}/studies/power/{wildcards.gpu:q} \
            >{log:q} 2>&1
        """


rule study_power_main:
    """Draw a main figure of a GPU."""
    input:
        measured=rules.study_power_runs.output,
    output:
        png=report(
            f"{RESULTS}/studies/power/{{gpu}}/figures/{{main}}.png",
            caption="../report/study_power.rst",
            category="Studies",
            labels={"study": "training under power limits and clocks", "GPU": "{gpu}", "figure": "{main}"},
        ),
        pdf=at("studies/power/{gpu}/figures/{main}.pdf"),
        csv=at("studies/power/{gpu}/figures/{main}.csv"),
    log:
        at("logs/studies/power/{gpu}/{main}.log"),
    benchmark:
        at("benchmarks/studies/power/{gpu}/{main}.tsv")
    wildcard_constraints:
        main="|".join(power_names.MAIN.values()),
    conda:
        "../../envs/torch.yaml"
    resources:
        **stage_resources("figures"),
    params:
        results=results_dir,
        code=run.code.stages["study_power"],
    shell:
        """
        python -m clockwatt study-power \
            --study-dir {params.results:q}/studies/power/{wildcards.gpu:q} \
            --only {wildcards.main:q} \
            >{log:q} 2>&1
        """


rule study_power_figures:
    """Write the tables of a GPU, and draw all other figures."""
    input:
        measured=rules.study_power_runs.output,
    output:
        tables=expand(at("studies/power/{{gpu}}/{name}"), name=power_names.TABLE_FILES),
        png=expand(at("studies/power/{{gpu}}/figures/{name}.png"), name=POWER_OTHERS),
        pdf=expand(at("studies/power/{{gpu}}/figures/{name}.pdf"), name=POWER_OTHERS),
        csv=expand(at("studies/power/{{gpu}}/figures/{name}.csv"), name=POWER_OTHERS),
    log:
        at("logs/studies/power/{gpu}/figures.log"),
    benchmark:
        at("benchmarks/studies/power/{gpu}/figures.tsv")
    conda:
        "../../envs/torch.yaml"
    resources:
        **stage_resources("figures"),
    params:
        results=results_dir,
        names=",".join([*power_names.TABLES, *POWER_OTHERS]),
        code=run.code.stages["study_power"],
    shell:
        """
        python -m clockwatt study-power \
            --study-dir {params.results:q}/studies/power/{wildcards.gpu:q} \
            --only {params.names:q} \
            >{log:q} 2>&1
        """


rule study_power:
    """Everything that the study gives."""
    input:
        study_input(
            "study_power",
            POWER_FILES,
            [study_picture("power", gpu, name) for gpu in POWER_GPUS for name in POWER_OTHERS],
        ),


localrules:
    study_power,


STUDY_FILES["study_power"] = POWER_FILES
