"""Learn how a table of the paper is run, kept and written, from one trial to Markdown.

This is the quick look: one seed, five steps, a small made-up graph. What it prints is a table, but no result.
Run it with: python examples/reproducing_a_table.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from evergraph.presentation import to_markdown
from evergraph_paper.reproduction import Reproduction


def main() -> None:
    with TemporaryDirectory() as folder:
        results = Path(folder)
        # For results leave quick out, name graphs=("graphs/dblp-easy",) and seeds=(0, 1, 2), and give it a folder that
        # stays; the command is: evergraph reproduce exp2 graphs/dblp-easy --models mlp --seeds 0-2
        job = Reproduction(results, models=("mlp",), quick=True)
        done = job.run("exp2")
        for table in done.tables.values():
            print(to_markdown(table))
        print("written:", ", ".join(path.name for path in done.files))

        # One line a trial, which any process may append; what is there is never run twice.
        shelves = sorted((results / "trials").glob("*.jsonl"))
        print("kept:", ", ".join(f"{len(shelf.read_text().splitlines())} trials in {shelf.name}" for shelf in shelves))


if __name__ == "__main__":
    main()

# prints: **Experiment 2, synthetic: accuracy and forward transfer, in percent**
# prints: | **c = full (100 %)** |
# prints: written: exp2-synthetic.md, exp2-synthetic.tex, exp2-synthetic.csv, exp2.svg, exp2.png
# prints: trials in synthetic
