"""History: a log as tables of intervals and events, for operators' questions in SQL."""
