"""Methods for persons: from Python, on the card, and refused where a method cannot protect persons."""

import json
from pathlib import Path

import pytest
import torch

import hauberk as hb
from hauberk import models
from hauberk.data import Dataset, load
from hauberk.data.persons import PersonDataset
from hauberk.errors import RequestError
from hauberk.methods.by_person import DPSGDByPerson, SmoothingByPerson
from hauberk.methods.dp_sgd import DPSGD
from hauberk.methods.training import prepare, prepare_resume, train
from hauberk.training import NoisyViews
from hauberk.training.grouped_views import GroupedViews

PLAN = hb.PrivacyPlan(records=40, batch=10, epochs=1, noise_multiplier=1.0, delta=1e-5)
AUDIT = hb.methods.AuditSettings(tested=4, samples=60, attacked=0)


def persons(count: int = 40) -> PersonDataset:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 2, (count, 3), generator=generator)
    y[::2, 2] = -1
    return PersonDataset(name="persons", x=torch.rand(count, 3, 5, generator=generator), y=y, classes=2)


@pytest.fixture
def table(tmp_path: Path) -> dict[str, object]:
    rows = "".join(f"p{i // 2},{i % 100},{'ab'[i % 2]}\n" for i in range(120))
    (tmp_path / "t.csv").write_text("who,n,label\n" + rows)
    (tmp_path / "t.toml").write_text(
        'label = "label"\nunit = "who"\n[[column]]\nname = "n"\nlow = 0\nhigh = 100\n'
        '[[column]]\nname = "label"\nlevels = ["a", "b"]\n'
    )
    return {
        "data": str(tmp_path / "t.csv"),
        "schema": str(tmp_path / "t.toml"),
        "records": 50,
        "size": "tiny",
        "attacked": 0,
        "tested": 4,
        "samples": 60,
    }


@pytest.mark.parametrize("kind", [SmoothingByPerson, DPSGDByPerson])
def test_in_python_the_card_is_about_persons(kind: type) -> None:
    torch.manual_seed(0)
    network = models.build("logistic", shape=(5,), classes=2)
    sigma = {"sigma": 0.2} if kind is SmoothingByPerson else {}
    run = kind(network, plan=PLAN, **sigma).fit(persons())
    data = persons()
    card = run.audit(Dataset(name="test", x=data.x[:, 0], y=data.y[:, 0], classes=2), settings=AUDIT)
    assert card.privacy.unit == "one person"
    assert card.privacy.neighbours == "add or remove one person"
    assert card.privacy.proven is not None
    assert card.privacy.proven.epsilon == pytest.approx(PLAN.epsilon())


def test_records_that_are_no_persons_are_refused() -> None:
    network = models.build("logistic", shape=(5,), classes=2)
    data = persons()
    plain = Dataset(name="plain", x=data.x[:, 0], y=data.y[:, 0], classes=2)
    with pytest.raises(RequestError, match="PersonDataset"):
        DPSGDByPerson(network, plan=PLAN).fit(plain)


def test_the_views_are_a_persons(table: dict[str, object], tmp_path: Path) -> None:
    prepared = prepare(root=tmp_path, name="r", force=False, config=table, options={"views": 2})
    views = prepared.method.record_views(prepared.method.model, (1,), {})
    assert isinstance(views, GroupedViews)
    assert isinstance(views.of_one, NoisyViews)
    assert views.of_one.views == 2


def test_a_loaded_run_is_still_about_persons(table: dict[str, object], tmp_path: Path) -> None:
    prepared = prepare(root=tmp_path, name="r", force=False, config=table, options={})
    _, card = train(prepared, command="hauberk train")
    again = hb.load(tmp_path / "r").audit(prepared.split.test, settings=AUDIT)
    assert card.privacy.unit == again.privacy.unit == "one person"
    assert card.privacy.proven == again.privacy.proven
    (tmp_path / "r" / "card.json").unlink()  # as if interrupted between training and card
    going_on, command = prepare_resume(tmp_path / "r")
    _, resumed = train(going_on, command=command, resume=True)
    assert resumed == card
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    assert config["inputs"]["classes"] == ["a", "b"]


@pytest.mark.parametrize("method", ["dp-sgd", "adaclip", "directional", "private-smoothing"])
def test_methods_that_protect_persons(method: str, table: dict[str, object], tmp_path: Path) -> None:
    prepared = prepare(root=tmp_path, name="r", force=False, config=table, options={"method": method})
    assert type(prepared.method).__name__.endswith("ByPerson")
    assert prepared.method.name == method


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"method": "pixeldp"}, "does not protect persons"),
        ({"method": "dp-sgd", "variant": "paper", "epsilon": 3.0}, "does not protect persons"),
        ({"method": "secure-sgd-agm"}, "does not protect persons"),
        ({"validation": 5}, "hold persons out with --holdout"),
        ({"public_data": "first:5"}, "name other --public-data"),
    ],
)
def test_what_would_not_protect_persons_is_refused(
    options: dict[str, object], part: str, table: dict[str, object], tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match=part):
        prepare(root=tmp_path, name="r", force=False, config=table, options=options)
    assert not (tmp_path / "r").exists()


def test_a_setting_that_makes_another_method_is_not_passed_over(
    table: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an imitation network, dp-sgd is another method, of which nobody has shown that it can do this."""

    class Other(DPSGD):
        pass

    monkeypatch.setattr(
        "hauberk.methods.catalogue.DPSGD.from_settings",
        lambda model, settings, plan: Other(model, plan=plan, **settings.common()),
    )
    with pytest.raises(RequestError, match="does not protect persons"):
        prepare(root=tmp_path, name="r", force=False, config=table, options={"method": "dp-sgd"})


def test_a_drafted_schema_proves_nothing_in_python_either(table: dict[str, object], tmp_path: Path) -> None:
    """The records remember it: `fit` never sees the split."""
    schema = Path(str(table["schema"]))
    schema.write_text(schema.read_text().replace("high = 100\n", "high = 100\nfrom_data = true\n"))
    split = load(str(table["data"]), schema=schema, records=40)
    assert split.train.unprovable
    model = models.build("logistic", shape=split.test.shape, classes=2)
    plan = hb.PrivacyPlan(records=40, batch=10, epochs=0.5, noise_multiplier=1.0, delta=1e-5)
    card = DPSGDByPerson(model, plan=plan).fit(split.train).audit(split.test, settings=AUDIT)
    assert card.privacy.proven is None
    assert "read from the private rows" in card.privacy.reason


def test_a_run_does_not_go_on_with_another_schema(table: dict[str, object], tmp_path: Path) -> None:
    prepared = prepare(root=tmp_path, name="one", force=False, config=table, options={})
    train(prepared, command="hauberk train")
    (tmp_path / "one" / "card.json").unlink()  # as if interrupted between training and card
    schema = Path(str(table["schema"]))
    schema.write_text(schema.read_text().replace("high = 100", "high = 101"))
    with pytest.raises(RequestError, match="no longer what"):
        prepare_resume(tmp_path / "one")
