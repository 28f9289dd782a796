"""Publication records: edges, filters and errors."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

from evergraph import InputError
from evergraph.datasets import read_records


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def paper(name, year=2000, venue="KDD", authors=(), references=()):
    return {
        "id": name,
        "title": f"On {name}",
        "authors": list(authors),
        "venue": venue,
        "year": year,
        "references": list(references),
    }


def edges_of(graph):
    ids = list(graph.ids)
    source, target, _ = graph.links.ends()
    return {frozenset((ids[u], ids[v])) for u, v in zip(source, target, strict=True)}


def test_citations_keep_only_references_within_the_file(tmp_path):
    path = write(
        tmp_path / "r.jsonl", [paper("a", references=["b", "zz", "a"]), paper("b", references=["a"]), paper("c")]
    )
    graph = read_records(path, "citations")
    assert edges_of(graph) == {frozenset("ab")}
    assert graph.labels.tolist() == ["KDD"] * 3
    assert list(graph.features.words.columns) == ["on"]


def test_authors_join_papers_with_one_in_common(tmp_path):
    records = [paper("a", authors=["x", "y"]), paper("b", authors=["y"]), paper("c", authors=["x", "y"]), paper("d")]
    graph = read_records(write(tmp_path / "r.jsonl", records), "authors")
    assert edges_of(graph) == {frozenset(pair) for pair in ("ab", "ac", "bc")}


def test_readings_of_per_class_per_year(tmp_path):
    # KDD: 1, 3, 5 papers a year (mean 3, median 3); ICML: 3 and 3; WWW: 2 and 9 (mean 5.5, median 5.5).
    counts = {
        "KDD": {2000: 1, 2001: 3, 2002: 5},
        "ICML": {2000: 3, 2005: 3},
        "WWW": {2000: 2, 2001: 9},
        None: {2000: 50},
    }
    records = [
        paper(f"{venue}-{year}-{i}", year, venue)
        for venue, years in counts.items()
        for year, n in years.items()
        for i in range(n)
    ]
    path = write(tmp_path / "r.jsonl", records)

    def kept(per_year, least):
        graph = read_records(path, "citations", min_class=least, per_year=per_year)
        found = {}
        for label, time in zip(graph.labels, graph.times.tolist(), strict=True):
            found.setdefault(label, {}).setdefault(time, 0)
            found[label][time] += 1
        return found

    assert kept("class-year", 3) == {"KDD": {2001: 3, 2002: 5}, "ICML": {2000: 3, 2005: 3}, "WWW": {2001: 9}}
    assert kept("every-year", 2) == {name: counts[name] for name in ("ICML", "WWW")}
    assert kept("median-year", 4) == {"WWW": counts["WWW"]}
    assert kept("mean-year", 3) == {name: counts[name] for name in ("KDD", "ICML", "WWW")}
    with pytest.raises(InputError, match="no publication is left"):
        kept("every-year", 100)


@pytest.mark.slow
def test_a_higher_threshold_gives_a_subset(shared_data):
    path = shared_data("dblp-records") / "papers.jsonl.gz"
    high, low = (read_records(path, "citations", min_class=least) for least in (100, 45))
    assert 0 < len(high) < len(low) < 73_565
    assert set(high.ids) < set(low.ids)
    counts = pd.DataFrame({"label": high.labels, "time": high.times}).value_counts()
    assert counts.min() >= 100


def test_authors_need_enough_papers_in_the_year(tmp_path):
    records = [
        paper("a", 2000, authors=["x", "y"]),
        paper("b", 2000, authors=["x"]),
        paper("c", 2001, authors=["x", "y"]),
        paper("d", 2001, authors=["y"]),
        paper("e", 2001, authors=["z"]),
    ]
    graph = read_records(write(tmp_path / "r.jsonl", records), "authors", min_author=2)
    # In 2000 only x counts, in 2001 only y: no one joins the two years, and e has no author left.
    assert edges_of(graph) == {frozenset("ab"), frozenset("cd")}
    assert sorted(graph.ids) == ["a", "b", "c", "d"]


def test_years_can_be_cut(tmp_path):
    path = write(tmp_path / "r.jsonl", [paper(str(year), year) for year in range(1990, 2000)])
    assert read_records(path, first_year=1993, last_year=1995).times.tolist() == [1993, 1994, 1995]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edges", "file", "expected"),
    [("authors", "edges.csv.gz", 306_613), ("citations", "edges_citation.csv.gz", 10_297)],
)
def test_real_records_give_the_known_edges(shared_data, tmp_path, edges, file, expected):
    """dblp-easy was made of these records by other hands: on its vertices our edges are its edges."""
    easy = shared_data("dblp-easy")
    chosen = set(pd.read_csv(easy / "nodes.csv.gz", dtype=str, keep_default_na=False).id)
    with gzip.open(shared_data("dblp-records") / "papers.jsonl.gz", "rt", encoding="utf-8") as file_in:
        lines = [line for line in file_in if json.loads(line)["id"] in chosen]
    path = tmp_path / "easy.jsonl.gz"
    path.write_bytes(gzip.compress("".join(lines).encode()))
    graph = read_records(path, edges)
    known = pd.read_csv(easy / file, dtype=str)
    assert len(graph) == len(chosen)
    assert graph.n_edges == expected
    assert edges_of(graph) == {frozenset(pair) for pair in zip(known.source, known.target, strict=True)}


BAD = {
    "not json": ("{oops}\n", r"line 1.*not JSON"),
    "not an object": ("[1]\n", r"line 1.*not a JSON object"),
    "no id": ('{"year": 2000}\n', r"column 'id'.*line 1"),
    "no year": ('{"id": "a"}\n', r"column 'year'.*line 1"),
    "text year": ('{"id": "a", "year": "soon"}\n', r"column 'year'.*line 1.*'soon'"),
    "double id": ('{"id": "a", "year": 1}\n{"id": "a", "year": 2}\n', r"column 'id'.*line 2.*occurs twice"),
    "authors as text": ('{"id": "a", "year": 1, "authors": "x, y"}\n', r"column 'authors'.*line 1"),
    "venue as number": ('{"id": "a", "year": 1, "venue": 3}\n', r"column 'venue'.*line 1"),
    "reserved venue": (
        '{"id": "a", "year": 1}\n\n{"id": "b", "year": 1, "venue": "unseen"}\n',
        r"column 'label'.*line 3",
    ),
    "negative year": ('{"id": "a", "year": -4}\n', r"column 'year'.*line 1.*-4 is not a year"),
    "huge year": ('{"id": "a", "year": 20130101}\n', r"column 'year'.*line 1.*20130101 is not a year"),
    "empty": ("", "empty"),
    "not utf-8": (b'{"id": "caf\xe9", "year": 1}\n', r"line 1.*UTF-8"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_records_are_named(tmp_path, name):
    content, says = BAD[name]
    path = tmp_path / "r.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=rf"r\.jsonl.*{says}.*\. [A-Z]"):
        read_records(path)


def test_bad_arguments(tmp_path):
    path = write(tmp_path / "r.jsonl", [paper("a")])
    with pytest.raises(InputError, match="Choose citations or authors"):
        read_records(path, "friends")
    with pytest.raises(InputError, match="class-year"):
        read_records(path, per_year="decade")
    with pytest.raises(InputError, match="no such file"):
        read_records(tmp_path / "none.jsonl")


def test_shared_authors_equal_brute_force(tmp_path):
    rng = np.random.default_rng(0)
    records = [
        paper(str(i), authors=rng.choice(list("uvwxyz"), rng.integers(0, 4), replace=False).tolist()) for i in range(40)
    ]
    graph = read_records(write(tmp_path / "r.jsonl", records), "authors")
    expected = {
        frozenset((p["id"], q["id"]))
        for p in records
        for q in records
        if p["id"] != q["id"] and set(p["authors"]) & set(q["authors"])
    }
    assert edges_of(graph) == expected


def test_small_files_that_unpack_to_much_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("EVERGRAPH_MAX_UNPACKED", "0.01")
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(gzip.compress(b" " * 1_000_000) * 20)  # one line
    with pytest.raises(InputError, match=r"r\.jsonl\.gz.*unpacks to more than 10,000,000.*EVERGRAPH_MAX_UNPACKED"):
        read_records(path)
