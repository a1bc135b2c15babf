import pytest

from clockwatt.errors import ConfigError
from clockwatt.studies.power.plan import planned_runs
from support.power_study import campaign


def names(**study):
    return [run.name for run in planned_runs(campaign(**study), "a30")]


def test_each_repetition_has_every_network_at_every_point_once_in_an_order_of_its_own():
    runs = planned_runs(campaign(repetitions=3), "a30")
    assert [run.turn for run in runs] == list(range(1, len(runs) + 1))
    orders = [[(run.task.name, run.point) for run in runs if run.repetition == number] for number in (1, 2, 3)]
    assert len(orders[0]) == 3 * 6
    assert {frozenset(order) for order in orders} == {frozenset(orders[0])}
    assert len({tuple(order) for order in orders}) == 3


def test_the_order_is_that_of_the_seed():
    assert names() == names()
    other = campaign().model_copy(update={"seed": 1})
    assert [run.name for run in planned_runs(other, "a30")] != names()


def test_what_a_run_depends_on_is_in_its_folder(tmp_path):
    def folders(**study):
        return {run.folder(tmp_path) for run in planned_runs(campaign(**study), "a30")}

    assert folders() == folders(rest_to_c=40, idle_s=1)
    assert folders() < folders(repetitions=3)
    assert not folders() & folders(epochs=5)
    changed = folders() - folders(data={"dense_512": "/data"})
    assert {folder.parent.parent.name for folder in changed} == {"dense_512"}
    assert folders() == folders(optimizers={"dense_512": "Adam"})
    changed = folders() - folders(optimizers={"dense_16384": "rmsprop"})
    assert {folder.parent.parent.name for folder in changed} == {"dense_16384"}


def test_a_campaign_without_the_study_or_the_gpu_is_told():
    without = campaign().model_copy(update={"studies": type(campaign().studies)()})
    with pytest.raises(ConfigError, match=r"studies\.power: is not in the campaign"):
        planned_runs(without, "a30")
    with pytest.raises(ConfigError, match="no GPU is labelled 'h100'; there are a30"):
        planned_runs(campaign(), "h100")
