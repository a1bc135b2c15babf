"""A small campaign on a real Slurm, from the wheel and a folder that `clockwatt init` wrote: no checkout in sight."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from clocks_node import wait_for

from support.installed import install
from support.workdir import AT_ONCE, SMALL

pytestmark = pytest.mark.slurm

CAMPAIGN = SMALL | {
    "gpus": {
        "a30": {
            "device": "virtual:a30",
            "clocks_mhz": [900],
            "slurm": {"cpus_per_task": 1, "mem_mb": 1500, "runtime": 10, "gres": "gpu:a30:1", "partition": "main"},
        }
    },
    "passes": ["inference"],
    "fit": {"trees": 2, "folds": 2},
}


def test_a_campaign_runs_on_slurm_where_init_made_its_folder(accounting_cluster, tmp_path):
    installed = install(tmp_path)
    environment = accounting_cluster.environment
    assert installed.run("clockwatt", "init", "campaign", at=tmp_path).returncode == 0
    campaign = tmp_path / "campaign"
    (campaign / "config" / "config.yaml").write_text(yaml.safe_dump(CAMPAIGN))
    options = ("--profile", "slurm", *AT_ONCE, "--set-threads", "fit=1")
    began = f"--starttime={datetime.now():%Y-%m-%dT%H:%M:%S}"  # the cluster has had jobs of other tests
    ran = installed.run("snakemake", *options, "--nocolor", at=campaign, environment=environment)
    assert ran.returncode == 0, ran.stdout[-5000:]
    jobs = accounting_cluster.command("sacct", began, "-X", "-P", "-n", "-o", "State,Comment").stdout.splitlines()
    rules = {line.split("|")[1].removeprefix("rule_").split("_wildcards")[0] for line in jobs}
    assert rules == {
        *("catalogue", "calibrate", "measure", "measure_networks", "dataset", "fit", "validate", "figures", "page"),
    }
    assert {line.split("|")[0] for line in jobs} == {"COMPLETED"}
    shown = installed.run("clockwatt", "show", "squeezenet1_1", "--json", at=campaign)
    (of_inference,) = json.loads(shown.stdout)
    (gpu,) = of_inference["gpus"]
    assert (gpu["gpu"], Path(gpu["predictors"])) == ("a30", Path("results/predictors/a30"))
    assert gpu["points"][0]["measured"]["energy_j"] > 0

    question = ("resnet18", "--input", "1,3,64,64", "--measure-missing", "3", "--slurm", "--json")
    predicted = installed.run(
        "clockwatt", "predict", *question, "--gpu", "a30", "--point", "sm900", at=campaign, environment=environment
    )
    assert predicted.returncode == 0, predicted.stdout
    answer = json.loads(predicted.stdout[predicted.stdout.index("{") :])
    assert answer["measured_now"]["operations"] == 3
    chosen = installed.run("clockwatt", "recommend", *question, at=campaign, environment=environment)
    assert chosen.returncode == 0, chosen.stdout
    answer = json.loads(chosen.stdout[chosen.stdout.index("{") :])
    assert (answer["measured_now"]["a30"]["operations"], answer["measured_now"]["a30"]["looked_up"]) == (3, 3)

    def asked():
        columns = ("-o", "State,ReqTRES")
        return accounting_cluster.command("sacct", "-X", "-P", "-n", "--name=clockwatt", *columns).stdout.split()

    # accounting may come a moment after the job
    wait_for(lambda: [line.partition("|")[0] for line in asked()] == ["COMPLETED"] * 2)
    assert all("gres/gpu:a30=1" in line for line in asked())
