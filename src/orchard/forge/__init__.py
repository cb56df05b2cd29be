"""Forges: places such as GitHub and GitLab that keep repositories and take pull requests.

    kinds     one row a kind: its addresses, variables, tool, and what its API calls things
    servers   which forge the address of a remote names, and which project there
    channel   one question to its API, with a token of the user's or by the user's own `gh` or `glab`
    requests  open the pull request of a branch, or update the one that is open

A token is worth more than what it is used for here, so where it goes is decided narrowly. The address of the remote
that is pushed to names the host. GitHub's and GitLab's own hosts are known. Any other host is a forge only where the
user says so: in the environment, by the variables that `gh`, `glab` and their CI know, or in settings that a
repository's own file sets only once the user has agreed to it. No redirect is followed. A token is read from the
environment and stands in a header: it is in no argument, no message and no record.

What a forge answers is a stranger's text: it is cut and made plain, and decides no address that is shown or asked.
"""
