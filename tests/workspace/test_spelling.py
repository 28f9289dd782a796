"""Names that resemble another: which are found, which are not, and that no typo is lost on the way."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evergraph.workspace.spelling import find_resembling

LETTERS = "abcdefgh éß漢"


@pytest.mark.parametrize(
    ("new", "known", "how"),
    [
        ("kdd", "KDD", "only in letter case"),
        ("STRASSE", "Straße", "only in letter case"),
        ("Data  mining", "Data mining", "only in spaces or hyphens"),
        (" Data mining", "Data mining", "only in spaces or hyphens"),
        ("Data\u00a0mining", "Data mining", "only in Unicode form"),
        ("Data-mining", "Data mining", "only in spaces or hyphens"),
        ("data\u200bMining", "Data_mining", "only in letter case, spaces or Unicode form"),
        ("cafe\u0301", "café", "only in Unicode form"),
        ("\uff2bDD", "KDD", "only in Unicode form"),
        ("Topolgy", "Topology", "by one letter"),
        ("Topolgoy", "Topology", "by one letter"),
        ("TOPOLOGIE", "Topology", "by two letters"),
        ("network/firewal", "network/firewall", "by one letter"),
        ("netwrok/icx", "network/icx", "by one letter"),
        ("Machine learnnig", "Machine learning", "by one letter"),
        ("Group theori", "Group theory", "by one letter"),
        ("ISO 9001 Qualty", "ISO 9001 quality", "by one letter"),
    ],
)
def test_names_that_look_the_same_are_found(new: str, known: str, how: str) -> None:
    assert find_resembling([new], ["another", known]) == {new: (known, how)}


@pytest.mark.parametrize(
    ("new", "known"),
    [
        ("v2", "v1"),
        ("2020", "2019"),
        ("-1", "1"),
        ("Release 2020", "Release 2019"),
        ("ISO 9002 quality", "ISO 9001 quality"),
        ("ECML", "ICML"),
        ("PKDD", "KDD"),
        ("C++", "C"),
        ("C#", "C"),
        ("Visual C#", "Visual C++"),
        ("World War II", "World War I"),
        ("Section B", "Section A"),
        ("Module B", "Module"),
        ("Geology", "Biology"),
        ("Algebra", "Geometry"),
        ("network/icx", "network/aci"),
        ("network.icxs", "network.icxt"),
        ("Conference ICML", "Conference ECML"),
        ("Same name", "Same name"),
        ("", "x"),
    ],
)
def test_names_that_are_meant_to_differ_are_not(new: str, known: str) -> None:
    assert find_resembling([new], [known]) == {}


def test_a_new_name_may_resemble_an_earlier_new_one_and_the_nearest_is_named() -> None:
    assert find_resembling(["Topology", "topology", "Algebra"], []) == {"topology": ("Topology", "only in letter case")}
    assert find_resembling(["Topologie"], ["Topolog", "Topologi"]) == {"Topologie": ("Topologi", "by one letter")}
    assert find_resembling([], ["Topology"]) == {}


@given(
    st.text(LETTERS, min_size=5, max_size=24), st.lists(st.text(LETTERS, max_size=24), max_size=5), st.integers(0, 99)
)
@example("aaaaaaaaaaaa", [], 5)
def test_one_letter_more_less_or_other_is_found(word: str, others: list[str], place: int) -> None:
    name = f"start{word.strip()}ending"
    at = place % (len(name) - 1)
    changed = {
        f"{name[:at]}z{name[at:]}",
        f"{name[:at]}z{name[at + 1 :]}",
        name[:at] + name[at + 1 :],
        name[:at] + name[at + 1] + name[at] + name[at + 2 :],
    }
    for new in changed - {name}:
        if new.count(" ") == name.count(" "):
            found = find_resembling([new], [*others, name])
            words = zip(new.split(), name.split(), strict=False)
            long = any(max(map(len, pair)) > 3 for pair in words if pair[0] != pair[1])
            assert new in found or not long or len(new.split()) != len(name.split())


def test_thousands_of_names_take_no_minutes() -> None:
    known = [f"{kind} of {what} {n % 7}" for n in range(2500) for kind, what in [(f"k{n}ind", f"th{n * 31}ing")]]
    new = [name.replace("of", "off") for name in known[:500]]
    assert len(find_resembling(new, known)) == 0  # "of" is a short word
    assert len(find_resembling([name.upper() for name in known[:500]], known)) == 500
