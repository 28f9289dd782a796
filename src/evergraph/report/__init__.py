"""Reports: a run or a workspace as one HTML page, and tables and figures of a comparison."""
