"""Tables for the terminal, Markdown, LaTeX and CSV, and one style for all figures."""
