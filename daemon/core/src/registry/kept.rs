//! How much is kept, so that unbounded growth shows in a test and in a log.

use super::Registry;
use super::timers::Key;

/// How much there is of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The name of the kind.
    pub what: &'static str,
    /// How many there are.
    pub count: usize,
    /// Whether each binding may have one of these. All other kinds are empty when nothing is under way.
    pub of_bindings: bool,
}

impl Kept {
    /// Returns how much the core keeps of each kind whose size depends on what it was asked.
    pub(crate) fn all(core: &Registry) -> Vec<Self> {
        let of_bindings = |what, count| Self {
            what,
            count,
            of_bindings: true,
        };
        let under_way = |what, count| Self {
            what,
            count,
            of_bindings: false,
        };
        let [bindings, touched, sought] = core.tables.bindings.sizes();
        let (seats, interfaces) = core.tables.interfaces.sizes();
        let [holders, leaving, identities, claims, unsettled] =
            core.tables.bindings.holders().sizes();
        // Each has a call and a deadline. There are no more of them than a start named.
        let adoptions = core.adoptions.len();
        let is_above = |key: &Key| matches!(key, Key::Above(_));
        let deadlines = core.tables.timers.count(|key| !is_above(key));
        let others = adoptions + core.orphans.len().min(1) + core.seeking.awaited().min(1);
        let mut kept = vec![
            of_bindings("bindings", bindings),
            of_bindings("holders", holders),
            of_bindings("attachments", core.tables.bindings.attachments().count()),
            under_way("attachments that do something", core.slots.len()),
            of_bindings("bindings with a link of their own", seats),
            of_bindings("bindings being given back", leaving),
            of_bindings("identities being given back", identities),
            of_bindings("claims on addresses", claims),
            of_bindings("deadlines", deadlines.saturating_sub(others)),
            of_bindings(
                "deadlines of doors above",
                core.tables.timers.count(is_above),
            ),
            under_way("holders that came or went", unsettled),
            under_way("touched bindings", touched),
            under_way("calls", core.jobs.len().saturating_sub(adoptions)),
            under_way("leases that are given back", core.leavings.len()),
            under_way("name servers to publish", core.tables.out.resolvers.len()),
            under_way("LANs with permits", core.turns.permits.len()),
            under_way("LANs with extensions", core.turns.extensions.len()),
            under_way("links to look at", core.audit.waiting()),
            under_way("links being looked at", core.audit.under_way()),
            under_way("links that could not be looked at", core.audit.failed()),
            under_way("links that went and wait for their DEL", core.orphans.len()),
            of_bindings("interfaces that are sought", sought),
            of_bindings("interfaces that have not come yet", core.seeking.awaited()),
            under_way("searches for interfaces", core.seeking.under_way()),
            under_way("namespaces that are not seen", core.audit.sight.unseen()),
        ];
        kept.extend(
            core.tables
                .out
                .sizes()
                .into_iter()
                .chain(interfaces)
                .map(|(what, count)| under_way(what, count)),
        );
        kept
    }
}
