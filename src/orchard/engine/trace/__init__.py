"""A trace of each plan, from its events: `trace` makes the parts, `spans` sends them, `names` has every name in it.

Only `spans` knows OpenTelemetry, and `setup` imports it where traces are wanted. A trace holds names, numbers and words
of ours, nothing that was asked, said or printed; that it cannot be sent costs spans, never a plan.
"""
