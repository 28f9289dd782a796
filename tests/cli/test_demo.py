"""Where the demo may write: into its own folder, and over nothing of anybody else's."""

import pytest

from evergraph.cli import demo
from evergraph.errors import InputError


def test_a_new_folder_is_marked_and_an_earlier_demo_makes_room(tmp_path):
    out = tmp_path / "deep" / "demo"
    demo._check(out)
    assert [path.name for path in out.iterdir()] == [".evergraph-demo"]
    (out / "ws" / "versions").mkdir(parents=True)
    (out / "run").mkdir()
    (out / "past-edges.csv").write_text("old")
    (out / "notes.txt").write_text("mine")
    demo._check(out)
    assert not (out / "ws").exists()
    assert (out / "notes.txt").read_text() == "mine"
    assert (out / ".evergraph-demo").is_file()


@pytest.mark.parametrize("name", ["ws", "run", "report.html", "past-vertices.csv", "2019-labels.csv"])
def test_what_is_not_the_demos_is_left_alone(tmp_path, name):
    path = tmp_path / name
    (path if "." in name else path / "workspace.json").parent.mkdir(exist_ok=True)
    (path if "." in name else path / "workspace.json").write_text("mine")
    with pytest.raises(InputError, match="Choose another --out") as error:
        demo._check(tmp_path)
    assert name in str(error.value)
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert (path if "." in name else path / "workspace.json").read_text() == "mine"


def test_other_files_in_the_folder_do_no_harm(tmp_path):
    (tmp_path / "papers.csv").write_text("mine")
    demo._check(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".evergraph-demo", "papers.csv"]
    with pytest.raises(InputError, match="a file, not a folder"):
        demo._check(tmp_path / "papers.csv")


def test_all_that_the_demo_writes_is_guarded(tmp_path):
    """The names are those under which its steps write, taken from the steps themselves."""
    from evergraph.datasets import load

    files = demo._write_slices(load("metamath"), tmp_path)
    past, new, labels, following = files
    written = {path.name for path in tmp_path.iterdir()}
    assert {path.name for path in (*past, *new, labels, *following)} == written - {"2020-labels.csv"}
    assert written <= set(demo._WRITTEN)


def test_the_gain_of_more_inputs_is_computed_and_shown_in_one_line(tmp_path, monkeypatch, one_thread):
    from evergraph.cli import run as command

    real = command.run
    monkeypatch.setattr(command, "run", lambda *given, **options: real(*given, **options, steps=2, first="2020"))
    said = []
    accuracy, _ = demo._run(tmp_path, "3 years", said.append, quiet=True)
    alone = demo._without_more_inputs(tmp_path, accuracy, said.append)
    assert alone != accuracy
    commands = "evergraph run metamath --inputs words; evergraph run metamath"
    more = "with classes of older neighbours too"
    assert said[-1] == f"Accuracy with words alone {alone:.3f}, {more} {accuracy:.3f} ({commands})"
    assert {path.name for path in tmp_path.iterdir()} <= set(demo._WRITTEN)
