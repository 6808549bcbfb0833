"""The offline audit: checks, findings and report."""
