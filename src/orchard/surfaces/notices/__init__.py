"""Telling people that a plan is done, failed or waits for them, as `[notify]` of the settings says.

    setup.py      whether anyone is told at all
    notice.py     what is told, and when: decided from a run before and after
    delivery.py   the ways: a desktop, a command, a webhook; each in threads of its own, none of which holds a plan up
    notifier.py   follows the journal of the engine that this process keeps, and hands notices to the ways

The bell is rung by the command that a person looks at: see `cli/followed.py`.
"""
