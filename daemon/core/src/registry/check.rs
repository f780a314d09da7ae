//! A CHECK asks whether the attachment still holds what its ADD was given, and whether that is on its interface.
//!
//! It looks when the daemon itself changes nothing there: between an extended lease and the interface that follows it, a look
//! shows neither state. It does not wait for what failed, for room in the store, or while another call waits behind it. On a
//! host link there is nothing to look for.
//!
//! Only routes that the daemon has put on count: the main plugin's own CHECK knows the others. An address that never appeared
//! on the interface is not a fault: its caller only asked for an address, and has it elsewhere.

use ipnet::{IpNet, Ipv4Net};

use super::tables::Tables;
use crate::binding::Binding;
use crate::effect::{Answer, Failure, OpId, RequestId};
use crate::identity::Attachment;
use crate::interface::Seat;
use crate::job::{LIMIT, Next};
use crate::link::{LinkCause, LinkView, Target};
use crate::outbox::Waiter;
use crate::time::Now;

/// A CHECK under way.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) request: RequestId,
    /// The addresses that the caller expects; empty: it did not say.
    expected: Vec<IpNet>,
    /// The look at the interface, and the address to look for; `None`: it waits for the daemon to finish there.
    look: Option<(OpId, Ipv4Net)>,
}

impl Check {
    /// Begins a CHECK, or answers it. If it is the last call of its attachment that waits, it waits for the daemon to finish.
    pub(super) fn begin(
        tables: &mut Tables,
        now: Now,
        attachment: &Attachment,
        request: RequestId,
        mut expected: Vec<IpNet>,
        is_last: bool,
    ) -> Next<Self> {
        let binding = tables.bindings.held_by(attachment);
        let binding = binding.filter(|binding| binding.is_live());
        if binding.is_some_and(|it| is_last && it.is_changing(&tables.interfaces, now.boot)) {
            tables.interfaces.await_work(attachment);
            return Next::Waits(Self {
                request,
                expected,
                look: None,
            });
        }
        let lease = binding.and_then(|binding| binding.lease(now.boot));
        let (Some(binding), Some(lease)) = (binding, lease) else {
            return Next::Answers(Answer::Failed(Failure::Unknown(attachment.clone())));
        };
        let address = lease.address;
        // Nothing is known about the other family.
        expected.retain(|expected| matches!(expected, IpNet::V4(_)));
        if !expected.is_empty() && !expected.contains(&address.into()) {
            let expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
            return Next::Answers(Answer::Failed(Failure::Differs {
                attachment: attachment.clone(),
                held: address,
                expected: expected.join(", "),
            }));
        }
        if binding.is_on_host() {
            return Next::Answers(Answer::Checked);
        }
        let target = Target::Known(binding.link.clone());
        let waiter = Waiter::Operation(attachment.clone());
        let op = tables.out.inspect_with(waiter, target, true);
        Next::Waits(Self {
            request,
            expected,
            look: Some((op, address)),
        })
    }

    /// Begins anew.
    pub(super) fn again(
        &mut self,
        tables: &mut Tables,
        now: Now,
        attachment: &Attachment,
        is_last: bool,
    ) -> Next<Self> {
        let expected = std::mem::take(&mut self.expected);
        Self::begin(tables, now, attachment, self.request, expected, is_last)
    }

    /// Returns whether it waits for the daemon to finish at the interface.
    pub(super) fn waits(&self) -> bool {
        self.look.is_none()
    }

    /// Answers it by what is seen at the interface, or looks again.
    pub(super) fn seen(
        &mut self,
        tables: &mut Tables,
        now: Now,
        attachment: &Attachment,
        view: Result<LinkView, LinkCause>,
        is_last: bool,
    ) -> Next<Self> {
        let sought = self.look.map(|(_, address)| address);
        let binding = tables.bindings.held_by(attachment);
        let lease = binding.and_then(|binding| binding.lease(now.boot));
        let never_came = |binding: &Binding| {
            let seat = tables.interfaces.seat(&binding.link, binding.id);
            seat.is_some_and(Seat::never_came)
        };
        Next::Answers(match (binding, lease, view) {
            // It changed since the look was asked for, or is changing.
            (Some(binding), lease, Ok(_))
                if is_last && binding.is_changing(&tables.interfaces, now.boot)
                    || lease.is_some_and(|lease| Some(lease.address) != sought) =>
            {
                return self.again(tables, now, attachment, is_last);
            }
            (Some(binding), Some(lease), Ok(view))
                if view.addresses.contains(&lease.address.into()) =>
            {
                match binding.lacks_route(&view, &tables.interfaces) {
                    Some(route) => Answer::Failed(Failure::NoRoute {
                        attachment: attachment.clone(),
                        route: Box::new(route),
                        ifname: view.ifname,
                    }),
                    None => Answer::Checked,
                }
            }
            (Some(binding), Some(_), Ok(_)) if never_came(binding) => Answer::Checked,
            (Some(_), Some(lease), Ok(view)) => Answer::Failed(Failure::NotOnLink {
                attachment: attachment.clone(),
                address: lease.address,
                ifname: view.ifname,
            }),
            (Some(binding), _, Err(cause)) => {
                let target = Target::Known(binding.link.clone()).to_string();
                Answer::Failed(Failure::Link { target, cause })
            }
            (Some(_), None, Ok(_)) | (None, ..) => {
                Answer::Failed(Failure::Unknown(attachment.clone()))
            }
        })
    }

    pub(super) fn op(&self) -> Option<OpId> {
        self.look.map(|(op, _)| op)
    }

    /// Returns why there is no answer when time is up.
    pub(super) fn timed_out(&self) -> Failure {
        let waiting_for = match self.look {
            Some(_) => "a look at the interface",
            None => "a change of the interface to end",
        };
        Failure::TimedOut(waiting_for, LIMIT)
    }
}
