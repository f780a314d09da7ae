//! The rules, and what the core promises about the calls and effects of one run, which the world must know too.

mod calls;
mod effects;

use netns_fixtures::model::Violation;

pub(crate) use self::calls::{Calls, is_of};
pub(crate) use self::effects::Effects;
use crate::plan::EffectKind;

/// Which rule was broken. The numbers are those of the design's invariants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// 1: a caller was told a lease that was not durable.
    NotDurable,
    /// 2: two Persists, two Opens or two Applies of one binding are under way.
    Two(EffectKind),
    /// A request was answered twice, or an unknown one was.
    Answers,
    /// 2: an ADD succeeded although a DEL of its attachment came after it.
    DelOvertaken,
    /// 3: a request was answered after its caller was known to be gone.
    AnswerToNobody,
    /// An answer of another kind than the call.
    WrongAnswer,
    /// 4: a RELEASE of an address that a live attachment holds.
    ReleaseUnderHolder,
    /// 4: a DECLINE of an address that a live attachment holds.
    DeclineUnderHolder,
    /// 4: a RELEASE while another host has the address under the same identity.
    ReleaseElsewhere,
    /// A lease whose identity can return was given back too early, or kept too long.
    Grace,
    /// A frame for sockets that are not open, or were closed.
    SendUnopened,
    /// 5: sockets stay open with nothing to do.
    IdleSockets,
    /// Effects that nobody waits for pile up.
    Unbounded,
    /// 6: the daemon keeps a namespace alive.
    PinnedNamespace,
    /// A macvlan of the daemon has the Ethernet address of an interface that is about to come.
    InTheWay,
    /// 7: a packet after a restart, before T1 and without a cause.
    Chatty,
    /// 9: a call is not answered by its time-out.
    Unanswered,
    /// A client's message that violates RFC 2131.
    Client(Box<Violation>),
    /// The core asks to be woken again and again without progress.
    Spins,
    /// A server was believed that is denied or must not be believed.
    Rogue,
    /// 4: two live attachments hold one address of a LAN.
    Twice,
    /// A client looks for a lease too often.
    Timing,
    /// No server heard a client soon after its link had been away for long.
    Unconfirmed,
    /// A lease has ended although its server could hear RENEW, or its server has forgotten it and is not asked.
    Unrenewed,
    /// A container has been without a lease for long, though a server can hear it.
    Bare,
    /// A message leaves by another link than it should.
    WrongLink,
    /// A container fell back to a local range too early or without probes, or a server hears such an address.
    Fallback,
    /// A lease stays at its server without a holder.
    Stranded,
    /// An attachment keeps using an address that a neighbour uses, though it could hear the neighbour.
    Squatted,
    /// An ADD succeeded with an address that a neighbour was heard to use.
    Accepted,
    /// An ADD declined more than three addresses, or one of them more than three times.
    Declines,
    /// Too many addresses of a LAN were declined in ten minutes, or given back or looked for at once.
    Pace,
    /// An address was declined without cause.
    Declined,
    /// The name servers that the host's programs read are not those of the leases.
    Published,
    /// A container's interface does not carry what its lease says, or carries more.
    Interface,
    /// An address is reported as taken off by somebody, though nobody took it off.
    Removed,
    /// ARP names an address that is not on its interface.
    Misleads,
    /// The core keeps something after it is over.
    Kept,
    /// A live attachment's lease is gone, at the server or at the daemon.
    LeaseLost,
    /// An attachment that is gone still holds a lease.
    Orphan,
    /// The server was not told in time that a lease was given back.
    NotReleased,
    /// A call failed although nothing was wrong.
    Failed,
    /// An event reports a lease that the store does not have.
    EventAhead,
    /// A Docker endpoint was told an address that its network does not have, or has reserved.
    Unfit,
    /// A link that was made for Docker is there without its endpoint, or is missing.
    Wired,
    /// Something is left after the end of everything.
    Residue,
    /// Callers never finish.
    Unsettled,
}

/// A broken rule.
#[derive(Clone, Debug)]
pub(crate) struct Breach {
    /// Which.
    pub(crate) rule: Rule,
    /// How.
    pub(crate) detail: String,
}

/// Returns a breach of a rule.
pub(crate) fn breach(rule: Rule, detail: impl Into<String>) -> Breach {
    Breach {
        rule,
        detail: detail.into(),
    }
}
