"""The parser of ``scripts/build_metamath.py`` on a small database, and the file that it built."""

from __future__ import annotations

import importlib.util
import io
import sys
from importlib import resources
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from evergraph.datasets.metamath import FILE_NAME, MetamathArrays, unpack

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "build_metamath.py"

PART = "#" * 79
SECTION = "#*" * 39 + "#"
SUBSECTION = "=-" * 39 + "="

# All in the source's list but Line and He, which are ordinary words.
CONTRIBUTOR_SURNAMES = """
    abernethy allan arnoux arpiainen naim bush carneiro cernatescu chapman drahflow dunaev fenton hankins hart
    harvey hoffman james jaroszewicz jubin kingdon lammen lang leahy levien liné longton madsen mascellani
    medina megill moews mostovenko cat rear openai orendorff pennant penner polu purinton rodriguez salmon
    sare schmidt siliprandi skresanov udandy vekens wheeler witte yan zheng
"""
CONTRIBUTOR_INITIALS = "av bj bl daw fl jgh jj nm rp sf"

DATABASE = f"""
$( set.mm - Version of 28-Dec-2020 $)
$(
{SECTION}
            Metamath source file
{SECTION}

Contributor list:

NM  Norman Megill        SO  Stefan O'Rear
JGH Jeff Hankins         FL  Frederic Line

HTML code for accented names:
  FL Fr&eacute;d&eacute;ric Lin&eacute;

$)
$c |- wff $.
$(
{PART}
                LOGIC
{PART}

  Some words on logic.
$)
$(
{SECTION}
       Propositional
          calculus
{SECTION}
$)
$( An axiom is no vertex.  (Contributed by NM, 1-Jan-1990.) $)
ax-mp $a |- ps $.
${{
  $( A hypothesis. $)
  mp2.1 $e |- ph $.
  $( A double modus ponens inference.  See ~ nan for K&ouml;nig's use of ` ( `` x ) ` and
     [Monk1] p. 22.  (Contributed by NM,
     5-Apr-1994.)  (Revised by Norman
     Megill, 7-Feb-2013.)  (New usage is discouraged.) $)
  mp2 $p |- ch $= ( ax-mp nan ) ABC?D $.
$}}
$(
{SUBSECTION}
  A subsection changes nothing
{SUBSECTION}
$)
$( Inference on a line, so an idea of SO and of Hankins as of 3-Oct-2020.
   (Contributed by Jeff Hankins and FL, 5-Apr-1993.) (Contributed by NM, 1-Jan-2001.) $)
nan $p |- ph $= $( A comment with $. and "by NM" within a proof. $) mp2.1 mp2 ? mp2 nan ax-mp $.
$( Says nobody when. $)
undated $p |- ph $= ( mp2 ) A $.
$( This one is cut off.  (Contributed by NM, 5-Apr-1994.) $)
$( A remark that comes between. $)
cut $p |- ph $= ( mp2 ) A $.
$(
{SECTION}
  Small
{SECTION}
$)
$( A lone inference.  (Contributed by NM, 5-Apr-1995.) $)
lone $p |- ph $= ( mp2 nan nosuch ) A $.
$(
{PART}
  SETS
{PART}
$)
$( Outside any section.  (Contributed by NM, 5-Apr-1995.) $)
outside $p |- ph $= ( mp2 ) A $.
$(
{SECTION}
  Propositional calculus
{SECTION}
$)
$( Inference one.  (Contributed by Stefan O'Rear, 5-Apr-1992.) $)
one $p |- ph $= ( mp2 ) A $.
$( Inference two.  (Contributed by Stefan O'Rear, 5-Apr-1994.) $)
two $p |- ph $= ? $.
$(
{PART}
  GUIDES AND MISCELLANEA
{PART}
$)
$(
{SECTION}
  Humor
{SECTION}
$)
$( Inference in jest.  (Contributed by NM, 5-Apr-1994.) $)
jest $p |- ph $= ( mp2 ) A $.
$(
{PART}
  SUPPLEMENTARY MATERIAL (USER'S MATHBOXES)
{PART}
$)
$(
{SECTION}
  Mathbox for Norm Megill
{SECTION}
$)
$( Inference in a draft.  (Contributed by NM, 5-Apr-1994.) $)
draft $p |- ph $= ( mp2 ) A $.
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_metamath", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def shipped() -> MetamathArrays:
    return unpack(resources.files("evergraph.datasets").joinpath(FILE_NAME).read_bytes())


def test_headings(script: ModuleType) -> None:
    text = f"$(\n{PART}\n  A  PART\n{PART}\nText\n\n{SUBSECTION}\n Below\n{SUBSECTION}\n$)"
    assert list(script.headings(text)) == [("part", "A PART"), ("subsection", "Below")]
    assert list(script.headings(f"no title between\n{PART}\n$)")) == []


def test_theorems_know_their_part_and_section(script: ModuleType) -> None:
    places = {t.label: (t.part, t.section) for t in script.read_theorems(DATABASE)}
    assert places["mp2"] == places["nan"] == ("LOGIC", "Propositional calculus")
    assert places["lone"] == ("LOGIC", "Small")
    assert places["outside"] == ("SETS", None)
    assert places["two"] == ("SETS", "Propositional calculus")
    assert "ax-mp" not in places
    assert len(places) == 10


def test_description_is_the_comment_directly_before(script: ModuleType) -> None:
    theorems = {t.label: t for t in script.read_theorems(DATABASE)}
    assert theorems["mp2"].description.startswith("A double modus ponens inference. See")
    assert theorems["cut"].description == "A remark that comes between."
    assert script.read_theorems("$( Text. $) ax $a |- ph $. th $p |- ph $= ? $.")[0].description == ""


@pytest.mark.parametrize(
    ("description", "year"),
    [
        ("Text. (Contributed by NM, 5-Apr-1994.) (Revised by AV, 1-Jan-2020.)", 1994),
        ("(Contributed by Mario Carneiro/AV, 15-Jul-2015.) (Contributed by NM, 1-Jan-1999.)", 2015),
        ("(Revised by NM, 1-Jan-1999.)", None),
        ("Contributed by NM some day.", None),
    ],
)
def test_contribution_year(script: ModuleType, description: str, year: int | None) -> None:
    assert script.contribution_year(description) == year


def test_contribution_may_be_broken_over_lines(script: ModuleType) -> None:
    assert "by NM,\n" in DATABASE
    years = {t.label: script.contribution_year(t.description) for t in script.read_theorems(DATABASE)}
    assert years["mp2"] == 1994
    assert years["nan"] == 1993
    assert years["undated"] is None


def test_proofs(script: ModuleType) -> None:
    proofs = {t.label: script.used_labels(t.proof) for t in script.read_theorems(DATABASE)}
    assert proofs["mp2"] == ["ax-mp", "nan"]
    assert proofs["nan"] == ["mp2.1", "mp2", "mp2", "nan", "ax-mp"]
    assert proofs["two"] == []


def test_names_come_from_the_list_and_from_credits(script: ModuleType) -> None:
    credit = "(Proof shortened by Jonathan Ben-Naim and BJ, 3-Jun-2011.) (Variation by Nobody Else, 2011.)"
    names = script.find_names(DATABASE, [credit])
    assert (
        " ".join(sorted(names.words))
        == "ben frederic frédéric hankins jeff jonathan liné megill naim norman rear stefan"
    )
    assert names.initials == {"NM", "SO", "JGH", "FL", "BJ"}


def test_description_words(script: ModuleType) -> None:
    theorems = script.read_theorems(DATABASE)
    names = script.find_names(DATABASE, [t.description for t in theorems])
    words = {t.label: " ".join(script.description_words(t.description, names)) for t in theorems}
    assert words["mp2"] == "double modus ponens inference see for könig use of and"
    assert words["nan"] == "inference on line so an idea of and of as of"


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ("Axiom ax13 and C5' of beth_A, _open set_", "axiom and of beth open set"),
        ("See ~ http://a.example/b?c=d or https://e.example/ . ", "see or"),
        ("Length<HTML><sup>2</sup></HTML>.", "length"),
        ("Cited from [TakeutiZaring], pp. 15-21. Node [a graph] has", "cited from node graph has"),
        ("Kept (in brackets). (Proof suggested by Some Body 1-Jun-2004.)", "kept in brackets"),
        ("Old. (Proof modification is discouraged.)", "old"),
        ("An unclosed ` formula ( A", "an unclosed"),
        ("", ""),
    ],
)
def test_markup_is_no_word(script: ModuleType, description: str, words: str) -> None:
    assert " ".join(script.description_words(description, script.Names(frozenset(), frozenset()))) == words


def test_selection(script: ModuleType) -> None:
    theorems = script.read_theorems(DATABASE)
    assert [(y, t.label) for y, t in script.select(theorems, 1)] == [
        (1992, "one"),
        (1993, "nan"),
        (1994, "mp2"),
        (1994, "two"),
        (1995, "lone"),
    ]
    assert [t.label for _, t in script.select(theorems, 2)] == ["one", "nan", "mp2", "two"]
    assert script.select(theorems, 3) == []


def test_build(script: ModuleType) -> None:
    dataset = script.build(DATABASE, min_section_size=1, min_descriptions=2)
    assert dataset.labels == ["one", "nan", "mp2", "two", "lone"]
    assert dataset.times.tolist() == [1992, 1993, 1994, 1994, 1995]
    assert dataset.class_names == ["SETS: Propositional calculus", "LOGIC: Propositional calculus", "Small"]
    assert dataset.codes.tolist() == [0, 1, 1, 0, 2]
    # nan and mp2 use each other, and nan uses itself
    assert dataset.edges.tolist() == [[0, 2], [1, 2], [1, 4], [2, 4]]
    assert dataset.words == ["inference", "of", "and"]
    assert dataset.counts == [{0: 1}, {0: 1, 1: 3, 2: 1}, {0: 1, 1: 1, 2: 1}, {0: 1}, {0: 1}]
    every_word = script.build(DATABASE, min_section_size=1, min_descriptions=1).words
    assert every_word[:3] == ["inference", "one", "on"]


def test_a_title_is_prefixed_only_where_ambiguous(script: ModuleType) -> None:
    without_sets = DATABASE.replace("  Propositional calculus\n", "  Sets\n")
    assert script.build(without_sets, min_section_size=1).class_names == [
        "Sets",
        "Propositional calculus",
        "Small",
    ]


def test_duplicate_labels_are_refused(script: ModuleType) -> None:
    twice = DATABASE.replace("\ntwo $p", "\none $p")
    with pytest.raises(ValueError, match="not unique"):
        script.build(twice, min_section_size=1)


def test_packing_refuses_what_does_not_fit(script: ModuleType) -> None:
    with pytest.raises(ValueError, match="256 do not fit uint8"):
        script.narrow(np.array([0, 256]), np.uint8)


def test_reader_reads_what_the_script_writes(script: ModuleType, tmp_path: Path) -> None:
    dataset = script.build(DATABASE, min_section_size=1)
    about = script.describe_source(DATABASE.encode(), DATABASE)
    assert about["package"] is None  # not the packaged file
    assert about["date"] == "2020-12-28"
    contents = []
    for name in ("first.npz", "second.npz"):
        np.savez_compressed(tmp_path / name, **script.pack(dataset, about))
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]
    arrays = unpack(contents[0])
    assert arrays.ids == dataset.labels
    assert arrays.times.tolist() == dataset.times.tolist()
    assert arrays.codes.tolist() == dataset.codes.tolist()
    assert list(arrays.class_names) == dataset.class_names
    assert np.column_stack([arrays.source, arrays.target]).tolist() == dataset.edges.tolist()
    assert list(arrays.words) == dataset.words
    rows = [
        dict(zip(arrays.counts_indices[start:stop].tolist(), arrays.counts_data[start:stop], strict=True))
        for start, stop in zip(arrays.counts_indptr[:-1], arrays.counts_indptr[1:], strict=True)
    ]
    assert rows == dataset.counts
    assert arrays.about == about


def test_rows_of_any_length_survive_packing(script: ModuleType) -> None:
    rows = [[], [0, 255, 256, 65535], [], [7], [3, 1000], []]
    lengths, gaps = script.pack_rows(np.array([len(r) for r in rows]), np.array([v for r in rows for v in r]))
    values = {"edge_lengths": lengths, "edge_gaps": gaps, "word_lengths": lengths, "word_gaps": gaps}
    empty = script.Dataset([], np.array([], int), np.array([], int), [], np.empty((0, 2), int), [], [])
    stream = io.BytesIO()
    np.savez(stream, **{**script.pack(empty, {}), **values})
    arrays = unpack(stream.getvalue())
    assert arrays.ids == []
    assert arrays.counts_indptr.tolist() == [0, 0, 4, 4, 5, 7, 7]
    assert arrays.counts_indices.tolist() == [0, 255, 256, 65535, 7, 3, 1000]
    assert arrays.source.tolist() == [1, 1, 1, 1, 3, 4, 4]


def test_shipped_file_is_small() -> None:
    assert len(resources.files("evergraph.datasets").joinpath(FILE_NAME).read_bytes()) < 4_000_000


def test_shipped_graph(script: ModuleType, shipped: MetamathArrays) -> None:
    assert shipped.about["sha256"] == script.PACKAGE_SHA256
    assert shipped.about["package"] == script.PACKAGE
    assert shipped.about["licence"] == "CC0-1.0"
    assert shipped.about["date"] == "2020-12-28"
    assert len(shipped.ids) == len(set(shipped.ids)) == 25_729
    assert "nan" in shipped.ids
    assert len(shipped.class_names) == len(set(shipped.class_names)) == 74
    assert np.bincount(shipped.codes, minlength=74).min() >= 50
    assert shipped.times[[0, -1]].tolist() == [1992, 2020]
    assert (np.diff(shipped.times) >= 0).all()
    assert len(shipped.source) == len(shipped.target) == 461_874
    assert (shipped.source < shipped.target).all()
    assert len(np.unique(shipped.source.astype(np.int64) << 32 | shipped.target)) == 461_874
    assert shipped.counts_data.min() >= 1
    assert shipped.times.dtype == shipped.counts_indptr.dtype == np.int64
    assert shipped.codes.dtype == shipped.source.dtype == shipped.target.dtype == np.int32
    assert shipped.counts_indices.dtype == np.int32
    assert shipped.counts_data.dtype == np.float32


def test_shipped_classes_and_words_are_by_first_appearance(shipped: MetamathArrays) -> None:
    for numbers, names in ((shipped.codes, shipped.class_names), (shipped.counts_indices, shipped.words)):
        highest = np.maximum.accumulate(numbers)
        assert highest[-1] == len(names) - 1
        assert (np.diff(highest, prepend=-1) <= 1).all()


def test_shipped_words(shipped: MetamathArrays) -> None:
    assert len(set(shipped.words)) == len(shipped.words)
    assert all(word.isalpha() and word == word.lower() and len(word) >= 2 for word in shipped.words)
    assert {"syllogism", "cantor", "he", "line", "as", "so"} <= set(shipped.words)


def test_shipped_words_name_no_contributor(shipped: MetamathArrays) -> None:
    dropped = {*CONTRIBUTOR_SURNAMES.split(), *CONTRIBUTOR_INITIALS.split()}
    assert dropped.isdisjoint(shipped.words)
