"""The notebooks run from the first cell to the last, and are committed without outputs."""

import json
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

from tests import own_warnings
from tests.test_readme import TINY_RUN

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PARAMETERS = f"""
SETTINGS += {TINY_RUN.split()}  # as README is tried out: the compiled programs are the same
EPISODES = "2"
{own_warnings.CELL}
"""


@pytest.fixture
def kernel(tmp_path, monkeypatch) -> str:
    """Name of a kernel that is this interpreter and finds this checkout."""
    spec = tmp_path / "share" / "kernels" / "this-python"
    spec.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    content = {"argv": command, "display_name": "this Python", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(content))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return "this-python"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs(path, kernel, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    (parameters,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    parameters.source += PARAMETERS
    folder = tmp_path / "empty"
    folder.mkdir()
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name=kernel, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 4


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_is_committed_clean_and_installs_on_colab_only(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert 'if "google.colab" in sys.modules:\n    %pip install' in code[0].source
    assert not [cell for cell in code[1:] if "pip install" in cell.source]
