"""The verbs that all services share: log, delivery, artifacts, sandbox, harbor, agent, models."""
