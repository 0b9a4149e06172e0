"""The house rules that code can keep: who imports whom, what is public, how long things may get."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
PACKAGES = {
    "rackgate": ROOT / "plugins" / "rackgate",
    "rackgate_fixtures": ROOT / "fixtures" / "rackgate_fixtures",
    "rackgate_suites": ROOT / "suites" / "rackgate_suites",
    "rackgate_reports": ROOT / "reports" / "rackgate_reports",
}
NOUNS = (
    *("target", "node", "slo", "load", "sample", "measurement", "verdict", "fault", "record", "engine"),
    "route",
)
GLUE = (
    *("rackgate.plugin", "rackgate.options", "rackgate.stages", "rackgate.recorder", "rackgate.hookspecs"),
    *("rackgate.startup", "rackgate.shipped", "rackgate.raised", "rackgate.junit", "rackgate.conclusion"),
)
HEAVY = {
    "numpy",
    "httpx",
    "pydantic",
    "pydantic_core",
    "pyarrow",
    "testcontainers",
    "pynvml",
    "hypothesis",
    "docker",
    "ray",
}
REPORTS_MAY = {f"rackgate.{noun}" for noun in NOUNS} | {
    "rackgate.redaction",
    "rackgate.message",
    "rackgate.statistics",
}
MODULE_LINES, FUNCTION_LINES = (300, 400), (40, 60)
"""What a module and a function should have at most, and what fails."""


def _modules():
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join((package, *(part for part in parts if part != "__init__")))
            yield name, path


MODULES = dict(_modules())
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def _imports(tree, *, runtime=False):
    """Yield (module, line, top) of each import; those for type checkers only are left out at runtime."""
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for statement in block.body
        for node in ast.walk(statement)
    }
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if runtime and id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in top
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or ""), node.lineno, id(node) in top


def _root(module):
    return module.split(".")[0]


def _wrong(allowed, *, runtime=False, top_only=False):
    """Return `module:line imports what` for each import that `allowed(importer, imported)` refuses."""
    return [
        f"{name}:{line} imports {module}"
        for name, tree in TREES.items()
        for module, line, top in _imports(tree, runtime=runtime)
        if (top or not top_only) and not allowed(name, module)
    ]


def test_packages_import_only_what_stands_below_them():
    below = {
        "rackgate": {"rackgate"},
        "rackgate_fixtures": {"rackgate", "rackgate_fixtures"},
        "rackgate_reports": {"rackgate", "rackgate_reports"},
        "rackgate_suites": set(PACKAGES),
    }
    assert [] == _wrong(
        lambda name, module: _root(module) not in PACKAGES or _root(module) in below[_root(name)]
    )


def test_reports_know_records_and_nouns_only():
    def allowed(name, module):
        if _root(name) != "rackgate_reports" or _root(module) != "rackgate":
            return True
        return module in REPORTS_MAY or any(module.startswith(f"{known}.") for known in REPORTS_MAY)

    assert [] == _wrong(allowed)


def test_nouns_import_only_the_standard_library_and_each_other():
    nouns = {f"rackgate.{noun}" for noun in NOUNS}

    def allowed(name, module):
        return name not in nouns or _root(module) in sys.stdlib_module_names or module in nouns

    assert [] == _wrong(allowed)


def test_pytest_is_imported_in_the_glue_only():
    def allowed(name, module):
        if _root(name) != "rackgate" or _root(module) not in ("pytest", "_pytest"):
            return True
        return name in GLUE

    assert [] == _wrong(allowed, runtime=True)


def test_what_measures_does_not_judge():
    measuring = ("rackgate.metrics.", "rackgate.telemetry.", "rackgate.loadgen.")
    judging = ("rackgate.judge", "rackgate.ledger")
    assert [] == _wrong(lambda name, module: not name.startswith(measuring) or module not in judging)


def test_signals_and_loads_know_no_metrics():
    below = ("rackgate.telemetry.", "rackgate.loadgen.", "rackgate.engines.")
    assert [] == _wrong(
        lambda name, module: not name.startswith(below) or not module.startswith("rackgate.metrics")
    )


def test_pydantic_is_imported_in_config_only():
    assert [] == _wrong(
        lambda name, module: _root(module) != "pydantic" or name.startswith("rackgate.config.")
    )


def test_ray_is_imported_in_the_process_that_reaches_load_machines_only():
    assert [] == _wrong(
        lambda name, module: _root(module) != "ray" or name == "rackgate.loadgen.remote.ray_relay"
    )


def test_imports_are_absolute():
    assert [] == _wrong(lambda _name, module: not module.startswith("."))


def test_entry_points_and_fixtures_import_nothing_heavy_at_their_top():
    light = {
        "rackgate",
        "rackgate.plugin",
        "rackgate.options",
        "rackgate.hookspecs",
        "rackgate_reports.plugin",
    }

    def allowed(name, module):
        is_light = name in light or _root(name) in ("rackgate_fixtures", "rackgate_suites")
        return not is_light or _root(module) not in HEAVY

    assert [] == _wrong(allowed, runtime=True, top_only=True)


def test_no_module_is_named_after_nothing():
    empty = {"utils", "util", "common", "helpers", "helper", "manager", "base", "misc"}
    assert [] == [name for name in MODULES if set(name.split(".")) & empty]


def _public(tree):
    """Return the public names that a module defines at its top, and its `__all__` (None without one)."""
    names, listed = [], None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and target.id == "__all__":
                listed = list(ast.literal_eval(node.value))
            elif isinstance(target, ast.Name):
                names.append(target.id)
    return {name for name in names if not name.startswith("_")}, listed


LISTED = {name: _public(tree)[1] for name, tree in TREES.items() if _public(tree)[1] is not None}


def test_each_list_of_public_names_is_sorted_and_names_each_once():
    # As ruff sorts them: constants, then classes, then the rest.
    def key(name):
        return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)

    assert [] == [name for name, listed in LISTED.items() if sorted(set(listed), key=key) != listed]


def test_each_public_name_exists():
    missing = []
    for name, listed in LISTED.items():
        if name.endswith("__main__"):
            continue
        module = importlib.import_module(name)
        missing += [f"{name}.{one}" for one in listed if not hasattr(module, one)]
    assert [] == missing


def test_what_another_module_imports_is_public_or_defined_for_it():
    private = [
        f"{name}:{node.lineno} imports {alias.name} of {node.module}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in LISTED
        for alias in node.names
        if alias.name not in LISTED[node.module] and f"{node.module}.{alias.name}" not in MODULES
    ]
    assert [] == private


def test_modules_with_public_functions_list_them():
    glue = {"rackgate.plugin", "rackgate_fixtures.plugin"}
    unlisted = [
        name
        for name, tree in TREES.items()
        if name not in LISTED
        and name not in glue
        and _public(tree)[0]
        and not name.startswith("rackgate_suites")
        if not name.endswith(("__main__", "keeper"))
    ]
    assert [] == unlisted


def _functions():
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}.{node.name}:{node.lineno}", node.end_lineno - node.lineno + 1


def test_no_module_and_no_function_is_too_long(record_testsuite_property):
    modules = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}
    functions = dict(_functions())
    long = {**modules, **functions}
    over = sorted(
        f"{name}: {lines} lines"
        for name, lines in long.items()
        if lines > (FUNCTION_LINES if name in functions else MODULE_LINES)[0]
    )
    print("longer than the house likes:", *over, sep="\n  ")
    record_testsuite_property("longer_than_the_house_likes", len(over))
    assert [] == [
        f"{name}: {lines} lines"
        for name, lines in long.items()
        if lines > (FUNCTION_LINES if name in functions else MODULE_LINES)[1]
    ]


@pytest.mark.parametrize("word", ["print", "assert"])
def test_shipped_code_neither_prints_nor_asserts(word):
    found = []
    for name, tree in TREES.items():
        if name.startswith("rackgate_suites") or name.endswith("__main__"):
            continue
        for node in ast.walk(tree):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == word
            if called or (word == "assert" and isinstance(node, ast.Assert)):
                found.append(f"{name}:{node.lineno}")
    assert [] == found
