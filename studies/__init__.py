"""Measurements that decide defaults. Each study is a command that can be stopped and continued."""
