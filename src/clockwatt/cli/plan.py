"""`clockwatt plan`: what a campaign will cost, before anything is submitted."""

from __future__ import annotations

from pathlib import Path

from clockwatt import config
from clockwatt.cli.app import app, examples
from clockwatt.cli.options import DEFAULT_CONFIG, CatalogueOfCampaign, Config, MeasurementsOfCampaign, StoreOfCampaign
from clockwatt.schema import layout


@app.command(epilog=examples("clockwatt plan", "clockwatt plan --config config/config.yaml"))
def plan(
    config_file: Config = DEFAULT_CONFIG,
    catalogue_dir: CatalogueOfCampaign = None,
    store_dir: StoreOfCampaign = None,
    measurements_dir: MeasurementsOfCampaign = None,
) -> None:
    """Estimate jobs, GPU-hours, files and bytes of a campaign."""
    from clockwatt.control.points import check_campaign
    from clockwatt.workflow import cluster, design_rounds, job_limits, plan_studies
    from clockwatt.workflow import plan as stage
    from clockwatt.workflow.study_data import check_study_data

    campaign = config.load(config_file)
    check_campaign(campaign)
    check_study_data(campaign, str(config_file))
    results = Path(campaign.results_dir)
    with stage.catalogue_for(campaign, catalogue_dir or results / layout.CATALOGUE) as catalogue:
        store_dir, measurements_dir = (
            store_dir or results / layout.STORE,
            measurements_dir or results / layout.MEASUREMENTS,
        )
        stage.show_plan(stage.make_plan(campaign, catalogue, store_dir, measurements_dir))
        design_rounds.show_rounds(design_rounds.round_costs(campaign, catalogue))
    plan_studies.show_studies(plan_studies.plan_studies(campaign))
    with cluster.optional("Whether jobs fit the nodes"):
        for misfit in job_limits.all_misfits(campaign):
            print(misfit)
