----------------------------- MODULE Suspicion -----------------------------
(*
Which nodes may disturb a healthy leader.  Only time and links matter in this module: logs are equal, and a call is one step, or none if
a link is cut.  If only the way back is cut, the call has its effect and no answer.

`Core' is a majority whose links hold, and whose leader's process runs.  A follower in the core may restart.  The other nodes are cut
off one way or both, paused, restarted, and let back at the worst moments.  The code departs from KRaft in one rule: a follower that has
seen the end of its leader's process (its stream broke, and an immediate reconnect was refused) grants pre-votes at once, and is the
first to ask for them.  A leader that is paused or cannot be reached does not refuse a connection, so no follower suspects it before the
fetch timeout.

The laws: no node deposes a healthy leader of the core, unless the node had a higher epoch before.  A node with a higher epoch wins no
round of pre-votes while a leader is healthy, so it costs the core one election at most.
*)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS Server, Core, Nil, MaxEpoch,
          LedBy,      \* the nodes that may lead at first
          Raised      \* the sets of nodes outside of the core that may have a higher epoch than the leader at first

VARIABLES epoch, vote, leader, role,
          heard,      \* of a follower: its leader has answered, or still has time to answer, and was not silent since
          suspects,   \* of a follower: it has seen the end of its leader's process
          yes,        \* the nodes that granted a node's pre-vote, or vote
          cut         \* the links, as <<from, to>>, that are cut

vars == <<epoch, vote, leader, role, heard, suspects, yes, cut>>

\* Only values that have a meaning in a node's role tell states apart.
Known == <<epoch, leader, role, cut,
           [s \in Server |-> IF leader[s] = Nil THEN vote[s] ELSE Nil],
           [s \in Server |-> IF role[s] = "following" THEN <<heard[s], suspects[s]>> ELSE <<>>],
           [s \in Server |-> IF role[s] \in {"asking", "standing"} THEN yes[s] ELSE {}]>>
Symmetry == Permutations(Core)

Outside == Server \ Core
Links == {l \in Server \X Server : l[1] # l[2] /\ ~(l[1] \in Core /\ l[2] \in Core)}
Reaches(a, b) == <<a, b>> \notin cut
IsMajority(group) == 2 * Cardinality(group) > Cardinality(Server)

\* The whole core follows the leader.  A node outside of the core is in any state and epoch that it may have reached.
Init ==
    /\ cut = {}
    /\ \E l \in LedBy, raised \in Raised :
          /\ l \notin raised
          /\ epoch = [s \in Server |-> IF s \in raised THEN 2 ELSE 1]
          /\ vote = [s \in Server |-> IF s \in raised THEN s ELSE Nil]
          /\ leader = [s \in Server |-> IF s \in raised THEN Nil ELSE l]
          /\ role = [s \in Server |-> IF s = l THEN "leading" ELSE IF s \in raised THEN "waiting" ELSE "following"]
    /\ heard = [s \in Server |-> role[s] = "following"]
    /\ suspects = [s \in Server |-> FALSE]
    /\ yes = [s \in Server |-> {}]

\* Healthy: every node of the core follows the leader and has an answer.
IsHealthy(l) == role[l] = "leading" /\ \A f \in Core \ {l} : role[f] = "following" /\ leader[f] = l /\ heard[f] /\ epoch[f] = epoch[l]

Become(s, r, e, v, l) ==
    /\ role' = [role EXCEPT ![s] = r]
    /\ epoch' = [epoch EXCEPT ![s] = e]
    /\ vote' = [vote EXCEPT ![s] = v]
    /\ leader' = [leader EXCEPT ![s] = l]
    /\ heard' = [heard EXCEPT ![s] = FALSE]
    /\ suspects' = [suspects EXCEPT ![s] = FALSE]

\* A follower finds its leader silent only if no answer can come, or the leader does not lead any more.
Silent(s) ==
    /\ role[s] = "following"
    /\ ~Reaches(s, leader[s]) \/ ~Reaches(leader[s], s) \/ role[leader[s]] # "leading" \/ epoch[leader[s]] # epoch[s]
    /\ role' = [role EXCEPT ![s] = "asking"]
    /\ yes' = [yes EXCEPT ![s] = {s}]
    /\ UNCHANGED <<epoch, vote, leader, heard, suspects, cut>>

\* An election timeout without a leader.  A vote restarts the timeout: the candidate has time to win, or to give up.
Wait(s) ==
    /\ role[s] = "waiting"
    /\ ~\E c \in Server \ {s} : vote[s] = c /\ epoch[c] = epoch[s] /\ role[c] \in {"standing", "leading"} /\ Reaches(c, s)
    /\ role' = [role EXCEPT ![s] = "asking"]
    /\ yes' = [yes EXCEPT ![s] = {s}]
    /\ UNCHANGED <<epoch, vote, leader, heard, suspects, cut>>

WouldGrant(v) == CASE role[v] = "leading" -> FALSE
                   [] role[v] = "following" -> suspects[v] \/ ~heard[v]
                   [] OTHER -> TRUE

\* The leader that a node names to others; none if the node has lost its leader.
Hint(v) == IF role[v] = "leading" \/ (role[v] = "following" /\ ~suspects[v]) THEN leader[v] ELSE Nil

\* Changes nothing at v.  The answer also names a higher epoch, or the leader of this epoch, if v knows one.
PreVote(s, v) ==
    /\ role[s] = "asking" /\ s # v /\ Reaches(s, v) /\ Reaches(v, s) /\ role[v] # "gone"
    /\ IF epoch[v] > epoch[s] \/ (epoch[v] = epoch[s] /\ leader[s] = Nil /\ Hint(v) \notin {Nil, s})
       THEN /\ Become(s, IF Hint(v) \in {Nil, s} THEN "waiting" ELSE "following", epoch[v],
                      IF epoch[v] > epoch[s] THEN Nil ELSE vote[s], IF Hint(v) = s THEN Nil ELSE Hint(v))
            /\ UNCHANGED <<yes, cut>>
       ELSE /\ WouldGrant(v)
            /\ yes' = [yes EXCEPT ![s] = @ \cup {v}]
            /\ UNCHANGED <<epoch, vote, leader, role, heard, suspects, cut>>

Stand(s) ==
    /\ role[s] = "asking" /\ IsMajority(yes[s]) /\ epoch[s] < MaxEpoch
    /\ Become(s, "standing", epoch[s] + 1, s, Nil)
    /\ yes' = [yes EXCEPT ![s] = {s}]
    /\ UNCHANGED cut

GiveUp(s) ==
    /\ role[s] \in {"asking", "standing"}
    /\ IF role[s] = "standing" THEN Become(s, "waiting", epoch[s], s, Nil)
       ELSE Become(s, IF leader[s] \in {Nil, s} THEN "waiting" ELSE "following", epoch[s], vote[s], leader[s])
    /\ UNCHANGED <<yes, cut>>

Vote(s, v) ==  \* the request alone raises v's epoch; the answer may be lost
    /\ role[s] = "standing" /\ s # v /\ Reaches(s, v) /\ epoch[v] <= epoch[s] /\ role[v] # "gone"
    /\ LET grants == epoch[v] < epoch[s] \/ (role[v] \in {"waiting", "asking"} /\ vote[v] \in {Nil, s} /\ leader[v] = Nil)
       IN /\ epoch[v] < epoch[s] \/ grants
          /\ Become(v, IF epoch[v] < epoch[s] THEN "waiting" ELSE role[v], epoch[s], IF grants THEN s ELSE vote[v], Nil)
          /\ yes' = [yes EXCEPT ![s] = IF grants /\ Reaches(v, s) THEN @ \cup {v} ELSE @]
    /\ UNCHANGED cut

Lead(s) ==
    /\ role[s] = "standing" /\ IsMajority(yes[s])
    /\ Become(s, "leading", epoch[s], s, s)
    /\ UNCHANGED <<yes, cut>>

\* A leader tells a node that it leads, or learns a higher epoch from the answer.
Begin(s, v) ==
    /\ role[s] = "leading" /\ s # v /\ Reaches(s, v) /\ role[v] # "gone"
    /\ \/ /\ epoch[v] < epoch[s] \/ (epoch[v] = epoch[s] /\ role[v] \in {"waiting", "asking", "standing"})
          /\ Become(v, "following", epoch[s], IF epoch[v] < epoch[s] THEN Nil ELSE vote[v], s)
       \/ /\ epoch[v] > epoch[s] /\ Reaches(v, s)
          /\ Become(s, "waiting", epoch[v], Nil, Nil)
    /\ UNCHANGED <<yes, cut>>

Answered(s) ==  \* a follower's fetch
    /\ role[s] = "following" /\ ~heard[s] /\ Reaches(s, leader[s]) /\ Reaches(leader[s], s)
    /\ role[leader[s]] = "leading" /\ epoch[leader[s]] = epoch[s]
    /\ heard' = [heard EXCEPT ![s] = TRUE]
    /\ suspects' = [suspects EXCEPT ![s] = FALSE]
    /\ UNCHANGED <<epoch, vote, leader, role, yes, cut>>

\* A process ends, and its followers see the end.  The process of the core's leader does not end.
Restart(s) ==
    /\ s \in Outside \/ role[s] = "following"
    /\ role[s] # "gone"
    /\ role' = [role EXCEPT ![s] = "gone"]
    /\ suspects' = [f \in Server |-> suspects[f] \/ (role[f] = "following" /\ leader[f] = s)]
    /\ UNCHANGED <<epoch, vote, leader, heard, yes, cut>>

\* A restarted node gives its leader time to answer before it supports another.
GivesTime(s) == leader[s] \notin {Nil, s}

Back(s) ==
    /\ role[s] = "gone"
    /\ role' = [role EXCEPT ![s] = IF leader[s] \in {Nil, s} THEN "waiting" ELSE "following"]
    /\ heard' = [heard EXCEPT ![s] = GivesTime(s)]
    /\ suspects' = [suspects EXCEPT ![s] = FALSE]
    /\ yes' = [yes EXCEPT ![s] = {}]
    /\ UNCHANGED <<epoch, vote, leader, cut>>

Cut == \E l \in Links : cut' = (IF l \in cut THEN cut \ {l} ELSE cut \cup {l}) /\ UNCHANGED <<epoch, vote, leader, role, heard, suspects, yes>>

Next ==
    \/ Cut
    \/ \E s \in Server : Silent(s) \/ Wait(s) \/ Stand(s) \/ GiveUp(s) \/ Lead(s) \/ Answered(s) \/ Restart(s) \/ Back(s)
    \/ \E s, v \in Server : PreVote(s, v) \/ Vote(s, v) \/ Begin(s, v)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
ElectionSafety == \A a, b \in Server : role[a] = "leading" /\ role[b] = "leading" /\ epoch[a] = epoch[b] => a = b

Nobody == {{}}
Anybody == SUBSET Outside
TheCore == Core
Anyone == Server

\* A node that never had a higher epoch does not depose the leader.
HealthyLeaderStays == [][\A l \in Core : IsHealthy(l) => role'[l] = "leading" /\ epoch'[l] = epoch[l]]_vars
\* While a leader is healthy, no node wins a round of pre-votes, in any epoch, so no node raises its epoch.  (A node that won a round or
\* raised its epoch before may cost one election.)
NobodyIsEncouraged == [][(\E l \in Core : IsHealthy(l)) =>
    \A s \in Server : role'[s] = "asking" /\ IsMajority(yes'[s]) => IsMajority(yes[s])]_vars

\* A mistake that the checker must find: a node that has just restarted supports another leader at once.
GivesNone(s) == FALSE

\* States that must be reached (see Quorum).
Reach(n, name, isThere) ==
    IF ~TLCGet(n) /\ isThere THEN TLCSet(n, TRUE) /\ PrintT(<<"reached", name, TLCGet("level")>>) ELSE TRUE

ASSUME \A n \in 1 .. 20 : TLCSet(n, FALSE)

Reached ==
    /\ Reach(1, "CutOffAsksHealthy", \E l \in Core : IsHealthy(l) /\ \E s \in Outside : role[s] = "asking")
    /\ Reach(2, "FollowerRestarts", \E l, f \in Core : role[l] = "leading" /\ leader[f] = l /\ role[f] = "gone")
    /\ Reach(3, "LeaderIsSuspected", \E f \in Core : role[f] = "following" /\ suspects[f])
    /\ Reach(4, "SuspectIsSucceeded", \E l \in Core : IsHealthy(l) /\ \E s \in Outside : leader[s] = s)
    \* A candidate beside a healthy leader: it had won its pre-votes before.
    /\ Reach(5, "LateCandidate", \E l \in Core, s \in Outside : IsHealthy(l) /\ role[s] = "standing" /\ epoch[s] > epoch[l])
    /\ Reach(6, "RaisedIsLetBack", \E l \in Core, s \in Outside : IsHealthy(l) /\ epoch[s] > epoch[l] /\ role[s] = "asking" /\ cut = {})
    /\ Reach(7, "HealthyAgain", \E l \in Core : IsHealthy(l) /\ epoch[l] > 2)
=============================================================================
