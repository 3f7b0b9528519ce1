"""The notebooks run from top to bottom, and are committed as they were written: without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NAMES = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def test_there_are_three() -> None:
    assert NAMES == ["first-run.ipynb", "own-table.ipynb", "synthetic-ward.ipynb"]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_valid_small_and_without_outputs(name: str) -> None:
    notebook = nbformat.read(FOLDER / name, as_version=4)
    nbformat.validate(notebook)
    assert (FOLDER / name).stat().st_size < 20_000
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs
            assert cell.execution_count is None
            compile(cell.source, name, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    from nbclient import NotebookClient

    notebook = nbformat.read(FOLDER / name, as_version=4)
    client = NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    printed = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert printed
    assert not [output for output in printed if output.output_type == "error"]
