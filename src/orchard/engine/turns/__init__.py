"""Turns of agents in a job: for its work, to heal, to resolve a conflict, for a subtask.

`turn` runs one and records what the agent tells; `work`, `heal`, `resolve` and `subtask` say what it is asked and
what its end means; `talk` follows one turn by the next while people talk, and `idle` waits for them. `job_tokens`
and `scope` are what an agent may do meanwhile. An agent's word decides nothing: diffs, checks and merges do.
"""
