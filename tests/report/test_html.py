"""The report: complete, self-contained, the same twice, and safe with any card."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from hauberk.accounting.card import Card, CertifiedAccuracy, ClassAccuracy
from hauberk.accounting.exhibits import Exhibits
from hauberk.errors import RequestError
from hauberk.report import render, write_report

VOID = {"meta", "img", "br", "link", "hr", "input"}
NOT_A_TAG = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg onload=alert(3)>{{ 7 * 7 }}"


@dataclass
class Page(HTMLParser):
    """What a browser would find: elements with their attributes, the text, and whether tags match."""

    source: str
    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    text: str = ""
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.source)
        self.close()
        assert not self.open
        self.text = " ".join(self.text.replace("\N{NO-BREAK SPACE}", " ").split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def charts(self) -> list[dict[str, str | None]]:
        return [attributes for attributes in self.all("svg") if attributes.get("class") == "chart"]


def exhibits(card: Card, **changes: object) -> Card:
    return replace(card, exhibits=replace(card.exhibits, **changes))  # type: ignore[arg-type]


def with_radii(*points: CertifiedAccuracy) -> Callable[[Card], Card]:
    def change(card: Card) -> Card:
        assert card.robustness.proven is not None
        proven = replace(card.robustness.proven, certified_accuracy=points)
        return replace(card, robustness=replace(card.robustness, proven=proven))

    return change


def flat_inputs(card: Card) -> Card:
    assert card.exhibits.strip is not None
    rows = np.zeros((6, 14), dtype=np.float32)
    return exhibits(card, strip=replace(card.exhibits.strip, images=rows, attempts=rows))


def colour_pictures(card: Card) -> Card:
    assert card.exhibits.strip is not None
    pictures = np.random.default_rng(0).random((6, 3, 32, 32)).astype(np.float32)
    return exhibits(card, strip=replace(card.exhibits.strip, images=pictures, attempts=pictures))


def damaged_strip(card: Card) -> Card:
    assert card.exhibits.strip is not None
    return exhibits(card, strip=replace(card.exhibits.strip, radii=np.zeros(2, dtype=np.float32)))


def not_numbers(card: Card) -> Card:
    assert card.exhibits.strip is not None
    attempts = np.full_like(card.exhibits.strip.attempts, np.nan)
    return exhibits(card, strip=replace(card.exhibits.strip, attempts=attempts))


def endless_curve(card: Card) -> Card:
    return exhibits(card, curve=tuple(replace(point, epsilon=float("inf")) for point in card.exhibits.curve))


def one_point(card: Card) -> Card:
    return exhibits(card, curve=card.exhibits.curve[:1])


def many_classes(card: Card) -> Card:
    assert card.utility is not None
    per_class = tuple(ClassAccuracy(label=label, tested=5, accuracy=label / 200) for label in range(200))
    return replace(card, utility=replace(card.utility, per_class=per_class))


def unmeasured_class(card: Card) -> Card:
    assert card.utility is not None
    per_class = (*card.utility.per_class, ClassAccuracy(label=10, tested=0, accuracy=None))
    return replace(card, utility=replace(card.utility, per_class=per_class))


def unproven(card: Card) -> Card:
    return replace(
        card,
        privacy=replace(card.privacy, proven=None, reason="noise reproducible from a recorded seed"),
        robustness=replace(card.robustness, proven=None, reason="the noise was not the certificate's"),
    )


def unobserved(card: Card) -> Card:
    return replace(
        card,
        privacy=replace(card.privacy, observed=None),
        robustness=replace(card.robustness, observed=None, reason="the attack was stopped"),
    )


def empty(card: Card) -> Card:
    """A card that says nothing at all, without notes and pictures."""
    return replace(
        card,
        privacy=replace(card.privacy, claimed=None, proven=None, observed=None),
        robustness=replace(card.robustness, claimed=None, proven=None, observed=None),
        utility=None,
        versions={},
        notes=(),
        exhibits=Exhibits(),
    )


def hostile(card: Card) -> Card:
    bad = NOT_A_TAG
    privacy, robustness = card.privacy, card.robustness
    assert privacy.claimed is not None
    assert privacy.proven is not None
    assert privacy.observed is not None
    assert robustness.claimed is not None
    assert robustness.proven is not None
    assert robustness.observed is not None
    return replace(
        card,
        method=bad,
        variant=bad,
        data=bad,
        privacy=replace(
            privacy,
            unit=bad,
            neighbours=bad,
            claimed=replace(privacy.claimed, source=bad),
            proven=replace(privacy.proven, accountant=bad),
            observed=replace(privacy.observed, attack=bad),
            reason=bad,
        ),
        robustness=replace(
            robustness,
            norm=bad,
            claimed=replace(robustness.claimed, formula=bad),
            proven=replace(robustness.proven, certificate=bad),
            observed=replace(robustness.observed, attack=bad),
            reason=bad,
        ),
        versions={bad: bad},
        command=bad + "\udcff\x00\x1b[2J",
        notes=(bad,),
        exhibits=replace(card.exhibits, class_names=(bad,) * 10),
    )


@dataclass(frozen=True, kw_only=True)
class Variant:
    change: Callable[[Card], Card]
    charts: int = 3
    pictures: int = 12
    says: tuple[str, ...] = ()


VARIANTS = {
    "everything": Variant(
        change=lambda card: card,
        says=(
            "private-smoothing on digits",
            "In plain words",
            "epsilon ≤ 2.99 at delta 1e-5, proven by PLD",
            "93.5 % of 500 tested inputs keep their correct answer under every l2 perturbation",
            "average radius 0.521",
            "0 of 120 broken",
            "9 (wrong)",
            "answer kept",
            "abstains after the attack",
            "answer changed to 6, outside the radius",
            "no answer to change",
            "Balanced over classes",
            "95.2 %",
            "Tuning on private data is not accounted",
            "hauberk demo --seed 0",
            "torch 2.13.0",
            "20,000 records",
        ),
    ),
    "proven is none": Variant(
        change=unproven,
        charts=2,
        says=(
            "none Noise reproducible from a recorded seed.",
            "none The noise was not the certificate's.",
            "Nothing is proven for this run, for the reason on the card",
            "There is no chart of certified accuracy: this card lists none.",
        ),
    ),
    "observed is none": Variant(
        change=unobserved,
        says=("observed not computed", "On robustness: The attack was stopped.", "not attacked"),
    ),
    "no strip": Variant(
        change=lambda card: exhibits(card, strip=None),
        pictures=0,
        says=("No test pictures are shown: none were kept with this card.",),
    ),
    "no curve": Variant(
        change=lambda card: exhibits(card, curve=()),
        charts=1,
        says=("There is no chart of epsilon against steps", "There is no chart of accuracy against epochs"),
    ),
    "curve without epsilon": Variant(
        change=endless_curve, charts=2, says=("There is no chart of epsilon against steps",)
    ),
    "curve of one point": Variant(change=one_point),
    "no radii": Variant(
        change=with_radii(),
        charts=2,
        says=("There is no chart of certified accuracy", "Certified radius", "l2, on average"),
    ),
    "many radii": Variant(
        change=with_radii(*(CertifiedAccuracy(radius=i / 100, accuracy=1 - i / 100) for i in range(101))),
        says=("Some of the radii on the card", "75.0 % of 500 tested inputs"),
    ),
    "no utility": Variant(
        change=lambda card: replace(card, utility=None),
        says=("There are no accuracies: utility was not measured for this card.",),
    ),
    "no names for the classes": Variant(change=lambda card: exhibits(card, class_names=())),
    "not pictures": Variant(
        change=flat_inputs, pictures=0, says=("the inputs of this run are not pictures",)
    ),
    "colour pictures": Variant(change=colour_pictures),
    "damaged strip": Variant(change=damaged_strip, pictures=0, says=("are incomplete",)),
    "pictures of nothing": Variant(change=not_numbers, pictures=0, says=("values that are not numbers",)),
    "many classes": Variant(change=many_classes, says=("The 20 weakest of 200 classes",)),
    "a class without tests": Variant(change=unmeasured_class, says=("not computed 0",)),
    "nothing": Variant(
        change=empty,
        charts=0,
        pictures=0,
        says=("The card gives no reason.", "and the card gives no reason.", "The card has no notes."),
    ),
    "hostile names": Variant(change=hostile, says=("{{ 7 * 7 }}", "<script>alert(1)</script>")),
}


@pytest.fixture(params=list(VARIANTS.values()), ids=list(VARIANTS))
def variant(request: pytest.FixtureRequest) -> Variant:
    chosen: Variant = request.param
    return chosen


def test_every_card_gives_a_sound_page(card: Card, variant: Variant) -> None:
    source = render(variant.change(card))
    page = Page(source)

    for phrase in variant.says:
        assert phrase in page.text
    assert len(page.charts) == variant.charts
    assert len(page.all("img")) == variant.pictures

    # nothing to load, nothing to run
    assert not page.all("script")
    assert not page.all("link")
    assert "@import" not in source
    assert "url(http" not in source
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)
        assert str(attributes.get("src", "data:image/png;base64,")).startswith("data:image/png;base64,")
        assert str(attributes.get("href", "#")).startswith("#")

    # readable without eyes
    assert all(attributes.get("alt") for attributes in page.all("img"))
    assert all(attributes.get("aria-label") for attributes in page.charts)
    assert len(page.all("figcaption")) == len(page.all("figure"))
    identifiers = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    referred = set(re.findall(r'(?:href="#|url\(#)([^")]+)', source))
    assert referred <= set(identifiers)


def test_the_page_forbids_itself_scripts_and_requests(card: Card) -> None:
    policy = next(meta for meta in Page(render(card)).all("meta") if "http-equiv" in meta)
    assert policy["content"] == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_the_same_card_gives_the_same_bytes(card: Card) -> None:
    first = render(card)
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": "other", "axes.grid": False}):
        assert render(card) == first


def test_drawing_leaves_no_trace_in_matplotlib(card: Card) -> None:
    before = dict(matplotlib.rcParams)
    render(card)
    assert dict(matplotlib.rcParams) == before


def test_a_break_inside_the_radius_is_marked(card: Card) -> None:
    assert card.exhibits.strip is not None
    strip = replace(card.exhibits.strip, attempt_predicted=np.array([3, 2, 1, 0, 9, 3]))
    assert "answer changed to 3, inside the radius" in Page(render(exhibits(card, strip=strip))).text


def test_sizes_are_in_the_norm_of_the_radii(card: Card) -> None:
    page = Page(render(replace(card, robustness=replace(card.robustness, norm="l1"))))
    assert "answer changed to 6, outside the radius" in page.text
    assert "in the same norm" in page.text


def test_the_file_is_written_whole(card: Card, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(hostile(card), path)
    assert path.read_text(encoding="utf-8") == render(hostile(card))
    assert list(tmp_path.iterdir()) == [path]


def test_a_card_writes_its_own_report(card: Card, tmp_path: Path) -> None:
    card.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == render(card)


def test_a_missing_folder_is_told_in_one_sentence(card: Card, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot write"):
        write_report(card, tmp_path / "nowhere" / "report.html")
