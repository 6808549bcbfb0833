"""Changes of the voters and of the leader on request.

`membership` has the theory and the course of a change, `change_rules` the reasons for a refusal, `transfer` the way to another
leader, and `auto_join` the requests of a node on its own behalf.
"""
