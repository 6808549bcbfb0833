------------------------------ MODULE Mistakes ------------------------------
(* What must be found: each of these put in the place of the right rule (see *)
(* the .cfg files) breaks a law within the bounds that Quorum is checked in. *)
(* So that it is found soon, what the shortest way there does not need is    *)
(* left out (Never).                                                         *)
EXTENDS Quorum

\* A node that has lost what it had acknowledged goes on as if nothing were.
NothingIsLost(s, note) == Nil
\* ... or takes an old note for all that it had, whatever its leader says.
BoundedByTheNote(f, n) == IF IsWhole(f) THEN lost[f] ELSE [lost[f] EXCEPT !.bounded = TRUE]
\* ... or takes a record of the epoch in which it lost its tail for one of a later leader.
IsOfThatEpoch(s) == IsCommittedAgain(s) \/ LastEpoch(SubSeq(log[s], 1, flushed[s])) >= lost[s].epoch
\* The leader counts what it has written, not what is durable.
WrittenEnd(s) == Len(log[s])
\* Whatever stands on a majority is called committed, whatever epoch it is of.
AnyEpoch(s, n) == TRUE
\* A read is answered without asking whether this node still leads.
Unasked(s) == TRUE
\* Any fetch that comes in after the question confirms it, also one that was sent before.
AnyFetchProves(t, s) == TRUE
\* A message of another generation is taken for one's own.
Anybodys(g, s) == TRUE
=============================================================================
