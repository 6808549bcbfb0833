------------------------------- MODULE Quorum -------------------------------
(*
The quorum of controllers: elections, replication by fetching, commits, linearizable reads, lost log tails, and recovery after the loss
of a majority.  The laws are about safety: messages may be lost, late, repeated or out of order, and any node may crash at any time;
every promise stays true.

How the model is simpler than the code, and why it misses nothing:
 - Any node may stand for election at any time.  Timers, pre-votes, the suspicion of a leader whose process is gone, the order of
   succession and the transfer of leadership only decide which node stands when.  Safety must not depend on them.  (Another module,
   Suspicion, shows that they do not disturb a healthy leader.)
 - A leader that resigned does nothing more.
 - The model has no network.  A message takes effect at its receiver in the step in which it was sent, or never.  A vote, an
   acknowledgement and a watermark only add to the knowledge of a node, and a node need not use its knowledge: a late vote or
   acknowledgement is one that is used late, if its receiver is still in office, and is worthless if not.  The answer to a fetch finds
   the follower as it was when it asked, or is refused.  Two kinds of lateness are modelled, because this argument does not cover
   them: `top' is an epoch that some message named, and any node may hear of it at any time; `flying' is a fetch whose read token may
   prove something to a leader that was asked for a read meanwhile.
 - A record is its epoch: one leader writes all records of an epoch, so (offset, epoch) names a record, and a prefix stands for its
   chain.
 - A read token is the number of the newest read round that a reply names, not a count of replies.
*)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Server,         \* the controllers of the first voter set
    Nil,
    MaxEpoch, MaxLog,                                        \* bounds of the search
    MaxReads, MaxCrashes, MaxLosses, MaxRecoveries,          \* maximum number of each; 0: never
    FlushesApart,   \* TRUE: write and flush are two steps, and a crash may come between them
    WithBroker

VARIABLES
    gen,            \* the generation in a node's identity; a node refuses messages of another generation
    epoch, vote, leader,                                     \* quorum-state: durable before a message names it
    role,
    votes,          \* of a candidate: its voters
    log, flushed,   \* flushed: how much of the log is durable
    lost,           \* a lost tail: the durable end that the log had, as far as the node knows (`bounded': for certain), and the
                    \* node's epoch when it found the loss; Nil: nothing is lost
    hw,             \* the high watermark that the node knows
    acked,          \* of a leader, for each voter: below this offset the voter's log is durable and equal to the leader's
    round, proven,  \* of a leader: the newest read round, and the nodes that proved that they followed after its begin
    token,          \* of a follower: the read round in the last reply that it accepted in this epoch
    flying,         \* of a follower: a fetch that is still on its way, or Nil
    read,           \* of a leader: a read that waits for its round
    top,            \* for each generation, the highest epoch that a message named
    broker,         \* the store of one broker: a generation, and the records that the broker received
    elected,        \* every election that a node ever won (no node knows this)
    committed,      \* for each generation, every record that was ever committed (no node knows this)
    stale,          \* TRUE: an answered read lacked a record that was committed when the read was asked
    crashes, losses, recoveries, reads

election == <<epoch, vote, leader, role, votes, top>>
disk     == <<log, flushed, lost>>
term     == <<acked, round, proven, read>>
ghosts   == <<elected, committed, stale>>
counts   == <<crashes, losses, recoveries, reads>>
vars     == <<gen, election, disk, hw, term, token, flying, broker, ghosts, counts>>

Generations == 0 .. MaxRecoveries
Symmetry == Permutations(Server)

\* Only values on which a later step can depend tell states apart.  A node that knows the leader of its epoch does not use its vote in
\* this epoch any more, and nothing uses a token when no read is left.
MayBeAsked(s) == role[s] = "leading" /\ (read[s] # Nil \/ reads < MaxReads)
Known == <<gen, epoch, leader, role, votes, top, disk, hw, acked, read, proven, broker, ghosts, counts,
    [s \in Server |-> IF leader[s] = Nil THEN vote[s] ELSE Nil],
    [s \in Server |-> IF MayBeAsked(s) THEN round[s] ELSE 0],
    [f \in Server |-> IF leader[f] # Nil /\ MayBeAsked(leader[f]) /\ epoch[f] = epoch[leader[f]] THEN token[f] ELSE 0],
    [f \in Server |-> IF flying[f] # Nil /\ MayBeAsked(flying[f].to) /\ flying[f].epoch = epoch[flying[f].to] THEN flying[f] ELSE Nil]>>

Never(s) == FALSE  \* replaces a step that a configuration leaves out

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
IsPrefix(a, b) == Len(a) <= Len(b) /\ SubSeq(b, 1, Len(a)) = a
LastEpoch(l) == IF l = <<>> THEN 0 ELSE l[Len(l)]
EndOfEpoch(l, e) == Cardinality({i \in 1 .. Len(l) : l[i] <= e})
Members(s) == IF gen[s] = 0 THEN Server ELSE {s}  \* a recovered node is the only voter
Majority(s, group) == 2 * Cardinality(group \cap Members(s)) > Cardinality(Members(s))
Ours(g, s) == g = gen[s]  \* a node refuses messages of another generation
IsWhole(s) == lost[s] = Nil
Start(s) == EndOfEpoch(log[s], epoch[s] - 1)  \* the offset at which a leader's epoch begins in its log
CommittedInEpoch(s) == hw[s] > Start(s)
FlushedAfter(n, l) == IF FlushesApart THEN n ELSE Len(l)

Init ==
    /\ gen = [s \in Server |-> 0]
    /\ epoch = [s \in Server |-> 0]
    /\ vote = [s \in Server |-> Nil]
    /\ leader = [s \in Server |-> Nil]
    /\ role = [s \in Server |-> "waiting"]
    /\ votes = [s \in Server |-> {}]
    /\ log = [s \in Server |-> <<>>]
    /\ flushed = [s \in Server |-> 0]
    /\ lost = [s \in Server |-> Nil]
    /\ hw = [s \in Server |-> 0]
    /\ acked = [s \in Server |-> [f \in Server |-> 0]]
    /\ round = [s \in Server |-> 0]
    /\ proven = [s \in Server |-> {}]
    /\ token = [s \in Server |-> 0]
    /\ flying = [s \in Server |-> Nil]
    /\ read = [s \in Server |-> Nil]
    /\ top = [g \in Generations |-> 0]
    /\ broker = [gen |-> 0, log |-> <<>>]
    /\ elected = {}
    /\ committed = [g \in Generations |-> <<>>]
    /\ stale = FALSE
    /\ crashes = 0 /\ losses = 0 /\ recoveries = 0 /\ reads = 0

\* A node that does not lead any more drops the knowledge of a leader.
NoTerm(s) ==
    /\ acked' = [acked EXCEPT ![s] = [f \in Server |-> 0]]
    /\ round' = [round EXCEPT ![s] = 0]
    /\ proven' = [proven EXCEPT ![s] = {}]
    /\ read' = [read EXCEPT ![s] = Nil]

-----------------------------------------------------------------------------
(* Elections.  A node that knows of a lost tail does not stand or vote.      *)

Stand(s) ==
    /\ role[s] \in {"waiting", "following", "standing"} /\ IsWhole(s)
    /\ epoch[s] < MaxEpoch
    /\ epoch' = [epoch EXCEPT ![s] = @ + 1]
    /\ vote' = [vote EXCEPT ![s] = s]
    /\ leader' = [leader EXCEPT ![s] = Nil]
    /\ role' = [role EXCEPT ![s] = "standing"]
    /\ votes' = [votes EXCEPT ![s] = {s}]
    /\ token' = [token EXCEPT ![s] = 0]
    /\ top' = [top EXCEPT ![gen[s]] = Max(@, epoch[s] + 1)]
    /\ UNCHANGED <<gen, disk, hw, term, flying, broker, ghosts, counts>>

\* A node enters a higher epoch, or learns the leader of its own epoch.
Enter(s, e, l) ==
    /\ epoch' = [epoch EXCEPT ![s] = e]
    /\ vote' = [vote EXCEPT ![s] = IF e > epoch[s] THEN Nil ELSE @]
    /\ leader' = [leader EXCEPT ![s] = l]
    /\ role' = [role EXCEPT ![s] = IF l = Nil THEN "waiting" ELSE "following"]
    /\ votes' = [votes EXCEPT ![s] = {}]
    /\ token' = [token EXCEPT ![s] = 0]
    /\ NoTerm(s)
    /\ UNCHANGED <<gen, disk, hw, flying, broker, ghosts, counts>>

\* A node takes in the epoch of any message, however late.
HearOfEpoch(s) == \E g \in Generations, e \in 1 .. MaxEpoch :
    /\ Ours(g, s) /\ e > epoch[s] /\ e <= top[g]
    /\ Enter(s, e, Nil)
    /\ UNCHANGED top

\* A leader that resigned or restarted may stand in the next epoch, like any node.
Rest(s) ==
    /\ leader[s] = s /\ epoch[s] < MaxEpoch
    /\ Enter(s, epoch[s] + 1, Nil)
    /\ top' = [top EXCEPT ![gen[s]] = Max(@, epoch[s] + 1)]

IsUpToDate(l, mine) == LastEpoch(l) > LastEpoch(mine) \/ (LastEpoch(l) = LastEpoch(mine) /\ Len(l) >= Len(mine))

Grant(s) == \E c \in Server \ {s} :
    /\ role[c] = "standing" /\ Ours(gen[c], s) /\ epoch[c] = epoch[s]
    /\ role[s] = "waiting" /\ vote[s] = Nil /\ leader[s] = Nil /\ IsWhole(s)
    /\ IsUpToDate(log[c], log[s])
    /\ vote' = [vote EXCEPT ![s] = c]
    /\ votes' = [votes EXCEPT ![c] = @ \cup {s}]
    /\ UNCHANGED <<gen, epoch, leader, role, top, disk, hw, term, token, flying, broker, ghosts, counts>>

Lead(s) ==
    /\ role[s] = "standing" /\ Majority(s, votes[s]) /\ Len(log[s]) < MaxLog
    /\ role' = [role EXCEPT ![s] = "leading"]
    /\ leader' = [leader EXCEPT ![s] = s]
    /\ votes' = [votes EXCEPT ![s] = {}]
    /\ log' = [log EXCEPT ![s] = Append(@, epoch[s])]
    /\ flushed' = [flushed EXCEPT ![s] = FlushedAfter(@, log'[s])]
    /\ elected' = elected \cup {<<gen[s], epoch[s], s>>}
    /\ UNCHANGED <<gen, epoch, vote, top, lost, hw, term, token, flying, broker, committed, stale, counts>>

\* A leader tells a node that it leads.
HearOfLeader(s) == \E l \in Server \ {s} :
    /\ role[l] = "leading" /\ Ours(gen[l], s)
    /\ epoch[l] > epoch[s] \/ (epoch[l] = epoch[s] /\ role[s] \in {"waiting", "standing"})
    /\ Enter(s, epoch[l], l)
    /\ UNCHANGED top

-----------------------------------------------------------------------------
(* Replication.  A fetch from a durable end says: everything below is        *)
(* durable.  A node with a lost tail fetches like a node that does not vote. *)

Write(s) ==
    /\ role[s] = "leading" /\ Len(log[s]) < MaxLog
    /\ log' = [log EXCEPT ![s] = Append(@, epoch[s])]
    /\ flushed' = [flushed EXCEPT ![s] = FlushedAfter(@, log'[s])]
    /\ UNCHANGED <<gen, election, lost, hw, term, token, flying, broker, ghosts, counts>>

Flush(s) ==
    /\ flushed[s] < Len(log[s])
    /\ flushed' = [flushed EXCEPT ![s] = Len(log[s])]
    /\ UNCHANGED <<gen, election, log, lost, hw, term, token, flying, broker, ghosts, counts>>

Follows(f, l) ==
    /\ role[f] = "following" /\ leader[f] = l /\ role[l] = "leading" /\ epoch[f] = epoch[l] /\ Ours(gen[f], l)
    /\ flushed[f] = Len(log[f])

\* A fetch with a token of the round proves that its sender followed after the round began.
Proves(t, s) == t >= round[s]
ProvenBy(s, f, t) == IF read[s] # Nil /\ Proves(t, s) THEN proven[s] \cup {f} ELSE proven[s]

\* A node knows the size of its loss for certain when a leader has named the end of its own log.
BoundedBy(f, n) == IF IsWhole(f) \/ lost[f].bounded THEN lost[f] ELSE [lost[f] EXCEPT !.end = Max(@, n), !.bounded = TRUE]

\* A fetch and its answer: any number of the next records, or none.
Serve(s) == \E f \in Server \ {s} : \E end \in Len(log[f]) .. Len(log[s]) :
    /\ Follows(f, s) /\ IsPrefix(log[f], log[s])
    /\ acked' = [acked EXCEPT ![s][f] = IF IsWhole(f) THEN Max(@, Len(log[f])) ELSE @]
    /\ proven' = [proven EXCEPT ![s] = IF IsWhole(f) THEN ProvenBy(s, f, token[f]) ELSE @]
    /\ log' = [log EXCEPT ![f] = SubSeq(log[s], 1, end)]
    /\ flushed' = [flushed EXCEPT ![f] = FlushedAfter(@, log'[f])]
    /\ hw' = [hw EXCEPT ![f] = IF CommittedInEpoch(s) THEN Max(@, Min(hw[s], end)) ELSE @]
    /\ token' = [token EXCEPT ![f] = round[s]]
    /\ lost' = [lost EXCEPT ![f] = BoundedBy(f, Len(log[s]))]
    /\ UNCHANGED <<gen, election, round, read, flying, broker, ghosts, counts>>

\* The follower's log is no prefix of the leader's: the follower cuts its log to a place where both may agree, and fetches again.
CutBack(s) == \E f \in Server \ {s} :
    /\ Follows(f, s)
    /\ LET last     == LastEpoch(log[f])
           agrees   == Len(log[f]) <= Len(log[s]) /\ LastEpoch(SubSeq(log[s], 1, Len(log[f]))) = last
           theirs   == EndOfEpoch(log[s], last)
           cutEpoch == LastEpoch(SubSeq(log[s], 1, theirs))
           mine     == EndOfEpoch(log[f], cutEpoch)
           end      == IF LastEpoch(SubSeq(log[f], 1, mine)) = cutEpoch THEN Min(mine, theirs) ELSE mine
       IN /\ ~agrees /\ end < Len(log[f])
          /\ log' = [log EXCEPT ![f] = SubSeq(@, 1, end)]
          /\ flushed' = [flushed EXCEPT ![f] = Min(@, end)]
          /\ token' = [token EXCEPT ![f] = round[s]]
          /\ lost' = [lost EXCEPT ![f] = BoundedBy(f, Len(log[s]))]
    /\ UNCHANGED <<gen, election, hw, term, flying, broker, ghosts, counts>>

\* The leader counts its own durable end, and commits only at a record of its own epoch (Raft 5.4.2).
OwnEnd(s) == flushed[s]
IsOfItsEpoch(s, n) == n > Start(s)

Commit(s) == \E n \in 1 .. MaxLog :
    /\ role[s] = "leading" /\ n > hw[s] /\ IsOfItsEpoch(s, n) /\ n <= Len(log[s])
    /\ Majority(s, {f \in Server : IF f = s THEN OwnEnd(s) >= n ELSE acked[s][f] >= n})
    /\ hw' = [hw EXCEPT ![s] = n]
    /\ committed' = [committed EXCEPT ![gen[s]] = IF n > Len(@) THEN SubSeq(log[s], 1, n) ELSE @]
    /\ UNCHANGED <<gen, election, disk, term, token, flying, broker, elected, stale, counts>>

-----------------------------------------------------------------------------
(* Reads.  A round begins after the question has arrived.  A majority must   *)
(* repeat a token that only a later reply could have given.                  *)

\* A fetch that arrives later.  (Its acknowledgement might have arrived at once, so only its token matters.)
Send(f) ==
    /\ MaxReads > 0 /\ role[f] = "following" /\ flushed[f] = Len(log[f]) /\ IsWhole(f)
    /\ Follows(f, leader[f])
    /\ flying' = [flying EXCEPT ![f] = [to |-> leader[f], epoch |-> epoch[f], token |-> token[f]]]
    /\ UNCHANGED <<gen, election, disk, hw, term, token, broker, ghosts, counts>>

Arrive(f) ==
    /\ flying[f] # Nil
    /\ LET s == flying[f].to IN
       proven' = IF role[s] = "leading" /\ epoch[s] = flying[f].epoch
                 THEN [proven EXCEPT ![s] = ProvenBy(s, f, flying[f].token)] ELSE proven
    /\ flying' = [flying EXCEPT ![f] = Nil]
    /\ UNCHANGED <<gen, election, disk, hw, acked, round, read, token, broker, ghosts, counts>>

Ask(s) ==
    /\ role[s] = "leading" /\ CommittedInEpoch(s) /\ read[s] = Nil /\ reads < MaxReads
    /\ reads' = reads + 1
    /\ round' = [round EXCEPT ![s] = @ + 1]
    /\ proven' = [proven EXCEPT ![s] = {}]
    /\ read' = [read EXCEPT ![s] = [asked |-> Len(committed[gen[s]]), pending |-> Len(log[s])]]
    /\ UNCHANGED <<gen, election, disk, hw, acked, token, flying, broker, ghosts, crashes, losses, recoveries>>

IsConfirmed(s) == Majority(s, proven[s] \cup {s})

Answer(s) ==
    /\ role[s] = "leading" /\ read[s] # Nil /\ hw[s] >= read[s].pending /\ IsConfirmed(s)
    /\ stale' = (stale \/ hw[s] < read[s].asked)
    /\ read' = [read EXCEPT ![s] = Nil]
    /\ proven' = [proven EXCEPT ![s] = {}]
    /\ UNCHANGED <<gen, election, disk, hw, acked, round, token, flying, broker, elected, committed, counts>>

-----------------------------------------------------------------------------
(* Faults.                                                                   *)

Forget(s) ==
    /\ role' = [role EXCEPT ![s] = IF leader[s] = s THEN "resigned" ELSE IF leader[s] # Nil THEN "following" ELSE "waiting"]
    /\ votes' = [votes EXCEPT ![s] = {}]
    /\ hw' = [hw EXCEPT ![s] = 0]
    /\ token' = [token EXCEPT ![s] = 0]
    /\ NoTerm(s)

\* A crash, with or without a power cut: any part of the unflushed records may survive.
Crash(s) ==
    /\ crashes < MaxCrashes /\ crashes' = crashes + 1
    /\ \E n \in flushed[s] .. Len(log[s]) :
          /\ log' = [log EXCEPT ![s] = SubSeq(@, 1, n)]
          /\ flushed' = [flushed EXCEPT ![s] = n]
    /\ lost' = [lost EXCEPT ![s] = IF IsWhole(s) THEN Nil ELSE [@ EXCEPT !.epoch = epoch[s], !.bounded = FALSE]]  \* a start asks again
    /\ Forget(s)
    /\ UNCHANGED <<gen, epoch, vote, leader, top, flying, broker, ghosts, losses, recoveries, reads>>

LostFrom(s, note) == [end |-> IF IsWhole(s) THEN note ELSE Max(lost[s].end, note), epoch |-> epoch[s], bounded |-> FALSE]

\* A restart that finds damage at the end of the durable records.  The note of the durable end may be an older one.  The node sees the
\* loss because the note is above the records that are left.
Lose(s) ==
    /\ losses < MaxLosses /\ losses' = losses + 1
    /\ \E n \in 0 .. flushed[s] : \E note \in n + 1 .. flushed[s] :
          /\ log' = [log EXCEPT ![s] = SubSeq(@, 1, n)]
          /\ flushed' = [flushed EXCEPT ![s] = n]
          /\ lost' = [lost EXCEPT ![s] = LostFrom(s, note)]
    /\ Forget(s)
    /\ UNCHANGED <<gen, epoch, vote, leader, top, flying, broker, ghosts, crashes, recoveries, reads>>

\* Everything below the lost end is committed and on this disk; or a later leader, elected without this node, has sent a record.
IsCommittedAgain(s) == lost[s].bounded /\ Min(flushed[s], hw[s]) >= lost[s].end
IsRestored(s) ==
    \/ IsCommittedAgain(s)
    \/ LastEpoch(SubSeq(log[s], 1, flushed[s])) > lost[s].epoch

Restored(s) ==
    /\ ~IsWhole(s) /\ IsRestored(s)
    /\ lost' = [lost EXCEPT ![s] = Nil]
    /\ UNCHANGED <<gen, election, log, flushed, hw, term, token, flying, broker, ghosts, counts>>

\* The operator gives up the other nodes and names one log.  Its node continues alone, in a new generation and a new epoch.  The other
\* nodes may still run.  (The code skips a million epochs; the model does not rely on this.)
Recover(s) ==
    /\ recoveries < MaxRecoveries /\ recoveries' = recoveries + 1
    /\ epoch[s] < MaxEpoch /\ Len(log[s]) < MaxLog /\ gen[s] = recoveries
    /\ gen' = [gen EXCEPT ![s] = @ + 1]
    /\ epoch' = [epoch EXCEPT ![s] = @ + 1]
    /\ vote' = [vote EXCEPT ![s] = s]
    /\ leader' = [leader EXCEPT ![s] = Nil]
    /\ role' = [role EXCEPT ![s] = "waiting"]
    /\ votes' = [votes EXCEPT ![s] = {}]
    /\ top' = [top EXCEPT ![gen[s] + 1] = epoch[s] + 1]
    /\ log' = [log EXCEPT ![s] = Append(@, epoch[s] + 1)]
    /\ flushed' = [flushed EXCEPT ![s] = Len(log'[s])]
    /\ lost' = [lost EXCEPT ![s] = Nil]
    /\ hw' = [hw EXCEPT ![s] = 0]
    /\ token' = [token EXCEPT ![s] = 0]
    /\ NoTerm(s)
    /\ UNCHANGED <<flying, broker, ghosts, crashes, losses, reads>>

\* A broker takes committed records only.  From a newer generation it takes all records anew, from an older generation none.
BrokerFetch(s) ==
    /\ WithBroker /\ role[s] = "leading" /\ CommittedInEpoch(s) /\ gen[s] >= broker.gen
    /\ gen[s] > broker.gen \/ hw[s] > Len(broker.log)
    /\ broker' = [gen |-> gen[s], log |-> IF gen[s] > broker.gen THEN SubSeq(log[s], 1, hw[s])
                                          ELSE broker.log \o SubSeq(log[s], Len(broker.log) + 1, hw[s])]
    /\ UNCHANGED <<gen, election, disk, hw, term, token, flying, ghosts, counts>>

Next == \E s \in Server :
    \/ Stand(s) \/ HearOfEpoch(s) \/ Rest(s) \/ Grant(s) \/ Lead(s) \/ HearOfLeader(s)
    \/ Write(s) \/ Flush(s) \/ Serve(s) \/ CutBack(s) \/ Commit(s)
    \/ Send(s) \/ Arrive(s) \/ Ask(s) \/ Answer(s)
    \/ Crash(s) \/ Lose(s) \/ Restored(s) \/ Recover(s) \/ BrokerFetch(s)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* The laws.                                                                 *)

\* At most one node is ever elected to an epoch.
ElectionSafety == \A a, b \in elected : a[1] = b[1] /\ a[2] = b[2] => a = b

\* A node votes once in an epoch, also across restarts, and its epoch never falls.
VoteOnce == [][\A s \in Server :
    epoch'[s] > epoch[s] \/ (epoch'[s] = epoch[s] /\ vote[s] \in {Nil, vote'[s]})]_vars

\* Two logs with a record of one epoch at one offset are equal up to this record.
LogMatching == \A a, b \in Server : gen[a] = gen[b] =>
    \A i \in 1 .. Min(Len(log[a]), Len(log[b])) :
        log[a][i] = log[b][i] => SubSeq(log[a], 1, i) = SubSeq(log[b], 1, i)

\* The leader of a later epoch has every record that was committed before.
LeaderCompleteness == \A s \in Server :
    role[s] = "leading" /\ epoch[s] >= LastEpoch(committed[gen[s]]) => IsPrefix(committed[gen[s]], log[s])

\* Every record below a node's high watermark is committed.
WatermarkIsTrue == \A s \in Server :
    hw[s] <= Len(log[s]) /\ IsPrefix(SubSeq(log[s], 1, hw[s]), committed[gen[s]])

\* The disks of a majority hold every committed record, as long as no disk has lost any.
CommittedIsDurable == losses = 0 /\ recoveries = 0 =>
    2 * Cardinality({s \in Server : IsPrefix(committed[0], SubSeq(log[s], 1, flushed[s]))}) > Cardinality(Server)

\* A read sees every record that was committed, and so acknowledged, when the read was asked.
ReadsAreFresh == ~stale

\* A broker holds a prefix of the history of its generation.
BrokerHoldsCommitted == IsPrefix(broker.log, committed[broker.gen])

-----------------------------------------------------------------------------
(* States that must be reached, or the laws prove nothing.  TLC prints the   *)
(* first visit of each (its level is the number of states on a shortest      *)
(* path); check.py lists the states that each configuration must reach.      *)

Reach(n, name, isThere) ==
    IF ~TLCGet(n) /\ isThere THEN TLCSet(n, TRUE) /\ PrintT(<<"reached", name, TLCGet("level")>>) ELSE TRUE

ASSUME \A n \in 1 .. 20 : TLCSet(n, FALSE)

Leads(s) == role[s] = "leading"
Holders(l) == {s \in Server : IsPrefix(l, SubSeq(log[s], 1, flushed[s]))}

Reached ==
    \* A majority follows another leader, and the old leader does not know this.
    /\ Reach(1, "TwoLead", \E a, b \in Server : Leads(a) /\ Leads(b) /\ gen[a] = gen[b] /\ epoch[a] < epoch[b])
    /\ Reach(2, "TwoTermsCommit", \E i, j \in 1 .. Len(committed[0]) : committed[0][i] < committed[0][j])
    \* A follower has a record that its leader lacks.
    /\ Reach(3, "TailIsCut", \E s, f \in Server : Follows(f, s) /\ ~IsPrefix(log[f], log[s]))
    \* Raft's figure 8: a record on the disks of a majority, under a later leader, and not committed.
    /\ Reach(4, "OlderOnMajority", \E s \in Server : Leads(s) /\ \E n \in Len(committed[0]) + 1 .. Start(s) :
                  2 * Cardinality(Holders(SubSeq(log[s], 1, n))) > Cardinality(Server))
    \* The first record of an epoch was lost in the crash of its leader.
    /\ Reach(5, "UnflushedIsLost", crashes > 0 /\ \E e \in elected : \A s \in Server : \A i \in 1 .. Len(log[s]) : log[s][i] # e[2])
    \* The high watermark is above the flushed end of the leader itself.
    /\ Reach(7, "CommittedByOthers", FlushesApart /\ \E s \in Server : Leads(s) /\ hw[s] > flushed[s])
    /\ Reach(8, "ReadIsAnswered", reads > 0 /\ \E s \in Server : Leads(s) /\ round[s] > 0 /\ read[s] = Nil)
    \* A deposed leader would give an old answer, and only the round prevents this.
    /\ Reach(9, "OldLeaderIsAsked", \E s \in Server : Leads(s) /\ read[s] # Nil /\ hw[s] >= read[s].pending /\ hw[s] < read[s].asked)
    \* The same, and a fetch of its own epoch arrives.
    /\ Reach(10, "OldFetchIsFlying", \E s, f \in Server : Leads(s) /\ read[s] # Nil /\ hw[s] < read[s].asked
                  /\ flying[f] # Nil /\ flying[f].to = s /\ flying[f].epoch = epoch[s])
    \* Too few disks hold the committed records, until the node that lost a tail has it again.
    /\ Reach(11, "CommittedIsShort", losses > 0 /\ 2 * Cardinality(Holders(committed[0])) < Cardinality(Server))
    /\ Reach(12, "WholeAsCommitted", \E s \in Server : ~IsWhole(s) /\ IsCommittedAgain(s))
    /\ Reach(13, "WholeByLaterLeader", \E s \in Server : ~IsWhole(s) /\ ~IsCommittedAgain(s) /\ IsRestored(s))
    \* The log is as long as before, and does not count yet.
    /\ Reach(14, "LongAgain", \E s \in Server : ~IsWhole(s) /\ flushed[s] >= lost[s].end /\ ~IsRestored(s))
    /\ Reach(15, "LeaderLosesTail", losses > 0 /\ \E s \in Server : ~IsWhole(s) /\ role[s] = "resigned")
    \* Committed records are on too few disks, and the note does not show this.
    /\ Reach(20, "NoteIsOld", 2 * Cardinality(Holders(committed[0])) < Cardinality(Server)
                  /\ \E s \in Server : ~IsWhole(s) /\ lost[s].end < Len(committed[0]))
    \* Both generations have a leader, and each has committed records that the other lacks.
    /\ Reach(16, "TwoGenerationsCommit", recoveries > 0 /\ \E a, b \in Server : Leads(a) /\ Leads(b) /\ gen[a] # gen[b]
                  /\ CommittedInEpoch(a) /\ CommittedInEpoch(b))
    /\ Reach(17, "CommittedIsGivenUp", recoveries > 0 /\ committed[1] # <<>> /\ ~IsPrefix(committed[0], committed[1]))
    /\ Reach(18, "BrokerGoesOver", recoveries > 0 /\ broker.gen = 1 /\ ~IsPrefix(committed[0], broker.log))
    /\ Reach(19, "BrokerStaysBehind", recoveries > 0 /\ broker.gen = 0 /\ ~IsPrefix(broker.log, committed[1]) /\ committed[1] # <<>>)

=============================================================================
