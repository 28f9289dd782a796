"""One page that tells what came of a run or a workspace: values in, HTML out."""
