"""Every bad input gets one clear error with file, column, row and fix, exit code 2, and leaves no output."""

import base64
import gzip
import json
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from evergraph.datasets.files import open_table
from evergraph.errors import InputError

VERTICES = "id,time,label,text\na,2001,KDD,some words\nb,2002,ICML,more words\nc,2003,,\n"
EDGES = "source,target\na,b\nb,c\n"


def b(text):
    return text.encode() if isinstance(text, str) else text


def replaced(old, new):
    assert old in VERTICES
    return VERTICES.replace(old, new)


NUMBERED = "id,time,label,x1,x2\na,2001,KDD,1,2\nb,2002,ICML,3,{}\n"
CASES = {
    # name: (vertices, edges, more arguments, what the error must say)
    "missing column id": (replaced("id,", "key,"), EDGES, (), ["v.csv", "'id'", "--id"]),
    "missing column time": (replaced("time", "year"), EDGES, (), ["v.csv", "'time'", "--time"]),
    "missing column label": (replaced("label", "venue"), EDGES, (), ["v.csv", "'label'", "--label", "--no-label"]),
    "missing mapped text": (VERTICES, EDGES, ("--text", "title"), ["v.csv", "'title'", "--text"]),
    "missing column source": (VERTICES, EDGES.replace("source", "from"), (), ["e.csv", "'source'", "--source"]),
    "missing column target": (VERTICES, EDGES.replace("target", "to"), (), ["e.csv", "'target'", "--target"]),
    "missing edge time": (VERTICES, EDGES, ("--edge-time", "t"), ["e.csv", "'t'", "--edge-time"]),
    "two columns of one name": (replaced("label", "time"), EDGES, (), ["v.csv", "'time'", "its own name"]),
    "duplicate id": (replaced("\nb,", "\na,"), EDGES, (), ["v.csv", "'id'", "row 2 (line 3)", "'a'", "row 1"]),
    "empty id": (replaced("\nb,", "\n,"), EDGES, (), ["v.csv", "'id'", "row 2 (line 3)"]),
    "dangling edge": (VERTICES, EDGES + "c,z\n", (), ["e.csv", "'target'", "row 3 (line 4)", "'z'", "--drop-dangling"]),
    "edge without end": (VERTICES, EDGES + ",c\n", (), ["e.csv", "'source'", "row 3 (line 4)"]),
    "nan in time": (
        replaced("2002", "NaN"),
        EDGES,
        (),
        ["v.csv", "'time'", "row 2 (line 3)", "'NaN'", "whole numbers"],
    ),
    "no time": (replaced("2002", ""), EDGES, (), ["v.csv", "'time'", "row 2 (line 3)", "empty cell"]),
    "text in time": (replaced("2002", "soon"), EDGES, (), ["v.csv", "'time'", "row 2 (line 3)", "'soon'"]),
    "fraction in time": (replaced("2002", "2002.5"), EDGES, (), ["v.csv", "'time'", "row 2 (line 3)", "'2002.5'"]),
    "no such day": (replaced("2002", "2002-02-30"), EDGES, (), ["v.csv", "'time'", "row"]),
    "number among dates": (replaced("2002", "2002-02-03"), EDGES, (), []),  # a year is a date: this one is fine
    "negative time": (replaced("2002", "-3"), EDGES, (), ["v.csv", "'time'", "row 2 (line 3)", "negative"]),
    "huge time": (replaced("2002", "9" * 30), EDGES, (), ["v.csv", "'time'", "row 2 (line 3)", "too large"]),
    "large time": (replaced("2002", "5000000000"), EDGES, (), ["v.csv", "'time'", "row 2 (line 3)", "too large"]),
    "far time": (replaced("2002", "1700000000"), EDGES, (), ["v.csv", "'time'", "row 2 (line 3)", "far"]),
    "text in edge time": (VERTICES, "source,target,time\na,b,x\n", (), ["e.csv", "'time'", "row 1 (line 2)", "'x'"]),
    "unknown granularity": (VERTICES, EDGES, ("--every", "fortnight"), ["'fortnight'", "year, month, week, day"]),
    "months of years": (VERTICES, EDGES, ("--every", "month"), ["v.csv", "'time'", "month", "dates"]),
    "empty vertices": ("", EDGES, (), ["v.csv", "empty"]),
    "empty edges": (VERTICES, "", (), ["e.csv", "empty"]),
    "header only": ("id,time,label\n", EDGES, (), ["v.csv", "no vertices"]),
    "latin-1 cell": (b(VERTICES).replace(b"ICML", b"caf\xe9"), EDGES, (), ["v.csv", "row 2 (line 3)", "UTF-8"]),
    "latin-1 header": (b"id,time,label,caf\xe9\n", EDGES, (), ["v.csv", "UTF-8"]),
    "utf-16": (VERTICES.encode("utf-16"), EDGES, (), ["v.csv", "UTF-8"]),
    "too few cells": (replaced("2002,ICML,", "2002,"), EDGES, (), ["v.csv", "row 2 (line 3)", "3 cells", "4"]),
    "too many cells": (
        replaced("some words", "some, words"),
        EDGES,
        (),
        ["v.csv", "row 1 (line 2)", "5 cells", "quotes"],
    ),
    "unclosed quote": (replaced("some words", '"some words'), EDGES, (), ["v.csv", "row 1 (line 2)", "not closed"]),
    "two stray quotes": (
        replaced("some words", '"some words').replace("c,2003,,", 'c,2003,,"x'),
        EDGES,
        (),
        ["v.csv", "row 1 (line 2)", "not closed"],
    ),
    "unclosed quote in edges": (
        VERTICES,
        'source,target\na,b\nb,"c\na,c\n',
        (),
        ["e.csv", "row 2 (line 3)", "not closed"],
    ),
    "semicolons": (VERTICES.replace(",", ";"), EDGES, (), ["v.csv", "separated by ';'", "commas"]),
    "tabs": (VERTICES, EDGES.replace(",", "\t"), (), ["e.csv", "separated by tabs", ".tsv"]),
    "gzip without its ending": (gzip.compress(VERTICES.encode()), EDGES, (), ["v.csv", "compressed", ".gz"]),
    "endless cell": (replaced("2002", "x" * 10_000), EDGES, (), ["v.csv", "'time'", "row 2 (line 3)", "…"]),
    "no time of day": (replaced("2002", "2002-01-01T99:99"), EDGES, (), ["v.csv", "'time'", "row 2 (line 3)"]),
    "class unseen": (replaced("ICML", "unseen"), EDGES, (), ["v.csv", "'label'", "row 2 (line 3)", "Rename"]),
    "class Unseen": (replaced("ICML", "Unseen"), EDGES, (), ["v.csv", "'label'", "row 2 (line 3)", "'Unseen'"]),
    "text in features": (NUMBERED.format("x"), EDGES, ("--features", "x*"), ["v.csv", "'x2'", "row 2 (line 3)", "'x'"]),
    "infinite feature": (NUMBERED.format("inf"), EDGES, ("--features", "x*"), ["v.csv", "'x2'", "row 2 (line 3)"]),
    "no such features": (VERTICES, EDGES, ("--features", "emb_*"), ["v.csv", "'emb_*'", "--numbers"]),
    "no such category": (VERTICES, EDGES, ("--categories", "kind"), ["v.csv", "'kind'", "--categories"]),
    "category with a sign": (
        "id,time,label,a=b\na,1,y,z\n",
        EDGES,
        ("--categories", "a=b"),
        ["v.csv", "'a=b'", "Rename the column"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_tables(tmp_path, monkeypatch, name, command):
    vertices, edges, more, says = CASES[name]
    (tmp_path / "v.csv").write_bytes(b(vertices))
    (tmp_path / "e.csv").write_bytes(b(edges))
    monkeypatch.chdir(tmp_path)
    arguments = ("import", "tables", "--vertices", "v.csv", "--edges", "e.csv", "--out", "graph", *more)
    code, out, err = command(*arguments)
    assert "Traceback" not in err
    if not says:
        assert code == 0, err
        return
    assert code == 2, err
    assert not (tmp_path / "graph").exists()
    assert out == ""
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    for part in says:
        assert part in err, err
    assert re.search(r"\. [A-Z].*\.\n$", err)


BOTH = b"id,time,label,source,target\n" + b"".join(b"v%d,%d,x,v1,v2\n" % (i, i) for i in range(500))
FILES = {
    "missing file": ("none.csv", None, ["none.csv", "no such file"]),
    "folder": ("folder.csv", "folder", ["folder.csv", "folder"]),
    "unknown ending": ("v.xlsx", b"PK", ["v.xlsx", ".csv"]),
    "no gzip": ("v.csv.gz", BOTH, ["v.csv.gz", "damaged"]),
    "truncated gzip": ("v.csv.gz", gzip.compress(BOTH)[:-20], ["v.csv.gz", "truncated"]),
    "damaged gzip": ("v.csv.gz", gzip.compress(BOTH)[:200] + b"\xff" * 60, ["v.csv.gz", "damaged"]),
    "no parquet": ("v.parquet", b(VERTICES), ["v.parquet", "not a Parquet file"]),
    "empty parquet": ("v.parquet", b"", ["v.parquet", "not a Parquet file"]),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("side", ["vertices", "edges"])
def test_bad_files(tmp_path, monkeypatch, name, side, command):
    file, content, says = FILES[name]
    monkeypatch.chdir(tmp_path)
    if content == "folder":
        (tmp_path / file).mkdir()
    elif content is not None:
        (tmp_path / file).write_bytes(content)
    (tmp_path / "good-vertices.csv").write_text(VERTICES)
    (tmp_path / "good-edges.csv").write_text(EDGES)
    paths = {"vertices": "good-vertices.csv", "edges": "good-edges.csv"} | {side: file}
    code, _, err = command(
        *("import", "tables", "--vertices", paths["vertices"], "--edges", paths["edges"], "--out", "graph"),
    )
    assert code == 2, err
    assert not (tmp_path / "graph").exists()
    assert err.count("\n") == 1
    for part in says:
        assert part in err, err
    assert re.search(r"\. [A-Z].*\.\n$", err)


ROW = b"a,2001,x,a,a\n"


@pytest.mark.parametrize("rest", [ROW * 100_000, b"x" * 1_300_000], ids=["rows", "one cell"])
def test_small_files_that_unpack_to_much_are_refused(tmp_path, monkeypatch, rest, command):
    """A .gz file can be made of several; this one unpacks to 390 MB."""
    monkeypatch.chdir(tmp_path)
    content = gzip.compress(b"id,time,label,source,target\n") + gzip.compress(rest) * 300
    (tmp_path / "v.csv.gz").write_bytes(content)
    code, _, err = command("import", "tables", "--vertices", "v.csv.gz", "--edges", "v.csv.gz", "--out", "graph")
    assert code == 2, err
    assert f"v.csv.gz: the file has {len(content):,} bytes, but unpacks to more than 256,000,000" in err
    assert "set EVERGRAPH_MAX_UNPACKED, in GB, to more than 0.256" in err
    assert not (tmp_path / "graph").exists()


def test_the_limit_of_compressed_files_can_be_set(tmp_path, monkeypatch):
    path = tmp_path / "v.csv.gz"
    path.write_bytes(gzip.compress(VERTICES.encode()))
    whole = len(VERTICES.encode())
    monkeypatch.setenv("EVERGRAPH_MAX_UNPACKED", str(whole / 1e9 - 1e-9))
    with pytest.raises(InputError, match=rf"unpacks to more than {whole - 1}\. If you trust it, raise the limit"):
        open_table(path).read(["id"])
    monkeypatch.setenv("EVERGRAPH_MAX_UNPACKED", str(whole / 1e9 + 1e-10))
    assert open_table(path).read(["id"]).column("id").to_pylist() == ["a", "b", "c"]
    for wrong in ("much", "inf", "nan", "0", "-8"):
        monkeypatch.setenv("EVERGRAPH_MAX_UNPACKED", wrong)
        with pytest.raises(InputError, match=f"EVERGRAPH_MAX_UNPACKED is '{wrong}'.*Set it to a number of GB"):
            open_table(path)


def test_small_parquet_files_of_many_rows_are_refused(tmp_path, monkeypatch):
    rows, path = 10_000_000, tmp_path / "v.parquet"
    parquet.write_table(pa.table({"id": np.zeros(rows, np.int64), "time": np.zeros(rows, np.int64)}), path)
    assert path.stat().st_size < 200_000
    monkeypatch.setenv("EVERGRAPH_MAX_UNPACKED", "0.159")
    with pytest.raises(InputError, match=r"unpacks to 160,000,000 or more\. .* to more than 0\.16\."):
        open_table(path).read(["id", "time"])
    assert open_table(path).read(["id"]).num_rows == rows


def test_drop_dangling_goes_on(tmp_path, monkeypatch, command):
    (tmp_path / "v.csv").write_text(VERTICES)
    (tmp_path / "e.csv").write_text(EDGES + "c,z\n")
    monkeypatch.chdir(tmp_path)
    arguments = (
        "import",
        "tables",
        "--vertices",
        "v.csv",
        "--edges",
        "e.csv",
        "--out",
        "graph",
        "--drop-dangling",
        "--json",
    )
    code, out, _ = command(*arguments)
    assert code == 0
    assert json.loads(out)["edges"] == 2


def test_an_existing_graph_is_kept_unless_replace_is_said(tmp_path, monkeypatch, command):
    (tmp_path / "v.csv").write_text(VERTICES)
    (tmp_path / "e.csv").write_text(EDGES)
    monkeypatch.chdir(tmp_path)
    arguments = ("import", "tables", "--vertices", "v.csv", "--edges", "e.csv", "--out", "graph", "--quiet")
    assert command(*arguments) == (0, "", "")
    before = (tmp_path / "graph" / "manifest.json").read_bytes()
    code, _, err = command(*arguments)
    assert code == 2
    assert "--replace" in err
    # A failing import does not touch what is there, even when it may replace it.
    (tmp_path / "v.csv").write_text(VERTICES.replace("2002", "soon"))
    code, _, err = command(*arguments, "--replace")
    assert code == 2
    assert (tmp_path / "graph" / "manifest.json").read_bytes() == before
    (tmp_path / "v.csv").write_text(VERTICES + "d,2004,KDD,x\n")
    assert command(*arguments, "--replace")[0] == 0
    assert json.loads(command("inspect", "graph", "--json")[1])["vertices"] == 4


@pytest.mark.parametrize(
    "damage", ["no manifest", "garbled manifest", "truncated array", "missing array", "newer format"]
)
def test_damaged_graph_folder(tmp_path, monkeypatch, damage, command):
    (tmp_path / "v.csv").write_text(VERTICES)
    (tmp_path / "e.csv").write_text(EDGES)
    monkeypatch.chdir(tmp_path)
    command("import", "tables", "--vertices", "v.csv", "--edges", "e.csv", "--out", "graph", "--quiet")
    manifest, array = tmp_path / "graph/manifest.json", next((tmp_path / "graph/versions").rglob("times.npy"))
    if damage == "no manifest":
        manifest.unlink()
    elif damage == "garbled manifest":
        manifest.write_text(manifest.read_text()[:50])
    elif damage == "truncated array":
        array.write_bytes(array.read_bytes()[:-3])
    elif damage == "missing array":
        array.unlink()
    else:
        text = manifest.read_text()
        changed = re.sub(r'(format_version\\": )\d+', r"\g<1>99", text)
        assert changed != text
        manifest.write_text(changed)
    code, out, err = command("inspect", "graph")
    assert code == 2
    assert out == ""
    assert "graph" in err
    assert err.count("\n") == 1
    assert re.search(r"\. [A-Z].*\.\n$", err)


def test_verify_finds_a_flipped_byte(tmp_path, monkeypatch, command):
    (tmp_path / "v.csv").write_text(VERTICES)
    (tmp_path / "e.csv").write_text(EDGES)
    monkeypatch.chdir(tmp_path)
    command("import", "tables", "--vertices", "v.csv", "--edges", "e.csv", "--out", "graph", "--quiet")
    code, out, _ = command("inspect", "graph", "--verify")
    assert code == 0
    assert "Verified: every byte is as it was saved." in out
    array = next((tmp_path / "graph/versions").rglob("features.data.npy"))
    data = bytearray(array.read_bytes())
    data[-1] ^= 1
    array.write_bytes(data)
    assert command("inspect", "graph", "--quiet")[0] == 0
    code, _, err = command("inspect", "graph", "--verify")
    assert code == 2
    assert "features.data.npy" in err


def test_unknown_graph(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    code, _, err = command("inspect", "nowhere")
    assert code == 2
    assert "nowhere" in err
    assert "metamath" in err


@pytest.mark.parametrize("plain_footer", [True, False])
def test_encrypted_parquet_files_are_refused(tmp_path, plain_footer):
    """In a process of its own: Arrow used to abort it."""
    path, code = tmp_path / "v.parquet", "import sys; from evergraph.datasets import read_tables as r; r(sys.argv[1])"
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Keys(encryption.KmsClient):
        def wrap_key(self, key, _):
            return base64.b64encode(key)

    configuration = encryption.EncryptionConfiguration(
        footer_key="one", column_keys={"two": ["time"]}, plaintext_footer=plain_footer
    )
    factory = encryption.CryptoFactory(lambda _: Keys())
    made = factory.file_encryption_properties(encryption.KmsConnectionConfig(), configuration)
    table = pa.table({"id": ["a", "b"], "time": [2001, 2002], "label": ["x", "y"]})
    parquet.write_table(table, path, encryption_properties=made)
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert "InputError" in done.stderr
    assert re.search(r"v\.parquet: the Parquet file is encrypted.*Write it without encryption", done.stderr)
