"""The service: one process that serves a workspace over HTTP, for programs and for reviewers in a browser."""
