"""
The survey of cards: one job for each card of the nodes that the campaign names, and one that compares them. A job asks
for all cards of its node, so that an index names one card and nothing runs beside it.

OUTPUTS, in results/studies/survey/{gpu}/:

    card        cards/{node}-{index}-{session}.parquet      measurements; without a row where the card did not answer
    conditions  conditions/{node}-{repetition}.csv          times of programs alone and beside one another
    tables      variance.csv, cards.csv                     split of the variance; cards, outliers, cards not measured
                programs.csv                                how far cards differ in each program, and what limits it
                interference.csv                            where the campaign names conditions
    figures     figures/*.png, *.pdf and *.csv
"""

from clockwatt.studies.survey.names import FIGURES as SURVEY_FIGURES

SURVEY = campaign.studies.survey
SURVEY_FILES = [
    study_picture("survey", gpu, name)
    for gpu in (SURVEY.gpus if SURVEY else ())
    for name in (*(SURVEY_FIGURES if SURVEY.compares(gpu) else ()), *(["interference"] if SURVEY.conditions else []))
]


rule study_survey_card:
    """Measure a card, by its node and index."""
    output:
        card=at(f"studies/survey/{{gpu}}/{layout.survey_file('{node}', '{index}', '{session}')}"),
    log:
        at("logs/studies/survey/{gpu}/{node}-{index}-{session}.log"),
    benchmark:
        at("benchmarks/studies/survey/{gpu}/{node}-{index}-{session}.tsv")
    wildcard_constraints:
        node="[A-Za-z0-9_.-]+",
        index="[0-9]+",
        session="[0-9]+",
    priority: shuffled("survey")
    conda:
        "../../envs/torch.yaml"
    resources:
        **SURVEY_RESOURCES,
    params:
        settings=lambda wildcards: gpu_settings(wildcards.gpu) | SURVEY.of_a_card,
    shell:
        """
        python -m clockwatt study-survey-card \
            --config "$CLOCKWATT_RUN"/config.yaml \
            --gpu {wildcards.gpu:q} \
            --node {wildcards.node:q} \
            --index {wildcards.index:q} \
            --output {output.card:q} \
            >{log:q} 2>&1
        """


rule study_survey_conditions:
    """Time programs on a node: alone, on several cards at once, two on one card."""
    output:
        conditions=at(f"studies/survey/{{gpu}}/{layout.conditions_file('{node}', '{repetition}')}"),
    log:
        at("logs/studies/survey/{gpu}/conditions-{node}-{repetition}.log"),
    benchmark:
        at("benchmarks/studies/survey/{gpu}/conditions-{node}-{repetition}.tsv")
    wildcard_constraints:
        node="[A-Za-z0-9_.-]+",
        repetition="[0-9]+",
    priority: shuffled("survey")
    conda:
        "../../envs/torch.yaml"
    resources:
        **SURVEY_RESOURCES,
    params:
        settings=lambda wildcards: gpu_settings(wildcards.gpu)
        | {
            "conditions": SURVEY.conditions,
            "seconds": SURVEY.seconds,
            "cards": SURVEY.cards_of(wildcards.gpu, wildcards.node),
        },
    shell:
        """
        python -m clockwatt study-conditions \
            --config "$CLOCKWATT_RUN"/config.yaml \
            --gpu {wildcards.gpu:q} \
            --node {wildcards.node:q} \
            --repetition {wildcards.repetition} \
            --output {output.conditions:q} \
            >{log:q} 2>&1
        """


rule study_survey_interference:
    """Compute how much slower programs are beside others."""
    input:
        conditions=survey_conditions,
    output:
        table=at("studies/survey/{gpu}/interference.csv"),
        png=at("studies/survey/{gpu}/figures/interference.png"),
        pdf=at("studies/survey/{gpu}/figures/interference.pdf"),
        csv=at("studies/survey/{gpu}/figures/interference.csv"),
    log:
        at("logs/studies/survey/{gpu}/interference.log"),
    benchmark:
        at("benchmarks/studies/survey/{gpu}/interference.tsv")
    conda:
        "../../envs/torch.yaml"
    resources:
        **stage_resources("figures"),
    params:
        results=results_dir,
        device=lambda wildcards: campaign.gpus[wildcards.gpu].device,
        code=run.code.stages["study_survey"],
    shell:
        """
        python -m clockwatt study-interference \
            {input.conditions:q} \
            --name {params.device:q} \
            --output {params.results:q}/studies/survey/{wildcards.gpu:q} \
            >{log:q} 2>&1
        """


rule study_survey_results:
    """Compare the cards of a GPU: variance, outliers, cards that were not measured."""
    input:
        cards=survey_cards,
    output:
        tables=expand(at("studies/survey/{{gpu}}/{name}"), name=["variance.csv", "cards.csv", "programs.csv"]),
        png=expand(at("studies/survey/{{gpu}}/figures/{name}.png"), name=SURVEY_FIGURES),
        pdf=expand(at("studies/survey/{{gpu}}/figures/{name}.pdf"), name=SURVEY_FIGURES),
        csv=expand(at("studies/survey/{{gpu}}/figures/{name}.csv"), name=SURVEY_FIGURES),
    log:
        at("logs/studies/survey/{gpu}/survey.log"),
    benchmark:
        at("benchmarks/studies/survey/{gpu}/survey.tsv")
    conda:
        "../../envs/torch.yaml"
    resources:
        **stage_resources("figures"),
    params:
        results=results_dir,
        cards=survey_patterns,
        code=run.code.stages["study_survey"],
    shell:
        """
        python -m clockwatt study-survey \
            {params.cards} \
            --output {params.results:q}/studies/survey/{wildcards.gpu:q} \
            >{log:q} 2>&1
        """


rule study_survey:
    """Every card of every GPU of the survey, compared."""
    input:
        study_input("study_survey", SURVEY_FILES),


localrules:
    study_survey,


STUDY_FILES["study_survey"] = SURVEY_FILES
