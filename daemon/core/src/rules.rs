//! The core's rules for rare events: each has a name, a reason, and a property of the simulation that fails without it.
//!
//! `cut` says whether a rule is cut out, where the rule decides. Only tests can cut one out: the simulation cuts each in turn
//! and sees its property fail. What nothing misses is no rule, and goes.

#[cfg(any(test, feature = "testbed"))]
pub use self::testing::{RULES, Stated, cut_out};

#[cfg(any(test, feature = "testbed"))]
pub(crate) use self::testing::cut;

/// Lists the rules. Each line says why, then the rule's name, the property that fails without it, and the seed from which on that
/// is seen soon.
macro_rules! rules {
    ($($(#[doc = $why:literal])+ $rule:ident: $property:literal, $seed:literal;)+) => {
        /// A rule for a rare event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule {
            $($(#[doc = $why])+ $rule,)+
        }

        #[cfg(any(test, feature = "testbed"))]
        mod testing {
            use std::cell::Cell;

            use super::Rule;

            /// A rule, and what stands for it.
            #[derive(Clone, Copy, Debug)]
            pub struct Stated {
                /// The rule.
                pub rule: Rule,
                /// What it does, and why.
                pub why: &'static str,
                /// The property of the simulation that fails without it.
                pub property: &'static str,
                /// The seed from which on that is seen soon.
                pub seed: u64,
            }

            /// All rules.
            pub const RULES: &[Stated] = &[$(Stated {
                rule: Rule::$rule,
                why: concat!($($why),+),
                property: $property,
                seed: $seed,
            }),+];

            thread_local! {
                static CUT: Cell<Option<Rule>> = const { Cell::new(None) };
            }

            /// Cuts a rule out in this thread from now on, or none.
            pub fn cut_out(rule: Option<Rule>) {
                CUT.set(rule);
            }

            /// Returns whether a rule is cut out.
            pub(crate) fn cut(rule: Rule) -> bool {
                CUT.get() == Some(rule)
            }
        }
    };
}

rules! {
    /// Before a RELEASE the LAN is asked for the address if its identity can return, or an earlier boot had it: another host's
    /// container may use it by now.
    AskBeforeRelease: "ReleaseElsewhere", 150;
    /// A station that claims an address is asked for one that nobody can have: who answers for that too proves nothing.
    ProxyControl: "Declined", 22;
    /// A LAN gets ten DECLINEs in ten minutes: a station that claims every address would empty its pool.
    DeclineLimit: "Pace", 31;
    /// An offer of an address that another container here has is refused.
    HeldOffer: "Twice", 11;
    /// An offer that comes while another is requested is kept: the first server may not acknowledge.
    SpareOffer: "Failed", 100;
    /// A NAK that comes through a relay waits for an ACK: of two relays on one wire, the server refuses what one forwards.
    RelayedNak: "Failed", 51;
    /// A NAK of another server than the lease's waits for the lease's own: a stray server often answers first.
    ForeignNak: "Rogue", 47;
    /// A lease that was extended early, in vain, is left alone until T1.
    EarlyInVain: "IdleSockets", 602;
    /// T1 and T2 come although no server answers the confirmation of a lease: its relay may be gone, and RENEW needs none.
    RenewUnconfirmed: "Unrenewed", 2000000000;
    /// After carrier was away for long the lease is confirmed: the link may be on another network.
    CarrierAway: "Unconfirmed", 709;
    /// After the wall clock was set forward leases are confirmed: the boot clock stands still while a virtual machine is paused.
    WallForward: "Unconfirmed", 388;
    /// The watch for other users of an address goes on at the interface onto which its lease moves.
    WatchMoved: "Squatted", 205;
    /// The watch goes on after its link was down: the plugin `tuning` sets it down for a moment.
    WatchReopened: "Squatted", 918;
    /// Each try of an address has all its probes: nobody heard the answers to those of a try that a NAK ended.
    WholeProbes: "Squatted", 10342410;
    /// With each extension others are asked whether they have the address: somebody may have taken it since.
    WatchExtended: "Squatted", 3000000000;
    /// An address that a runtime puts on is taken off if its lease has another by then.
    OutdatedAddress: "Interface", 2781;
    /// Where nobody answers the LAN's link, a macvlan beside it asks: the link does not reach a server in a macvlan on it.
    Beside: "Failed", 1416;
    /// After a reboot a lease waits ten minutes for its container.
    RebootGrace: "Grace", 297;
    /// A server that offers a container's address to another has forgotten its lease: the container's is extended at once.
    RenewHolder: "Unrenewed", 11;
    /// The RELEASEs of a LAN leave one after the other, after the first: a server that cannot take one in loses it.
    ReleaseTurns: "Pace", 99;
    /// An endpoint of Docker whose lease ended before this daemon knew it is forgotten.
    EndpointWithoutLease: "Residue", 1210;
    /// An ADD that comes again for a lease without its address gets late routes again: a runtime that repeats it makes the interface
    /// anew.
    RouteAgain: "Failed", 9901191;
    /// What no caller waits for has permits of its own: a container that lost its lease would wait behind ADDs that are repeated
    /// without end.
    BackgroundShare: "Bare", 4000000004;
    /// An ADD that insists on an address ends the grace of whoever keeps it: its server gives it to nobody else meanwhile.
    Unblock: "Failed", 4000000005;
    /// An ADD waits until its Ethernet address is free: the kernel takes a while to remove the link of a namespace that has died.
    MacTaken: "Failed", 4000000005;
    /// Before a RELEASE, an answer from the container's own link, which is gone, counts as nobody's: the kernel may be removing it.
    LinkGoing: "NotReleased", 4000000001;
    /// After the wall clock was set leases are recorded again: after a reboot it alone shows how old they are.
    WallSet: "LeaseLost", 4000000027;
    /// An address that a main plugin puts on after its lease was lost is taken off: another station may use it.
    AddressLate: "Interface", 4000000002;
    /// The RELEASE of an address that its owner has elsewhere, such as in a virtual machine, names it in no ARP question: that would
    /// mislead others.
    WithoutArp: "Misleads", 5;
    /// An ADD shows that an earlier container is gone only if the namespaces of both are in one directory: this daemon may see one
    /// engine's directory and not another's.
    Vouches: "ReleaseUnderHolder", 4000000199;
}

/// Returns whether a rule is cut out: only tests do that.
#[cfg(not(any(test, feature = "testbed")))]
pub(crate) const fn cut(_: Rule) -> bool {
    false
}
