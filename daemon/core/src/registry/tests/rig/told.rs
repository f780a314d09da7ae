//! What callers were told, servers were sent and the store was given; and what often happens at once.

use super::*;

/// Fails unless a call failed like this.
macro_rules! assert_fails {
    ($rig:expr, $call:expr, $failure:pat) => {
        let failure = $rig.failure($call);
        assert!(matches!(failure, $failure), "{failure:?}");
    };
}
pub(in crate::registry::tests) use assert_fails;

/// Fails unless a text has this part.
#[track_caller]
pub(in crate::registry::tests) fn assert_says(said: &(impl ToString + ?Sized), part: &str) {
    let said = said.to_string();
    assert!(said.contains(part), "{said}");
}

/// Returns the LAN of a link of the host.
pub(in crate::registry::tests) fn lan_on(parent: &str, vlan: u16) -> Lan {
    let parent = parent.into();
    Lan::Link { parent, vlan }
}

impl Rig {
    /// Returns the failure that a call was answered with.
    #[track_caller]
    pub(in crate::registry::tests) fn failure(&self, call: u64) -> &Failure {
        match &self.answers.get(&call) {
            Some(Answer::Failed(failure)) => failure,
            answer => panic!("{answer:?}"),
        }
    }

    /// Returns the address that an ADD has got.
    #[track_caller]
    pub(in crate::registry::tests) fn leased(&self, add: u64) -> Ipv4Addr {
        match self.answers.get(&add) {
            Some(Answer::Leased { tenures }) => tenures[0].v4().expect("of IPv4").addr(),
            answer => panic!("{answer:?}"),
        }
    }

    pub(in crate::registry::tests) fn has_lease(&self, add: u64) -> bool {
        matches!(self.answers.get(&add), Some(Answer::Leased { .. }))
    }

    /// Returns the kinds of the messages that were sent.
    pub(in crate::registry::tests) fn kinds(&self) -> Vec<u8> {
        self.sent.iter().map(|(kind, _)| *kind).collect()
    }

    /// Returns how often the LAN was asked for an address, as if from another one.
    pub(in crate::registry::tests) fn count(&self, arp: (Ipv4Addr, Ipv4Addr)) -> usize {
        self.asked.iter().filter(|asked| **asked == arp).count()
    }

    /// Returns the kinds of the events that are stored.
    pub(in crate::registry::tests) fn events(&self) -> Vec<EventKind> {
        self.store.events.iter().map(|event| event.kind).collect()
    }

    /// Returns the causes of the stored events of a kind.
    pub(in crate::registry::tests) fn causes(&self, kind: EventKind) -> Vec<&str> {
        let events = self.store.events.iter().filter(|event| event.kind == kind);
        events.map(|event| event.cause.as_str()).collect()
    }

    /// Nothing is left of any lease: no row, no record, no socket.
    #[track_caller]
    pub(in crate::registry::tests) fn assert_nothing_is_left(&mut self) {
        assert_eq!(self.rows(), []);
        assert!(self.store.records().is_empty() && self.open.is_empty());
    }

    /// The store writes again, and has written all that waits.
    pub(in crate::registry::tests) fn disk_recovers(&mut self) {
        self.disk = Disk::Good;
        self.flush();
    }

    /// Ends the look that was asked for first.
    pub(in crate::registry::tests) fn end_look(&mut self) {
        let (op, outcome) = self.looks.pop_front().expect("a look");
        self.end(op, outcome);
    }

    /// Ends the search that was asked for first.
    pub(in crate::registry::tests) fn end_seek(&mut self) {
        let (op, outcome) = self.held_seeks.pop_front().expect("a search");
        self.end(op, outcome);
    }

    /// A namespace dies with all that is in it.
    pub(in crate::registry::tests) fn dies(&mut self, netns: u64) {
        self.live.remove(&netns);
        self.kernel(KernelMessage::NetnsDied(Cookie(netns)));
    }

    /// A station answers the first container's question for an address.
    pub(in crate::registry::tests) fn claim(&mut self, by: Mac, address: Ipv4Addr) {
        let own = Mac([2, 0, 0, 0, 1, 1]);
        self.hear(&Arp {
            op: ArpOp::Reply,
            target_mac: own,
            destination_mac: own,
            ..Arp::request(by, address, ANY)
        });
    }

    /// CHECK of the first attachment with these addresses.
    pub(in crate::registry::tests) fn check(&mut self, expected: &[&str]) -> u64 {
        let expected = expected.iter().map(|address| address.parse().unwrap());
        self.request(Call::Check {
            attachment: attachment("a"),
            expected: expected.collect(),
        })
    }

    /// Returns the first container, which the next daemon finds running with .50 in its first namespace.
    pub(in crate::registry::tests) fn running(&self) -> Adoptee {
        self.running_as(self.call("a", 1, "a"))
    }

    /// Returns a container that would have called like this, and runs with .50.
    pub(in crate::registry::tests) fn running_as(&self, add: Box<Add>) -> Adoptee {
        let address = A.parse().unwrap();
        Adoptee {
            add,
            address,
            mac: None,
        }
    }

    /// A daemon without records starts, and finds a container running.
    pub(in crate::registry::tests) fn adopts(&mut self, adoptee: Adoptee) {
        self.reg = Core::new(Config::default(), 8);
        self.start("b", vec![], vec![adoptee]);
    }
}
