"""Our own agent: a model, tools, and the loop between them.

`agent` opens a turn, `loop` asks the model and runs what it calls, `calls` bounds each call, and `memory` decides what
of a long conversation is sent. `model` is one shape for all who serve models; `messages_api` and `chat_api` speak it
through their SDKs, which `clients` imports at the first turn. `governor` makes all agents of a process wait together
where a server asks for patience. Paths go through `confine`.
"""
