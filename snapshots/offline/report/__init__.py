"""The report: an audit and a history as one HTML page."""
