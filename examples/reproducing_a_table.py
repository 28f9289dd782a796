"""Learn how to run the trials of one of the paper's tables and write it as Markdown.

This is a quick look with one seed, five steps and a small synthetic graph: the numbers mean nothing.
Run it with: python examples/reproducing_a_table.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from evergraph.presentation.table import to_markdown
from evergraph_paper.reproduction import Reproduction


def main() -> None:
    with TemporaryDirectory() as folder:
        results = Path(folder)
        # For real results leave quick out, set graphs=("graphs/dblp-easy",) and seeds=(0, 1, 2), and use a permanent
        # folder. As a command: evergraph reproduce exp2 graphs/dblp-easy --models mlp --seeds 0-2
        job = Reproduction(results, models=("mlp",), quick=True)
        done = job.run("exp2")
        for table in done.tables.values():
            print(to_markdown(table))
        print("written:", ", ".join(path.name for path in done.files))

        # One line per trial. Finished trials are not run again.
        files = sorted((results / "trials").glob("*.jsonl"))
        print("kept:", ", ".join(f"{len(file.read_text().splitlines())} trials in {file.name}" for file in files))


if __name__ == "__main__":
    main()

# prints: **Experiment 2, synthetic: accuracy and forward transfer, in percent**
# prints: | **c = full (100 %)** |
# prints: written: exp2-synthetic.md, exp2-synthetic.tex, exp2-synthetic.csv, exp2.svg, exp2.png
# prints: trials in synthetic
