"""docs/methods.md knows every method (its code runs in test_guide)."""

from pathlib import Path

from hauberk.methods import METHODS

PAGE = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()


def test_every_robust_method_is_on_the_page() -> None:
    for name, row in METHODS.items():
        if row.certifies and name != "private-smoothing":
            assert f"| `{name}` |" in PAGE


def test_the_page_says_how_every_method_works() -> None:
    _, _, explained = PAGE.partition("## How each method works")
    explained, _, _ = explained.partition("\n## ")
    heads = [line.partition("**.")[0] for line in explained.splitlines() if line.startswith("- **")]
    assert sorted(METHODS) == sorted(name.strip("`") for head in heads for name in head[4:].split(", "))
