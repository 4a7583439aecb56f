"""The rules of the house that a machine can hold: who imports whom, sizes, dead names, import costs."""

import ast
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "jaxsched"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# The map of the house in CONTRIBUTING.md: a line a room. A file imports only from rooms above its own.
MAP = re.search(r"^```\njaxsched/\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.M | re.S)
assert MAP is not None
ROOMS = tuple(
    tuple(name.removesuffix("/").removesuffix(".py") for name in re.split(r"\s{2,}", line.strip())[0].split())
    for line in MAP[1].splitlines()
)
ENTRY_POINTS = ROOMS[-1]  # nothing imports them
WITHOUT_LEARNING = {"workloads", "sim", "policies"}
LINES, FUNCTION_LINES, CLOSURE_LINES = 300, 40, 80
CLOSURES = {"make_train"}  # the one training closure


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room(module: str) -> str:
    return module.split(".")[1]


def level(module: str) -> int:
    """On which line of the map the module's room is."""
    (found,) = (i for i, rooms in enumerate(ROOMS) if room(module) in rooms)
    return found


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: relative import"
            found += [
                f"{node.module}.{alias.name}" if node.module == "jaxsched" else str(node.module)
                for alias in node.names
            ]
    return found


ROOM_FILES = [path for path in SOURCES if path != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("path", ROOM_FILES, ids=name_of)
def test_imports_go_upwards(path):
    own = module_of(path)
    for module in imports(path):
        if module.startswith("jaxsched.") and module != "jaxsched.__version__":
            inside = room(module) == room(own) and room(own) not in ENTRY_POINTS
            assert inside or level(module) < level(own), f"imports {module}"


def test_the_map_is_the_house():
    """Every room and loose file of the package is on the map, once, and nothing else is; ten lines at most."""
    there = {p.stem for p in PACKAGE.iterdir() if p.name not in ("__init__.py", "py.typed", "__pycache__")}
    drawn = [name for rooms in ROOMS for name in rooms]
    assert sorted(drawn) == sorted(there)
    assert len(ROOMS) <= 10


@pytest.mark.parametrize("path", ROOM_FILES, ids=name_of)
def test_learning_libraries_stay_in_their_room(path):
    for module in imports(path):
        assert module.split(".")[0] != "jraph" or name_of(path) == "jaxsched/learner/graph.py"
        if room(module_of(path)) in WITHOUT_LEARNING:
            assert module.split(".")[0] != "optax" and not module.startswith("flax.linen")


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_files_and_functions_stay_small(path):
    text = path.read_text()
    assert len(text.splitlines()) <= LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            limit = CLOSURE_LINES if node.name in CLOSURES else FUNCTION_LINES
            assert node.end_lineno - node.lineno + 1 - docstring_lines(node) <= limit, node.name


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return (first.end_lineno or 0) - first.lineno + 1 if is_docstring else 0


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_dead_jax_names_and_no_leftovers(path):
    text = path.read_text()
    assert not re.search(r"jax\.tree_(map|leaves|util\.tree_map)\b|\bPRNGKey\b|\bpmap\b", text)
    assert not re.search(r"\b(TODO|FIXME|XXX)\b|NotImplementedError", text)


def test_no_room_is_called_nothing():
    forbidden = {"utils", "common", "base", "core", "helpers"}
    assert not [name_of(p) for p in PACKAGE.rglob("*") if p.stem in forbidden]


def test_no_machine_paths():
    kept = [p for folder in ("jaxsched", "configs", "docs", "tests") for p in (ROOT / folder).rglob("*.*")]
    kept += [ROOT / name for name in ("README.md", "Makefile", "pyproject.toml", ".ci/run")]
    pattern = re.compile("|".join(f"/{folder}/" for folder in ("work", "farm", "tmp", "root")))
    text_files = [
        p for p in kept if p.is_file() and p.suffix in {".py", ".md", ".yaml", ".toml", "", ".ipynb"}
    ]
    assert not [name_of(p) for p in text_files if pattern.search(p.read_text())]


def test_importing_the_package_is_free():  # JX-10
    code = (
        "import sys, time; began = time.perf_counter(); import jaxsched; print(time.perf_counter() - began);"
        "print('jax' in sys.modules); import jax._src.xla_bridge as b; print(b.backends_are_initialized())"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    seconds, loads_jax, starts_device = answer.stdout.split()
    assert float(seconds) < 1.0
    assert (loads_jax, starts_device) == ("False", "False")


@pytest.mark.parametrize("path", ROOM_FILES, ids=name_of)
def test_no_module_starts_a_device(path):
    """Constants at module level must be numpy's: a jnp one would start the backend on import."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            called = [c.func for c in ast.walk(node.value) if isinstance(c, ast.Call)]
            assert not [f for f in called if ast.unparse(f).startswith(("jnp.", "jax.numpy.", "jax.random."))]


def test_the_public_names_exist():
    import jaxsched

    for name in jaxsched.__all__:
        assert getattr(jaxsched, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = jaxsched.no_such_name


def test_the_whole_package_imports_quickly():
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import jaxsched.cli"], check=True)
    assert time.monotonic() - began < 3.0
