"""Rules: rights, arguments, policies, limits, alarms, admission of publishes, confirms."""
