------------------------------- MODULE Quorum -------------------------------
(***************************************************************************)
(* The quorum of controllers: elections, replication by fetching, commits,  *)
(* linearizable reads, lost log tails, and recovery after a majority is     *)
(* gone.  What is checked is safety: whatever is lost, late, repeated or    *)
(* out of order, and whoever crashes when, what was promised stays true.    *)
(*                                                                          *)
(* How the code is simplified, and why nothing is missed by it.             *)
(*  - Anyone may stand for election at any time.  Timers, pre-votes, the    *)
(*    suspicion of a leader whose process is gone, the order of succession  *)
(*    and the transfer of leadership only say who stands when; safety must  *)
(*    not depend on it.  (That they do not disturb a healthy leader is      *)
(*    another module's matter: Suspicion.)                                  *)
(*  - A leader that resigns is one that does nothing more.                  *)
(*  - `net' holds all that was ever said, and nothing is taken out of it:   *)
(*    a message that is never taken is lost, one taken late is delayed, one *)
(*    taken twice is repeated.  Only the answer to a fetch is taken at once *)
(*    or never: a late one would bring no more than the next, and a leader  *)
(*    that does not know that it is deposed still answers.                  *)
(*  - A record is its epoch: one leader writes all records of an epoch, so  *)
(*    (offset, epoch) names a record, and a prefix stands for its chain.    *)
(*  - A read token is the number of the newest read round that a reply      *)
(*    knows of, instead of a count of replies.                              *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Server,         \* the controllers that the cluster was formatted with
    Nil,
    MaxEpoch, MaxLog,                                        \* how far it is looked
    MaxReads, MaxCrashes, MaxLosses, MaxRecoveries,          \* how often each may happen; 0: never
    FlushesApart,   \* whether a follower writes and flushes in two steps
    WithBroker

VARIABLES
    gen,            \* the generation in a node's identity; a message of another one is refused
    members,        \* who votes, as the node knows
    epoch, vote, leader,                                     \* quorum-state: durable before it is spoken of
    role,
    log, flushed,   \* flushed: how much of the log is durable
    lost,           \* where its log ended, durably, and does not any more, and its epoch when it found that; or Nil
    hw,             \* high watermark, as the node knows
    start,          \* a leader's: the length of its log when it was elected
    acked,          \* a leader's: below it, a voter's log is durable and the leader's
    round, echoed,  \* a leader's: the newest read round; the newest one that a voter has repeated
    token,          \* a follower's: the read round in the last reply that it accepted in this epoch
    read,           \* a leader's read that waits for its round
    net,
    broker,         \* one broker's store: a generation and the records that it was given
    committed,      \* what was ever committed, by generation (nobody knows this)
    answer,         \* the last read's answer, with what was committed when it was asked
    crashes, losses, recoveries, reads

durable  == <<gen, members, epoch, vote, leader, log, flushed, lost>>
volatile == <<role, hw, start, acked, round, echoed, token, read>>
ghosts   == <<committed, answer, crashes, losses, recoveries, reads>>
vars     == <<durable, volatile, net, broker, ghosts>>

Generations == 0 .. MaxRecoveries
Symmetry == Permutations(Server)

NoTerm(s) ==  \* what a leader knows is dropped with its leadership
    /\ start' = [start EXCEPT ![s] = 0]
    /\ acked' = [acked EXCEPT ![s] = [f \in Server |-> 0]]
    /\ round' = [round EXCEPT ![s] = 0]
    /\ echoed' = [echoed EXCEPT ![s] = [f \in Server |-> 0]]
    /\ read' = [read EXCEPT ![s] = Nil]

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
IsPrefix(a, b) == Len(a) <= Len(b) /\ SubSeq(b, 1, Len(a)) = a
Majority(s, group) == 2 * Cardinality(group \cap members[s]) > Cardinality(members[s])
LastEpoch(l) == IF l = <<>> THEN 0 ELSE l[Len(l)]
EndOfEpoch(l, e) == Cardinality({i \in 1 .. Len(l) : l[i] <= e})
Say(m) == net' = net \cup {m}
Ours(m, s) == m.gen = gen[s]  \* what another generation says is refused

Init ==
    /\ gen = [s \in Server |-> 0]
    /\ members = [s \in Server |-> Server]
    /\ epoch = [s \in Server |-> 0]
    /\ vote = [s \in Server |-> Nil]
    /\ leader = [s \in Server |-> Nil]
    /\ role = [s \in Server |-> "waiting"]
    /\ log = [s \in Server |-> <<>>]
    /\ flushed = [s \in Server |-> 0]
    /\ lost = [s \in Server |-> Nil]
    /\ hw = [s \in Server |-> 0]
    /\ start = [s \in Server |-> 0]
    /\ acked = [s \in Server |-> [f \in Server |-> 0]]
    /\ round = [s \in Server |-> 0]
    /\ echoed = [s \in Server |-> [f \in Server |-> 0]]
    /\ token = [s \in Server |-> 0]
    /\ read = [s \in Server |-> Nil]
    /\ net = {}
    /\ broker = [gen |-> 0, log |-> <<>>]
    /\ committed = [g \in Generations |-> <<>>]
    /\ answer = [asked |-> 0, given |-> 0]
    /\ crashes = 0 /\ losses = 0 /\ recoveries = 0 /\ reads = 0

-----------------------------------------------------------------------------
(* Elections.  A node that knows of a lost tail neither stands nor votes.   *)

IsWhole(s) == lost[s] = Nil

Stand(s) ==
    /\ role[s] \in {"waiting", "following", "standing"} /\ s \in members[s] /\ IsWhole(s)
    /\ epoch[s] < MaxEpoch
    /\ epoch' = [epoch EXCEPT ![s] = @ + 1]
    /\ vote' = [vote EXCEPT ![s] = s]
    /\ leader' = [leader EXCEPT ![s] = Nil]
    /\ role' = [role EXCEPT ![s] = "standing"]
    /\ token' = [token EXCEPT ![s] = 0]
    /\ net' = net \cup {
         [type |-> "vote", gen |-> gen[s], from |-> s, epoch |-> epoch[s] + 1, last |-> LastEpoch(log[s]), end |-> Len(log[s])],
         [type |-> "granted", gen |-> gen[s], from |-> s, to |-> s, epoch |-> epoch[s] + 1]}
    /\ UNCHANGED <<gen, members, log, flushed, lost, hw, start, acked, round, echoed, read, broker, ghosts>>

\* Somebody speaks of a higher epoch, or of who leads this one.
Enter(s, e, l) ==
    /\ epoch' = [epoch EXCEPT ![s] = e]
    /\ vote' = [vote EXCEPT ![s] = IF e > epoch[s] THEN Nil ELSE @]
    /\ leader' = [leader EXCEPT ![s] = l]
    /\ role' = [role EXCEPT ![s] = IF l = Nil THEN "waiting" ELSE "following"]
    /\ token' = [token EXCEPT ![s] = 0]
    /\ NoTerm(s)

HearVote(s) == \E m \in net :
    /\ m.type = "vote" /\ Ours(m, s) /\ m.from # s /\ m.epoch > epoch[s]
    /\ Enter(s, m.epoch, Nil)
    /\ UNCHANGED <<gen, members, log, flushed, lost, hw, net, broker, ghosts>>

Grant(s) == \E m \in net :
    /\ m.type = "vote" /\ Ours(m, s) /\ m.from # s /\ m.epoch = epoch[s]
    /\ s \in members[s] /\ IsWhole(s) /\ role[s] = "waiting"
    /\ vote[s] \in {Nil, m.from} /\ leader[s] = Nil
    /\ m.last > LastEpoch(log[s]) \/ (m.last = LastEpoch(log[s]) /\ m.end >= Len(log[s]))
    /\ vote' = [vote EXCEPT ![s] = m.from]
    /\ Say([type |-> "granted", gen |-> gen[s], from |-> s, to |-> m.from, epoch |-> m.epoch])
    /\ UNCHANGED <<gen, members, epoch, leader, log, flushed, lost, volatile, broker, ghosts>>

Lead(s) ==
    /\ role[s] = "standing" /\ Len(log[s]) < MaxLog
    /\ Majority(s, {m.from : m \in {n \in net :
          n.type = "granted" /\ n.gen = gen[s] /\ n.to = s /\ n.epoch = epoch[s]}})
    /\ role' = [role EXCEPT ![s] = "leading"]
    /\ leader' = [leader EXCEPT ![s] = s]
    /\ start' = [start EXCEPT ![s] = Len(log[s])]
    /\ log' = [log EXCEPT ![s] = Append(@, epoch[s])]
    /\ acked' = [acked EXCEPT ![s] = [f \in Server |-> 0]]
    /\ echoed' = [echoed EXCEPT ![s] = [f \in Server |-> 0]]
    /\ round' = [round EXCEPT ![s] = 0]
    /\ Say([type |-> "begin", gen |-> gen[s], from |-> s, epoch |-> epoch[s]])
    /\ UNCHANGED <<gen, members, epoch, vote, flushed, lost, hw, token, read, broker, ghosts>>

HearBegin(s) == \E m \in net :
    /\ m.type = "begin" /\ Ours(m, s) /\ m.from # s
    /\ m.epoch > epoch[s] \/ (m.epoch = epoch[s] /\ role[s] \in {"waiting", "standing"})
    /\ Enter(s, m.epoch, m.from)
    /\ UNCHANGED <<gen, members, log, flushed, lost, hw, net, broker, ghosts>>

-----------------------------------------------------------------------------
(* Replication.  A fetch from a durable end says that all below is durable.  *)
(* A node with a lost tail fetches like somebody who does not vote.          *)

Write(s) ==
    /\ role[s] = "leading" /\ Len(log[s]) < MaxLog
    /\ log' = [log EXCEPT ![s] = Append(@, epoch[s])]
    /\ UNCHANGED <<gen, members, epoch, vote, leader, flushed, lost, volatile, net, broker, ghosts>>

Flush(s) ==
    /\ flushed[s] < Len(log[s])
    /\ flushed' = [flushed EXCEPT ![s] = Len(log[s])]
    /\ UNCHANGED <<gen, members, epoch, vote, leader, log, lost, volatile, net, broker, ghosts>>

Fetch(s) ==
    /\ role[s] = "following" /\ flushed[s] = Len(log[s])
    /\ Say([type |-> "fetch", gen |-> gen[s], from |-> s, counts |-> IsWhole(s) /\ s \in members[s], epoch |-> epoch[s],
            end |-> Len(log[s]), last |-> LastEpoch(log[s]), token |-> token[s]])
    /\ UNCHANGED <<durable, volatile, broker, ghosts>>

\* The leader takes a fetch that was once sent.  Its answer is taken at once, or never.
Answers(s, m, taken) == LET f == m.from IN
    taken <=> /\ gen[f] = gen[s] /\ epoch[f] = epoch[s] /\ role[f] = "following" /\ leader[f] = s
              /\ m.end = Len(log[f]) /\ m.last = LastEpoch(log[f]) /\ flushed[f] = Len(log[f])

Serve(s) == \E m \in net, taken \in BOOLEAN, end \in 0 .. MaxLog :
    /\ m.type = "fetch" /\ role[s] = "leading" /\ Ours(m, s) /\ m.epoch = epoch[s] /\ m.from # s
    /\ m.end <= Len(log[s]) /\ LastEpoch(SubSeq(log[s], 1, m.end)) = m.last
    /\ acked' = [acked EXCEPT ![s][m.from] = IF m.counts THEN Max(@, m.end) ELSE @]
    /\ echoed' = [echoed EXCEPT ![s][m.from] = IF m.counts THEN Max(@, m.token) ELSE @]
    /\ IF taken
       THEN /\ Answers(s, m, TRUE)
            /\ end \in m.end .. Len(log[s]) /\ (end > m.end \/ m.end = Len(log[s]))
            /\ log' = [log EXCEPT ![m.from] = SubSeq(log[s], 1, end)]  \* as many as fit
            /\ hw' = [hw EXCEPT ![m.from] = IF hw[s] > start[s] THEN Max(@, Min(hw[s], end)) ELSE @]
            /\ token' = [token EXCEPT ![m.from] = round[s]]
            /\ flushed' = IF FlushesApart THEN flushed ELSE [flushed EXCEPT ![m.from] = end]
       ELSE end = 0 /\ UNCHANGED <<log, flushed, hw, token>>
    /\ UNCHANGED <<gen, members, epoch, vote, leader, lost, role, start, round, read, net, broker, ghosts>>

\* The follower's log is none of the leader's: it cuts back to where the two may agree, and asks again.
CutBack(s) == \E m \in net : LET f == m.from IN
    /\ m.type = "fetch" /\ role[s] = "leading" /\ Ours(m, s) /\ m.epoch = epoch[s] /\ f # s
    /\ ~(m.end <= Len(log[s]) /\ LastEpoch(SubSeq(log[s], 1, m.end)) = m.last)
    /\ Answers(s, m, TRUE)
    /\ LET theirs   == EndOfEpoch(log[s], m.last)
           cutEpoch == LastEpoch(SubSeq(log[s], 1, theirs))
           mine     == EndOfEpoch(log[f], cutEpoch)
           end      == IF LastEpoch(SubSeq(log[f], 1, mine)) = cutEpoch THEN Min(mine, theirs) ELSE mine
       IN /\ end < Len(log[f])
          /\ log' = [log EXCEPT ![f] = SubSeq(@, 1, end)]
          /\ flushed' = [flushed EXCEPT ![f] = Min(@, end)]
    /\ UNCHANGED <<gen, members, epoch, vote, leader, lost, volatile, net, broker, ghosts>>

\* The leader counts itself by what is durable, and moves only on a record of its own epoch (Raft 5.4.2).
OwnEnd(s) == flushed[s]
IsOfItsEpoch(s, n) == n > start[s]

Commit(s) == \E n \in 1 .. MaxLog :
    /\ role[s] = "leading" /\ n > hw[s] /\ IsOfItsEpoch(s, n) /\ n <= Len(log[s])
    /\ Majority(s, {f \in Server : IF f = s THEN OwnEnd(s) >= n ELSE acked[s][f] >= n})
    /\ hw' = [hw EXCEPT ![s] = n]
    /\ committed' = [committed EXCEPT ![gen[s]] = IF n > Len(@) THEN SubSeq(log[s], 1, n) ELSE @]
    /\ UNCHANGED <<durable, role, start, acked, round, echoed, token, read, net, broker, answer, crashes, losses, recoveries, reads>>

-----------------------------------------------------------------------------
(* Reads: a round begins after the question came in; a majority must repeat  *)
(* what only a reply sent after that could have told them.                   *)

Ask(s) ==
    /\ role[s] = "leading" /\ hw[s] > start[s] /\ read[s] = Nil /\ reads < MaxReads
    /\ reads' = reads + 1
    /\ round' = [round EXCEPT ![s] = @ + 1]
    /\ read' = [read EXCEPT ![s] = [asked |-> Len(committed[gen[s]]), pending |-> Len(log[s])]]
    /\ UNCHANGED <<durable, role, hw, start, acked, echoed, token, net, broker, committed, answer, crashes, losses, recoveries>>

IsConfirmed(s) == Majority(s, {f \in Server : f = s \/ echoed[s][f] >= round[s]})

Answer(s) ==
    /\ role[s] = "leading" /\ read[s] # Nil /\ hw[s] >= read[s].pending /\ IsConfirmed(s)
    /\ answer' = [asked |-> read[s].asked, given |-> hw[s]]
    /\ read' = [read EXCEPT ![s] = Nil]
    /\ UNCHANGED <<durable, role, hw, start, acked, round, echoed, token, net, broker, committed, crashes, losses, recoveries, reads>>

-----------------------------------------------------------------------------
(* Faults.                                                                   *)

AtStart(s) == IF leader[s] = s THEN "resigned" ELSE IF leader[s] # Nil THEN "following" ELSE "waiting"

Forget(s) ==
    /\ role' = [role EXCEPT ![s] = AtStart(s)]
    /\ hw' = [hw EXCEPT ![s] = 0]
    /\ token' = [token EXCEPT ![s] = 0]
    /\ NoTerm(s)

LostFrom(s) == [end |-> IF IsWhole(s) THEN flushed[s] ELSE Max(lost[s].end, flushed[s]), epoch |-> epoch[s]]

\* A crash, with or without the power: what was not flushed may be there, or not.
Crash(s) ==
    /\ crashes < MaxCrashes /\ crashes' = crashes + 1
    /\ \E n \in flushed[s] .. Len(log[s]) :
          /\ log' = [log EXCEPT ![s] = SubSeq(@, 1, n)]
          /\ flushed' = [flushed EXCEPT ![s] = n]
    /\ Forget(s)
    /\ UNCHANGED <<gen, members, epoch, vote, leader, lost, net, broker, committed, answer, losses, recoveries, reads>>

\* A restart that finds damage at the end of what was durable once, and knows from the note how much that was.
Lose(s) ==
    /\ losses < MaxLosses /\ losses' = losses + 1 /\ flushed[s] > 0
    /\ \E n \in 0 .. flushed[s] - 1 : log' = [log EXCEPT ![s] = SubSeq(@, 1, n)]
    /\ flushed' = [flushed EXCEPT ![s] = Len(log'[s])]
    /\ lost' = [lost EXCEPT ![s] = LostFrom(s)]
    /\ Forget(s)
    /\ UNCHANGED <<gen, members, epoch, vote, leader, net, broker, committed, answer, crashes, recoveries, reads>>

\* All below the lost end is known to be committed and is here; or a later leader, elected without this node, has sent a record.
Restored(s) ==
    /\ ~IsWhole(s)
    /\ \/ flushed[s] >= lost[s].end /\ hw[s] >= lost[s].end
       \/ LastEpoch(SubSeq(log[s], 1, flushed[s])) > lost[s].epoch
    /\ lost' = [lost EXCEPT ![s] = Nil]
    /\ UNCHANGED <<gen, members, epoch, vote, leader, log, flushed, volatile, net, broker, ghosts>>

\* The operator gives up on the others: this node goes on alone, as another generation.  They may still be running.
Recover(s) ==
    /\ recoveries < MaxRecoveries /\ recoveries' = recoveries + 1 /\ epoch[s] < MaxEpoch
    /\ gen[s] = recoveries
    /\ gen' = [gen EXCEPT ![s] = @ + 1]
    /\ members' = [members EXCEPT ![s] = {s}]
    /\ epoch' = [epoch EXCEPT ![s] = @ + 1]
    /\ vote' = [vote EXCEPT ![s] = Nil]
    /\ leader' = [leader EXCEPT ![s] = Nil]
    /\ lost' = [lost EXCEPT ![s] = Nil]
    /\ role' = [role EXCEPT ![s] = "waiting"]
    /\ hw' = [hw EXCEPT ![s] = 0]
    /\ token' = [token EXCEPT ![s] = 0]
    /\ NoTerm(s)
    /\ UNCHANGED <<log, flushed, net, broker, committed, answer, crashes, losses, reads>>

\* A broker takes committed records only; of a newer generation it takes all anew, of an older one nothing.
BrokerFetch(s) ==
    /\ WithBroker /\ role[s] = "leading" /\ hw[s] > start[s] /\ gen[s] >= broker.gen
    /\ gen[s] > broker.gen \/ hw[s] > Len(broker.log)
    /\ broker' = [gen |-> gen[s], log |-> IF gen[s] > broker.gen THEN SubSeq(log[s], 1, hw[s])
                                          ELSE broker.log \o SubSeq(log[s], Len(broker.log) + 1, hw[s])]
    /\ UNCHANGED <<durable, volatile, net, ghosts>>

Next == \E s \in Server :
    \/ Stand(s) \/ HearVote(s) \/ Grant(s) \/ Lead(s) \/ HearBegin(s)
    \/ Write(s) \/ Flush(s) \/ Fetch(s) \/ Serve(s) \/ CutBack(s) \/ Commit(s)
    \/ Ask(s) \/ Answer(s)
    \/ Crash(s) \/ Lose(s) \/ Restored(s) \/ Recover(s) \/ BrokerFetch(s)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* The laws.                                                                 *)

\* At most one node leads an epoch.
ElectionSafety == \A a, b \in net :
    a.type = "begin" /\ b.type = "begin" /\ a.gen = b.gen /\ a.epoch = b.epoch => a.from = b.from

\* One vote in an epoch, over all lives of a node.
VoteOnce == \A a, b \in net :
    a.type = "granted" /\ b.type = "granted" /\ a.gen = b.gen /\ a.from = b.from /\ a.epoch = b.epoch => a.to = b.to

\* Logs that hold a record of one epoch at one offset are equal up to there.
LogMatching == \A a, b \in Server : gen[a] = gen[b] =>
    \A i \in 1 .. Min(Len(log[a]), Len(log[b])) :
        log[a][i] = log[b][i] => SubSeq(log[a], 1, i) = SubSeq(log[b], 1, i)

\* Whoever leads a later epoch has all that was committed before.
LeaderCompleteness == \A s \in Server :
    role[s] = "leading" /\ epoch[s] >= LastEpoch(committed[gen[s]]) => IsPrefix(committed[gen[s]], log[s])

\* What a node believes committed is.
WatermarkIsTrue == \A s \in Server :
    hw[s] <= Len(log[s]) /\ IsPrefix(SubSeq(log[s], 1, hw[s]), committed[gen[s]])

\* A majority's disks hold what is committed, as long as no disk has lost anything.
CommittedIsDurable == losses = 0 /\ recoveries = 0 =>
    2 * Cardinality({s \in Server : IsPrefix(committed[0], SubSeq(log[s], 1, flushed[s]))}) > Cardinality(Server)

\* A read sees all that was committed, and so acknowledged, when it was asked.
ReadsAreFresh == answer.given >= answer.asked

\* What a broker holds is a beginning of the one history of its generation.
BrokerHoldsCommitted == IsPrefix(broker.log, committed[broker.gen])

=============================================================================
