"""Files that survive a crash: atomic writes, checksummed JSON, content-addressed objects, SQLite records."""
