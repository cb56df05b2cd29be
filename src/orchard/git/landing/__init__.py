"""The user's checkout goes from one commit to another: all of it, or nothing.

`obstacles` looks before anything is touched, `intent` writes down what is about to happen, `stage` prepares the new
files beside the old ones, `placement` exchanges them one by one, and `recovery` finishes or takes back what died in
between. `claim` keeps other engines and gits out meanwhile.
"""
