//! What servers would have an ADD take that is another's: how often it is asked for something else, and how soon.
//!
//! A server that lost its leases offers one address after the other that is in use. Each holder renews at once, so that the
//! next DISCOVER is offered another. One that goes on offering what it was told of is not to be asked for ever.

use std::net::Ipv4Addr;
use std::ops::ControlFlow::{self, Continue};
use std::time::Duration;

use super::{Abort, Acquire};
use crate::binding::common::tenancy::decline_foreign;
use crate::binding::{Common, Cx, Life, Report};
use crate::conflict::lans::MAX_CONFLICTS;
use crate::dhcpv4::Output;
use crate::effect::Failure;
use crate::identity::Attachment;
use crate::wire::Mac;

/// So many offers are refused, as many as are declined where others use the addresses; the ADD fails at the last.
const MOST: u32 = MAX_CONFLICTS;

/// So many are of one address, where its holder has the same Ethernet address. After the first the server has heard of that:
/// what it offers then, it offers because it knows clients by nothing else.
const MOST_SHARED: u32 = 2;

/// The pause before the next DISCOVER: so long, doubled for each offer of the same address.
const PAUSE: Duration = Duration::from_millis(250);

const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// What was refused so far.
#[derive(Debug, Default)]
pub(crate) struct Again {
    count: u32,
    last: Option<Box<Refused>>,
}

/// An address that another attachment has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Who would give it.
    pub(crate) server: Ipv4Addr,
    pub(crate) address: Ipv4Addr,
    pub(crate) holder: Attachment,
    /// The Ethernet address, where both have the same.
    pub(crate) shared: Option<Mac>,
    /// How often it was in a row.
    pub(crate) times: u32,
}

impl Refused {
    /// Returns why an ADD failed that got nothing else.
    pub(crate) fn failure(&self) -> Failure {
        let Self { server, address, holder, shared, times: _ } = self.clone();
        Failure::AddressHeld { server: Some(server), address, holder, shared }
    }
}

impl Again {
    /// Records that an address is refused. Returns after what pause DISCOVER leaves again; `None`: that was enough.
    pub(crate) fn refuse(&mut self, refused: Refused) -> Option<Duration> {
        let before = self.last.as_ref().filter(|last| last.address == refused.address).map_or(0, |last| last.times);
        let (times, most) = (before + 1, if refused.shared.is_some() { MOST_SHARED } else { MOST });
        self.count += 1;
        self.last = Some(Box::new(Refused { times, ..refused }));
        let pause = (PAUSE * (1 << before.min(8))).min(LONGEST_PAUSE);
        (self.count < MOST && times < most).then_some(pause)
    }

    /// Returns why the ADD failed, if the last thing that it was offered was refused.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.last.as_ref().map(|last| last.failure())
    }
}

impl Acquire {
    /// Refuses what a server would have the ADD take that is another's. Returns whether the ADD has failed by that.
    pub(super) fn refuses(
        &mut self,
        common: &mut Common,
        output: &mut Output,
        cx: &mut Cx<'_>,
    ) -> ControlFlow<Life, bool> {
        let Some(taken) = common.taken(&self.client, output, None, cx) else { return Continue(false) };
        common.tell_taken(&taken, cx);
        let (is_foreign, shares) = (common.is_foreign(&taken), taken.tenant.chaddr == common.identity.chaddr);
        let refused = Refused {
            server: taken.lease.server,
            address: taken.lease.ip(),
            holder: (*taken.tenant.attachment).clone(),
            shared: shares.then_some(common.identity.chaddr),
            times: 0,
        };
        let no_other_will_do = self.insists.is_some() || taken.granted && shares;
        match self.again.refuse(refused.clone()).filter(|_| !no_other_will_do) {
            Some(_) if is_foreign => decline_foreign(&mut self.client, &taken, output, cx.now.boot),
            Some(pause) => {
                output.replace(self.client.refuse(cx.now.boot, pause));
                cx.out.report(common.id, Report::WantsRenewed(taken.tenant.id));
            }
            None => {
                if !taken.granted {
                    self.client.refuse(cx.now.boot, Duration::ZERO);
                }
                self.abort(common, Abort::Because(refused.failure()), cx)?;
                return Continue(true);
            }
        }
        Continue(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(last: u8, shared: bool) -> Refused {
        let holder = Attachment::cni("lan", "a", "eth0");
        let shared = shared.then_some(Mac([2, 0, 0, 0, 0, 9]));
        let [server, address] = [1, last].map(|last| Ipv4Addr::new(192, 0, 2, last));
        Refused { server, address, holder, shared, times: 0 }
    }

    #[test]
    fn offers_are_refused_ten_times_after_pauses_that_grow_for_one_address() {
        let mut again = Again::default();
        let pauses: Vec<_> = (0..10).map(|_| again.refuse(refused(50, false))).collect();
        let millis = [250, 500, 1000, 2000, 4000, 4000, 4000, 4000, 4000].map(|ms| Some(Duration::from_millis(ms)));
        assert_eq!((&pauses[..9], pauses[9]), (&millis[..], None));
        let mut again = Again::default();
        let pauses: Vec<_> = (0..10).map(|n| again.refuse(refused(n, false))).collect();
        assert_eq!((&pauses[..9], pauses[9]), (&[Some(PAUSE); 9][..], None), "of each holder the server hears");
    }

    #[test]
    fn one_of_a_holder_with_the_same_ethernet_address_is_refused_twice() {
        let mut again = Again::default();
        assert_eq!([(); 2].map(|()| again.refuse(refused(50, true))), [Some(PAUSE), None]);
    }
}
