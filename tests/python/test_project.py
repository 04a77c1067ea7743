"""What the project itself promises: releases by one script, workflows that call what the repository has."""

from __future__ import annotations

import datetime
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import shoal
from shoal.cli.test_command import SANITIZERS
from shoal.cli.test_parts import PARTS, WHEEL_MINORS

ROOT = Path(__file__).resolve().parents[2]
TODAY = datetime.date.today().isoformat()


def git(source: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    done = subprocess.run(["git", "-C", source, *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project that is ready to release 1.2.3."""
    files = {
        "python/shoal/_version.py": '__version__ = "1.2.3"\n',
        "python/shoal/__init__.py": "",
        "CITATION.cff": f"cff-version: 1.2.0\nversion: 1.2.3\ndate-released: {TODAY}\n",
        "CHANGELOG.md": f"# Changelog\n\n## 1.2.3 ({TODAY})\n\n- # is kept.\n- Second.\n\n## 1.2.2 (2020-01-01)\n\n- Old.\n",
        "pyproject.toml": '[build-system]\nrequires = ["scikit-build-core"]\nbuild-backend = "scikit_build_core.build"\n'
        '[project]\nname = "shoal"\nversion = "1.2.3"\n',
        ".gitignore": "/dist/\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/release", tmp_path / ".ci")
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    git(tmp_path, "config", "user.name", "a")
    git(tmp_path, "config", "user.email", "a@b.example")
    commit(tmp_path)
    return tmp_path


def commit(project: Path) -> None:
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--allow-empty", "--message", "all")


def release(project: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, project / ".ci/release", *arguments]
    return subprocess.run(command, cwd="/", env={**os.environ, **variables}, capture_output=True, text=True)


def test_a_release_is_an_archive_and_a_tag_with_the_changes(project: Path) -> None:
    done = release(project, "1.2.3")
    assert done.returncode == 0, done.stderr
    assert "dist/shoal-1.2.3.tar.gz is made, and the tag v1.2.3" in done.stdout
    with tarfile.open(project / "dist/shoal-1.2.3.tar.gz") as archive:
        assert "shoal-1.2.3/CHANGELOG.md" in archive.getnames()
    message = git(project, "tag", "--list", "v1.2.3", "--format=%(contents)")
    assert message == "Shoal 1.2.3\n\n- # is kept.\n- Second."
    again = release(project, "1.2.3")
    assert (again.returncode, again.stderr) == (1, "release: 1.2.3 is not above 1.2.3, the last release\n")


def test_a_check_changes_nothing(project: Path) -> None:
    done = release(project, "--check", "1.2.3")
    assert (done.returncode, done.stdout) == (0, "1.2.3 can be released\n")
    assert git(project, "tag") == "" and not (project / "dist").exists()


@pytest.mark.parametrize(
    ("path", "old", "new", "message"),
    [
        ("python/shoal/_version.py", "1.2.3", "1.2.4", "python/shoal/_version.py says 1.2.4: write 1.2.3"),
        ("CITATION.cff", "version: 1.2.3", "version: 1.0.0", "CITATION.cff says 1.0.0: write 1.2.3"),
        (
            "CITATION.cff",
            f"date-released: {TODAY}\n",
            "",
            "CITATION.cff says that it was released on None: write date-rel",
        ),
        (
            "CHANGELOG.md",
            f"1.2.3 ({TODAY})",
            "1.2.3 (unreleased)",
            "begins with '1.2.3 (unreleased)': write '## 1.2.3 (",
        ),
        ("CHANGELOG.md", "- # is kept.\n- Second.\n", "", "CHANGELOG.md has no entries"),
        ("CHANGELOG.md", "## ", "", "CHANGELOG.md begins with '': write"),
    ],
)
def test_what_does_not_name_the_version_is_told(project: Path, path: str, old: str, new: str, message: str) -> None:
    text = (project / path).read_text()
    assert old in text
    (project / path).write_text(text.replace(old, new))
    commit(project)
    done = release(project, "1.2.3")
    assert done.returncode == 1
    assert message in done.stderr
    assert git(project, "tag") == ""


def test_everything_that_is_wrong_is_told_at_once(project: Path) -> None:
    git(project, "tag", "v1.10.0")
    git(project, "switch", "--quiet", "--create", "side")
    (project / "new.txt").write_text("")
    done = release(project, "1.9.0")
    assert done.returncode == 1
    assert [line.removeprefix("release: ").partition(":")[0] for line in done.stderr.splitlines()] == [
        "the tree has changes that are not committed",
        "the branch is side",
        "1.9.0 is not above 1.10.0, the last release",
        "python/shoal/_version.py says 1.2.3",
        "CITATION.cff says 1.2.3",
        f"CHANGELOG.md begins with '1.2.3 ({TODAY})'",
    ]


def test_a_version_has_three_numbers(project: Path) -> None:
    done = release(project, "1.2")
    assert (done.returncode, done.stderr) == (1, "release: '1.2' is no version: it has three numbers, as in 1.2.3\n")


def test_what_git_fails_with_is_told(project: Path) -> None:
    shutil.rmtree(project / ".git")
    done = release(project, "1.2.3", GIT_CEILING_DIRECTORIES=str(project.parent))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        f"release: this failed: git -C {project}/.ci rev-parse --show-toplevel\nfatal: not a git"
    )
    assert "Traceback" not in done.stderr


def test_a_tag_that_git_refuses_is_told_without_its_text(project: Path) -> None:
    (project / ".git/refs/tags/v1.2.3").mkdir(parents=True)
    (project / ".git/refs/tags/v1.2.3/other").write_text(git(project, "rev-parse", "HEAD"))
    done = release(project, "1.2.3")
    assert done.returncode == 1 and "refs/tags/v1.2.3" in done.stderr
    assert "Second." not in done.stderr and "Traceback" not in done.stderr


def test_an_environment_without_the_build_system_is_passed_over(project: Path) -> None:
    (project / ".git/info/exclude").write_text("/.venv/\n")
    python = project / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    done = release(project, "1.2.3")
    assert done.returncode == 0, done.stderr
    assert (project / "dist/shoal-1.2.3.tar.gz").exists()


def test_a_check_tells_that_nobody_has_the_build_system(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("lacking")
    (folder / "scikit_build_core.py").write_text("raise ModuleNotFoundError")
    done = release(project, "--check", "1.2.3", PYTHONPATH=str(folder))
    assert done.returncode == 1
    assert done.stderr == (
        "release: no interpreter has scikit-build-core: .venv/bin/python -m pip install -r requirements-wheel.txt\n"
    )


WHEELS = [
    f"shoal-1.2.3-cp3{minor}-cp3{minor}-manylinux_2_34_{machine}.manylinux_2_35_{machine}.whl"
    for minor in (11, 14)
    for machine in ("aarch64", "x86_64")
]


@pytest.fixture
def released(project: Path) -> Path:
    """The small project, released, with the wheels of two Pythons in dist."""
    shutil.copy(ROOT / ".ci/publish", project / ".ci")
    (project / ".github/workflows").mkdir(parents=True)
    (project / ".github/workflows/wheels.yml").write_text('        python: ["3.11", "3.14"]\n')
    commit(project)
    git(project, "tag", "v1.2.3")
    (project / "dist").mkdir()
    for wheel in WHEELS:
        (project / "dist" / wheel).write_text("")
    return project


def publish(project: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, project / ".ci/publish", *arguments]
    return subprocess.run(command, cwd=project, env={**os.environ, **variables}, capture_output=True, text=True)


def test_a_dry_run_says_what_can_be_published_and_does_nothing(released: Path) -> None:
    done = publish(released, "--dry-run", "v1.2.3")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "1.2.3 can be published: 4 wheels, and a source archive that is yet to be made\n"
    assert sorted(file.name for file in (released / "dist").iterdir()) == sorted(WHEELS)
    (released / "dist").rename(released / "elsewhere")
    (released / "elsewhere/shoal-1.2.3.tar.gz").write_text("")
    assert publish(released, "--dry-run", "1.2.3", "elsewhere").stdout == "1.2.3 can be published: 4 wheels\n"


def test_a_dry_run_tells_everything_that_does_not_agree_at_once(released: Path) -> None:
    dist = released / "dist"
    (dist / WHEELS[-1]).rename(dist / WHEELS[-1].replace("1.2.3", "1.2.2"))
    (dist / WHEELS[0].replace("manylinux_2_34_aarch64.", "")).write_text("")
    (released / "CITATION.cff").write_text("version: 1.2.2\n")
    (released / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 (unreleased)\n")
    commit(released)
    done = publish(released, "--dry-run", "1.2.3")
    assert done.returncode == 1 and done.stdout == ""
    assert [line.removeprefix("publish: ") for line in done.stderr.splitlines()] == [
        "v1.2.3 is not what is checked out: git switch --detach v1.2.3",
        "CITATION.cff says 1.2.2, not 1.2.3",
        "CHANGELOG.md begins with '1.2.3 (unreleased)', not with '1.2.3 (its date)'",
        "CHANGELOG.md has no entries under '1.2.3 (unreleased)'",
        f"{dist / WHEELS[-1].replace('1.2.3', '1.2.2')} is neither a wheel nor the source archive of 1.2.3",
        f"{dist} has several wheels of cp311 for aarch64",
        f"{dist} has no wheels of cp314 for x86_64",
    ]
    git(released, "tag", "--delete", "v1.2.3")
    assert "there is no tag v1.2.3: .ci/release 1.2.3 makes it" in publish(released, "--dry-run", "1.2.3").stderr


def test_publishing_uploads_the_wheels_and_the_archive_to_the_release_and_the_index(
    released: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    programs = tmp_path_factory.mktemp("programs")
    told = programs / "told"
    (programs / "gh").write_text(f'#!/bin/sh\necho gh "$@" >> {told}\n[ "$2" != view ]\n')
    (programs / "gh").chmod(0o755)
    (programs / "twine.py").write_text(
        f"import sys; open({str(told)!r}, 'a').write(' '.join(['twine', *sys.argv[1:]]))"
    )
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    done = publish(released, "v1.2.3", PATH=path, PYTHONPATH=str(programs))
    assert done.returncode == 0, done.stderr
    files = " ".join(str(released / "dist" / name) for name in sorted(["shoal-1.2.3.tar.gz", *WHEELS]))
    assert told.read_text().splitlines() == [
        "gh release view v1.2.3",
        "gh release create v1.2.3 --verify-tag --title Shoal 1.2.3 --notes-file -",
        f"gh release upload v1.2.3 --clobber {files}",
        f"twine upload --skip-existing --disable-progress-bar {files}",
    ]


def test_only_a_tag_is_published() -> None:
    assert commands("wheels.yml")[-1] == ".ci/publish --new ${{ github.ref_name }} dist"
    job = (ROOT / ".github/workflows/wheels.yml").read_text().partition("\n  publish:\n")[2]
    assert "if: startsWith(github.ref, 'refs/tags/v')" in job and "needs: wheel" in job and "id-token: write" in job


def test_the_citation_names_this_version() -> None:
    assert f"\nversion: {shoal.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def requirements() -> tuple[list[str], dict[str, list[str]]]:
    """Those of the package, and of its extras."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib  # type: ignore[no-redef]  # the same under its earlier name
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project["dependencies"], project["optional-dependencies"]


def extras() -> dict[str, list[str]]:
    return requirements()[1]


def test_beside_a_torch_that_was_installed_alone_nothing_is_missing() -> None:
    assert [Requirement(need).name for need in extras()["torch"]] == ["torch"]
    assert "safetensors" in [Requirement(need).name for need in requirements()[0]]


def test_an_installed_torch_may_stay_wherever_a_release_of_an_extras_library_goes_with_it() -> None:
    (sb3,) = map(Requirement, extras()["sb3"])
    assert [version for version in ("2.6.0", "2.7.1", "2.8.0", "2.9.2") if version not in sb3.specifier] == []
    assert "2.5.0" not in sb3.specifier, "it needs an older Gymnasium than ours"
    (torch,) = (need for need in map(Requirement, extras()["torch"]) if need.name == "torch")
    assert "2.6.0" in torch.specifier


def test_the_page_on_installing_has_every_extra_and_what_all_has_but_for_torchrl() -> None:
    page = (ROOT / "docs/guides/installing.md").read_text()
    table = page.partition("\n## Extras\n")[2].partition("\n## ")[0]
    rows = {name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert rows == extras().keys() - {"dev"}
    (everything,) = extras()["all"]
    assert f"`'{everything.replace(',torchrl]', ']')}'`" in page


def commands(workflow: str) -> list[str]:
    return re.findall(r"^ *- run: (.*)$", (ROOT / ".github/workflows" / workflow).read_text(), re.M)


def test_workflows_call_the_scripts_of_the_repository_only() -> None:
    for path in (ROOT / ".github/workflows").iterdir():
        assert commands(path.name)
        assert "run: |" not in path.read_text()
        for command in commands(path.name):
            script = ROOT / command.split()[0]
            assert script.is_file() and script.stat().st_mode & 0o111, command


def matrix(workflow: str, name: str) -> list[str]:
    text = (ROOT / ".github/workflows" / workflow).read_text()
    listed = re.search(rf"^ *{name}:\n((?: +- .*\n)+)", text, re.M)
    if listed:
        return re.findall(r"- (.*)", listed[1])
    (line,) = re.findall(rf"^ *{name}: \[(.*)\]$", text, re.M)
    return line.split(", ")


def test_every_part_of_the_tests_is_in_a_workflow() -> None:
    assert ".ci/run" in commands("ci.yml")
    assert matrix("ci.yml", "sanitizer") == list(SANITIZERS)
    without = {"suite", *SANITIZERS, "gpu"}  # CI runs the first three, and hosted machines have no GPU
    assert matrix("nightly.yml", "part") == [part.name for part in PARTS if part.name not in without]


def test_every_python_that_wheels_are_made_for_is_built_for_releases_and_in_the_table_of_support() -> None:
    pythons = [f"3.{minor}" for minor in WHEEL_MINORS]
    assert matrix("wheels.yml", "python") == [f'"{python}"' for python in pythons]
    assert {f'"{pythons[0]}"', f'"{pythons[-1]}"'} <= {*matrix("ci.yml", "python")}
    assert f"\n| Python | {pythons[0]} to {pythons[-1]} |" in (ROOT / "docs/project/support.md").read_text()


def test_the_tests_that_need_a_second_user_are_run_as_root() -> None:
    assert ".ci/other-user" in commands("ci.yml")
    (chosen,) = re.findall(r"-R '(\w+)'", (ROOT / ".ci/other-user").read_text())
    need_root = [
        name
        for file in (ROOT / "src").rglob("*_test.cc")
        for name, body in re.findall(r"^TEST(?:_F)?\(\w+, (\w+)\) \{\n((?:  .*\n|\n)*)", file.read_text(), re.M)
        if re.search(r"geteuid\(\) != 0\) GTEST_SKIP", body)
    ]
    assert len(need_root) >= 4 and [name for name in need_root if chosen not in name] == []


def test_the_newest_compiler_and_python_are_tried_in_a_container() -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    assert re.search(r"container: debian:testing\n(?: +.*\n)*? +- run: \.ci/newest\n", text)
    named = re.search(r"tests=\$\((.*)\)$", (ROOT / ".ci/newest").read_text(), re.M)
    assert named is not None
    found = subprocess.run(["sh", "-c", named[1]], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert len(found) >= 5 and all((ROOT / file).is_file() for file in found)


@pytest.mark.parametrize(("user", "status"), [("1000", 0), ("0", 1)])
def test_the_image_is_tried_as_its_own_user_with_little_shared_memory(tmp_path: Path, user: str, status: int) -> None:
    assert ".ci/container" in commands("ci.yml")
    told, engine = tmp_path / "told", tmp_path / "engine"
    engine.write_text(f'#!/bin/sh\necho "$@" >> {told}\ncase "$*" in *"id -u") echo {user};; esac\n')
    engine.chmod(0o755)
    done = subprocess.run([ROOT / ".ci/container", engine], cwd="/", capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    built, *runs = told.read_text().splitlines()
    assert built == "build --tag shoal-try ."
    assert all(run.startswith("run --rm --shm-size 1m --network none --cap-drop ALL shoal-try ") for run in runs)
    programs = [run.partition("shoal-try ")[2] for run in runs]
    assert programs[0] == "id -u" and (programs[1:] == []) == (status == 1)
    if status == 0:
        assert programs[1] == "shoal doctor" and programs[2].startswith("shoal train CartPole-v1 ")
