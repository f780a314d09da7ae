//! A CHECK asks whether the attachment still holds what its ADD was given, and whether that is on its interface.
//!
//! While the daemon itself changes the interface, a look shows neither the earlier lease nor the extended one: the caller is asked to
//! try again. What failed, or waits for room in the store, is no such change. On a host link there is nothing to look for.
//!
//! Only routes that the daemon has put on count: the main plugin's own CHECK knows the others. An address that never appeared
//! on the interface is not a fault: its caller only asked for an address, and has it elsewhere.

use ipnet::{IpNet, Ipv4Net};

use super::tables::Tables;
use crate::binding::Binding;
use crate::effect::{Answer, Failure, OpId, RequestId};
use crate::identity::Attachment;
use crate::interface::Seat;
use crate::link::{LinkCause, LinkView, Target};
use crate::outbox::Waiter;

/// A CHECK under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Check {
    pub(super) request: RequestId,
    /// The look at the interface.
    pub(super) look: OpId,
    /// The address to look for.
    address: Ipv4Net,
}

impl Check {
    /// Begins a CHECK.
    ///
    /// # Errors
    /// It is answered at once.
    pub(super) fn begin(
        tables: &mut Tables,
        attachment: &Attachment,
        request: RequestId,
        mut expected: Vec<IpNet>,
    ) -> Result<Self, Box<Answer>> {
        let now = tables.now;
        let fails = |failure| Err(Box::new(Answer::Failed(failure)));
        let binding = tables.bindings.held_by(attachment);
        let binding = binding.filter(|binding| binding.is_live());
        if binding.is_some_and(|it| it.is_changing(&tables.interfaces, now.boot)) {
            return fails(Failure::Changing(attachment.clone()));
        }
        let lease = binding.and_then(|binding| binding.lease(now.boot));
        let (Some(binding), Some(lease)) = (binding, lease) else {
            return fails(Failure::Unknown(attachment.clone()));
        };
        let address = lease.address;
        // Nothing is known about the other family.
        expected.retain(|expected| matches!(expected, IpNet::V4(_)));
        if !expected.is_empty() && !expected.contains(&address.into()) {
            let expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
            return fails(Failure::Differs {
                attachment: attachment.clone(),
                held: address,
                expected: expected.join(", "),
            });
        }
        if binding.is_on_host() {
            return Err(Box::new(Answer::Checked));
        }
        let target = Target::Known(binding.link.clone());
        let waiter = Waiter::Operation(attachment.clone());
        let look = tables.out.inspect_with(waiter, target, true);
        Ok(Self {
            request,
            look,
            address,
        })
    }

    /// Returns the answer, by what is seen at the interface.
    pub(super) fn seen(
        self,
        tables: &Tables,
        attachment: &Attachment,
        view: Result<LinkView, LinkCause>,
    ) -> Answer {
        let now = tables.now;
        let binding = tables.bindings.held_by(attachment);
        let lease = binding.and_then(|binding| binding.lease(now.boot));
        let never_came = |binding: &Binding| {
            let seat = tables.interfaces.seat(&binding.link, binding.id);
            seat.is_some_and(Seat::never_came)
        };
        match (binding, lease, view) {
            // It changed since the look was asked for, or is changing.
            (Some(binding), lease, Ok(_))
                if binding.is_changing(&tables.interfaces, now.boot)
                    || lease.is_some_and(|lease| lease.address != self.address) =>
            {
                Answer::Failed(Failure::Changing(attachment.clone()))
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
        }
    }
}
