"""Values: what a plan is, what can happen to it, and what is counted, limited and hidden.

Everything here is a struct that cannot be changed, made of plain values. Nothing here acts or decides, so all other
layers may import it. `plan` is what was asked, `events` is what happened, and `plan_codec` writes a plan as JSON,
as the journal keeps it. A field that is added needs a default, because old journals are read by newer programs.
"""
