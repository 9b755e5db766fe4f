"""Everything that is computed from the log and from nothing else: tables, spans, seals, report, replay, export."""
