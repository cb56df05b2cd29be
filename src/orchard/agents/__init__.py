"""Whatever can be given a task and a folder.

`protocol` is the one vocabulary: what an agent is given, what it tells while it works, how its work ends. `registry` is
the table of agents. Each program of another vendor is one module of `backends`; programs that speak the Agent Client
Protocol share `acp`; `builtin` is our own agent. `prompts` holds everything that agents are told. An agent knows
neither plans nor the engine: it gets a folder, words and functions.
"""
