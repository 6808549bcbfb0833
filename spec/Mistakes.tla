------------------------------ MODULE Mistakes ------------------------------
(*
Mistakes that the checker must find: each of them, in the place of the right rule (see the .cfg files), breaks a law within the bounds of
Quorum.  The .cfg files leave out steps that the shortest path to the mistake does not need (Never).
*)
EXTENDS Quorum

\* A node that lost acknowledged records continues as if nothing was lost.
NothingIsLost(s, note) == Nil
\* A node that lost its tail believes an old note, and not its leader, about the size of the loss.
BoundedByTheNote(f, n) == IF IsWhole(f) THEN lost[f] ELSE [lost[f] EXCEPT !.bounded = TRUE]
\* A node that lost its tail takes a record of the epoch of the loss for a record of a later leader.
IsOfThatEpoch(s) == IsCommittedAgain(s) \/ LastEpoch(SubSeq(log[s], 1, flushed[s])) >= lost[s].epoch
\* The leader counts its written records, not its durable ones.
WrittenEnd(s) == Len(log[s])
\* A record on the disks of a majority is committed, whatever its epoch.
AnyEpoch(s, n) == TRUE
\* A leader answers a read without a proof that it still leads.
Unasked(s) == TRUE
\* Any fetch that arrives after the question confirms the leader, also a fetch that was sent before.
AnyFetchProves(t, s) == TRUE
\* A node accepts messages of another generation.
Anybodys(g, s) == TRUE
=============================================================================
