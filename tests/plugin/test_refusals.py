"""What an acceptance run does not put up with: exit 4, the reason, and nothing was run or written."""

import pytest

pytestmark = pytest.mark.slow

FOREIGN = """
def pytest_addoption(parser):
    parser.addoption({options})
"""


def _refused(outcome, *parts):
    assert 4 == outcome.exit_code, outcome.text
    for part in parts:
        assert part in outcome.text
    assert not outcome.folder.exists()
    assert "INTERNALERROR" not in outcome.text


def test_parallel_workers_are_refused(ladder):
    _refused(ladder("-n", "2"), "pytest-xdist", "start its own engines on the same cards")


@pytest.mark.parametrize(
    ("options", "given", "reason"),
    [
        ("'--reruns', type=int, default=0", ("--reruns", "1"), "would turn a FAIL into a green JUnit"),
        ("'--random-order', action='store_true', dest='random_order'", ("--random-order",), "in order"),
        ("'--timeout', default=None", ("--timeout", "60"), "would cut a measurement"),
    ],
)
def test_a_plugin_that_bends_verdicts_is_refused_when_it_is_active(pytester, ladder, options, given, reason):
    pytester.makepyfile(foreign=FOREIGN.format(options=options))
    pytester.syspathinsert()
    _refused(ladder("-p", "foreign", *given), reason)
    assert 0 == ladder("-p", "foreign", stages=("preflight",)).exit_code


@pytest.mark.parametrize(("name", "value"), [("reruns", "2"), ("timeout", "10")])
def test_the_same_in_the_ini_is_refused(pytester, ladder, name, value):
    pytester.makepyfile(foreign=f"def pytest_addoption(parser): parser.addini('{name}', '')")
    pytester.syspathinsert()
    pytester.makeini(f"[pytest]\n{name} = {value}\n")
    _refused(ladder("-p", "foreign"), f"--{name}" if name == "reruns" else "deadlines")


def test_random_ordering_by_its_mere_presence_is_refused(pytester, ladder):
    pytester.makepyfile(randomly="")
    pytester.syspathinsert()
    _refused(ladder("-p", "randomly"), "-p no:randomly")


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("rack_acceptence", "unknown marker 'rack_acceptence'; did you mean 'rack_acceptance'?"),
        ("rack_aceptance", "did you mean 'rack_acceptance'?"),
        ("rackacceptance", "did you mean 'rack_acceptance'?"),
        ("rack_acceptance and gpuu", "unknown marker 'gpuu'; did you mean 'gpu'?"),
    ],
)
def test_a_mistyped_marker_is_named_with_the_nearest_one(pytester, run, expression, hint):
    pytester.makeini("[pytest]\nmarkers =\n    gpu: needs a card\n")
    pytester.makepyfile("import pytest\n@pytest.mark.gpu\ndef test_one(): pass")
    _refused(
        run("-m", expression, "--rack-out", "run") if "and" in expression else run("-m", expression), hint
    )


def test_markers_that_a_conftest_registers_late_are_known(extend, run):
    extend(
        "\ndef pytest_configure(config): config.addinivalue_line('markers', 'slow(by=None): takes long')\n"
    )
    assert 5 == run("-m", "rack_acceptance and not slow(by=3)", "--collect-only").exit_code


def test_a_project_may_use_markers_of_its_own_that_it_never_registered(pytester, run):
    pytester.makepyfile("import pytest\n@pytest.mark.gpu\ndef test_one(): pass")
    assert 0 == run("-m", "gpu").exit_code


def test_a_folder_that_holds_evidence_is_not_written_to(ladder):
    first = ladder(stages=("preflight",))
    before = first.everything() | {"terminal": b""}
    second = ladder(stages=("preflight",))
    assert 4 == second.exit_code
    assert "already holds the evidence of a run: give another --rack-out" in second.text
    assert before == second.everything() | {"terminal": b""}


def test_a_folder_that_cannot_be_made_is_named(pytester, ladder):
    pytester.path.joinpath("run").write_text("a file")
    outcome = ladder()
    assert 4 == outcome.exit_code
    assert "is a file" in outcome.line("  --rack-out:")


@pytest.mark.parametrize(
    ("hook", "register", "kind"),
    [
        ("pytest_rack_metrics", "register('ttft_ms', 'ms', mine)", "metric 'ttft_ms'"),
        ("pytest_rack_faults", "register('kill', mine)", "fault 'kill'"),
        ("pytest_rack_engines", "register('remote', mine, mine)", "engine 'remote'"),
        ("pytest_rack_reports", "register('report.html', mine)", "report 'report.html'"),
    ],
)
def test_a_name_registered_twice_is_refused_and_both_are_named(extend, ladder, hook, register, kind):
    extend(f"\ndef mine(*a): pass\ndef {hook}(config, register):\n    {register}\n")
    outcome = ladder()
    _refused(outcome, f"{kind} is registered by ", "conftest.mine")
    assert "rackgate" in outcome.line("ERROR: rackgate: ").split("registered by")[1]


def test_one_check_in_two_tests_is_refused(pytester, ladder):
    pytester.makepyfile(
        test_again="""
        import pytest
        pytestmark = [pytest.mark.rack_acceptance, pytest.mark.rack_stage("preflight")]
        def test_again(rack_slo, measured, rack_check):
            rack_check(rack_slo, measured)
        """
    )
    _refused(
        ladder(stages=("preflight",)), "is judged twice: by test_again.py::test_again", "test_preflight.py"
    )


def test_a_file_that_is_not_there_leaves_no_folder(run):
    outcome = run("-m", "rack_acceptance", "--rack-out", "run", "nowhere.py")
    _refused(outcome, "file or directory not found: nowhere.py")


def test_every_problem_of_options_and_both_files_stands_in_one_error(pytester, run):
    pytester.makeconftest("")
    pytester.path.joinpath("rack.toml").write_text(
        '[target]\nname = "x"\nmodle = "m"\n[[engine]]\nname = "e"\n'
    )
    pytester.path.joinpath("site.toml").write_text('[[slo]]\nid = "single_card.ttft_p50"\nboundd = 3\n')
    outcome = run(
        *(
            "-m",
            "rack_acceptance",
            "--rack-out",
            "run",
            "--rack-target",
            "rack.toml",
            "--rack-slo",
            "site.toml",
        ),
        *("--rack-stage", "preflite", "--rack-seed", "many", "--rack-profile", "smoke"),
    )
    _refused(
        outcome,
        "rackgate: 7 problem(s), nothing was run",
        "--rack-seed: not a whole number: 'many' (command line)",
        "--rack-stage: no stage 'preflite'; did you mean 'preflight'?",
        "rack.toml: target.model: missing",
        "rack.toml: target.modle: unknown key; did you mean 'model'?",
        "rack.toml: engine[0].launcher: missing",
        "site.toml: slo 'single_card.ttft_p50'.boundd: unknown key; did you mean 'bound'?",
        "site.toml: slo 'single_card.ttft_p50': overrides shipped defaults.toml without a reason",
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--rack-target", "sim:2"), "'sim:2' is not sim:NODESxCARDS"),
        (("--rack-target", "sim:0x2"), "--rack-target=sim:0x2: "),
        (("--rack-scenario", "slow_crad"), "no scenario 'slow_crad'; did you mean 'slow_card'?"),
        (("--rack-target", "nowhere.toml"), "nowhere.toml: cannot be read: No such file or directory"),
        (("--rack-target", "http://127.0.0.1:9"), "--rack-model is needed"),
        (("--rack-profile", "smoky"), "no profile 'smoky'; did you mean 'smoke'?"),
        (("--rack-only", "node1/gpu7"), "no 'node1/gpu7'; did you mean 'node1/gpu"),
        (("--rack-exclude", "node1,node2"), "leave no engine"),
        (("--rack-seed", "-1"), "--rack-seed: not a whole number: '-1'"),
    ],
)
def test_a_bad_option_is_told_with_what_would_be_right(pytester, run, arguments, problem):
    pytester.makeconftest("")
    _refused(run("-m", "rack_acceptance", "--rack-out", "run", *arguments), problem)


def test_a_flag_that_is_neither_true_nor_false_is_refused(run, monkeypatch):
    monkeypatch.setenv("RACKGATE_STOP_ON_FAIL", "perhaps")
    _refused(
        run("-m", "rack_acceptance", "--rack-out", "run"),
        "--rack-stop-on-fail: neither true nor false: 'perhaps' (environment RACKGATE_STOP_ON_FAIL)",
    )


@pytest.fixture
def project(pytester):
    """A project with an ini file, and a rack's file in another place."""
    pytester.makeconftest("")
    pytester.makeini("[pytest]\nrack_profile = ci\nrack_out = run\n")
    elsewhere = pytester.mkdir("elsewhere")
    elsewhere.joinpath("pytest.ini").write_text("[pytest]\n")
    file = elsewhere / "rack.toml"
    file.write_text(
        '[target]\nname = "x"\nmodel = "m"\n[[engine]]\nname = "e"\nlauncher = "remote"\n'
        'url = "http://127.0.0.1:9"\n'
    )
    return file


def test_a_value_that_moves_pytest_to_another_ini_file_is_refused(project, run):
    outcome = run("-m", "rack_acceptance", "--rack-target", project)
    _refused(outcome, f"--rack-target {project}: pytest took the path for its own", "pytest.ini")
    assert f"write --rack-target={project}" in outcome.text


def test_the_same_from_the_environment_is_refused(project, run, monkeypatch):
    monkeypatch.setenv("PYTEST_ADDOPTS", f"--rack-target {project}")
    _refused(run("-m", "rack_acceptance"), f"write --rack-target={project}")


@pytest.mark.parametrize("separate", [False, True])
def test_a_value_that_leaves_the_ini_file_alone_is_taken(project, pytester, run, separate):
    inside = pytester.path / "rack.toml"
    inside.write_text(project.read_text())
    target = ("--rack-target", inside) if separate else (f"--rack-target={project}",)
    outcome = run("-m", "rack_acceptance", *target, "--collect-only")
    assert "profile ci" in outcome.line("rackgate: target x")


def test_a_password_in_a_url_is_not_repeated(pytester, run):
    pytester.makeconftest("")
    outcome = run(
        "-m", "rack_acceptance", "--rack-target", "https://root:hunter2secret@10.0.0.9", "--rack-model", "m"
    )
    assert 4 == outcome.exit_code
    assert "10.0.0.9" in outcome.text
    assert "hunter2secret" not in outcome.text
