"""Everything that agents are told: values go in, Markdown comes out.

What others wrote is quoted (`quote`), so that it cannot pass for ours.
"""
