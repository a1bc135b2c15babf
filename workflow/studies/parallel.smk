"""
The study of several GPUs: whole networks trained on one GPU and on several of one node, with DDP, FSDP2 and pipelines.
A job asks for all GPUs of the study and starts a process on each. Finished cases lie in
results/studies/parallel/{gpu}/cases, which no rule declares: a job that was killed goes on with the cases that are left.

OUTPUTS, in results/studies/parallel/{gpu}/:

    measured    steps.parquet           a row for each network, strategy and number of GPUs
                ranks.parquet           a row for each rank of these
                spans.parquet           kernels and communications of one step of each rank
    table       table.csv               time and energy of an epoch, speed-up, share of NCCL
    figures     figures/*.png, *.pdf and *.csv
"""

from clockwatt.studies.parallel import names as parallel_names

PARALLEL = campaign.studies.parallel
PARALLEL_GPUS = PARALLEL.labels(campaign.gpus) if PARALLEL else []
PARALLEL_FILES = [
    path
    for gpu in PARALLEL_GPUS
    for path in (
        at(f"studies/parallel/{gpu}/{parallel_names.TABLE}"),
        *(study_picture("parallel", gpu, name) for name in parallel_names.FIGURES),
    )
]


rule study_parallel_run:
    """Train every network on every number of GPUs, with every strategy."""
    output:
        steps=at(f"studies/parallel/{{gpu}}/{parallel_names.STEPS}"),
        ranks=at(f"studies/parallel/{{gpu}}/{parallel_names.RANKS}"),
        spans=at(f"studies/parallel/{{gpu}}/{parallel_names.SPANS}"),
    log:
        at("logs/studies/parallel/{gpu}/run.log"),
    benchmark:
        at("benchmarks/studies/parallel/{gpu}/run.tsv")
    conda:
        "../../envs/torch.yaml"
    resources:
        **PARALLEL_RESOURCES,
    params:
        results=results_dir,
        settings=lambda wildcards: gpu_settings(wildcards.gpu)
        | PARALLEL.settings
        | campaigns.part(campaign, "training"),
    shell:
        """
        python -m clockwatt study-parallel-run \
            --config "$CLOCKWATT_RUN"/config.yaml \
            --gpu {wildcards.gpu:q} \
            --study-dir {params.results:q}/studies/parallel/{wildcards.gpu:q} \
            >{log:q} 2>&1
        """


rule study_parallel_figures:
    """Write the table of an epoch on a GPU, and draw the figures."""
    input:
        steps=rules.study_parallel_run.output.steps,
        ranks=rules.study_parallel_run.output.ranks,
        spans=rules.study_parallel_run.output.spans,
    output:
        table=at(f"studies/parallel/{{gpu}}/{parallel_names.TABLE}"),
        png=expand(at("studies/parallel/{{gpu}}/figures/{name}.png"), name=parallel_names.FIGURES),
        pdf=expand(at("studies/parallel/{{gpu}}/figures/{name}.pdf"), name=parallel_names.FIGURES),
        csv=expand(at("studies/parallel/{{gpu}}/figures/{name}.csv"), name=parallel_names.FIGURES),
    log:
        at("logs/studies/parallel/{gpu}/figures.log"),
    benchmark:
        at("benchmarks/studies/parallel/{gpu}/figures.tsv")
    conda:
        "../../envs/torch.yaml"
    resources:
        **stage_resources("figures"),
    params:
        results=results_dir,
        images=lambda wildcards: PARALLEL.images,
        code=run.code.stages["study_parallel"],
    shell:
        """
        python -m clockwatt study-parallel \
            --study-dir {params.results:q}/studies/parallel/{wildcards.gpu:q} \
            --images {params.images} \
            >{log:q} 2>&1
        """


rule study_parallel:
    """All networks on every GPU of the study, with table and figures."""
    input:
        study_input("study_parallel", PARALLEL_FILES),


localrules:
    study_parallel,


STUDY_FILES["study_parallel"] = PARALLEL_FILES
