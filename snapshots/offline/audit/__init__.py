"""The offline audit: checks, findings, report."""
