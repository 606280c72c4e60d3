"""Rules: rights, arguments and texts of refusals, policies, limits, alarms, admission, confirms."""
