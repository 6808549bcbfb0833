------------------------------ MODULE Mistakes ------------------------------
(* What must be found: each of these put in the place of the right rule (see *)
(* the .cfg files) breaks a law within the bounds that Quorum is checked in. *)
EXTENDS Quorum

\* A node that has lost what it had acknowledged goes on as if nothing were.
NothingIsLost(s) == Nil
\* The leader counts what it has written, not what is durable.
WrittenEnd(s) == Len(log[s])
\* Whatever stands on a majority is called committed, whatever epoch it is of.
AnyEpoch(s, n) == TRUE
\* A read is answered without asking whether this node still leads.
Unasked(s) == TRUE
\* A message of another generation is taken for one's own.
Anybodys(m, s) == TRUE
=============================================================================
