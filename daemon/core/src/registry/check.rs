//! CHECK: does the attachment still hold what its ADD was given, and is that on its interface?
//!
//! It looks when the daemon itself changes nothing there: between an extended lease and the interface that follows it, a look
//! shows neither state. It does not wait for what failed, for room in the store, or while another call waits behind it. On a
//! host link there is nothing to look for.
//!
//! Only routes that the daemon has put on count: the main plugin's own CHECK knows the others. An address that never appeared
//! on the interface is not a fault: its caller only asked for an address, and has it elsewhere.

use ipnet::IpNet;

use super::Registry;
use super::operation::{Check, Operation};
use crate::binding::Binding;
use crate::effect::{Answer, Failure, RequestId};
use crate::identity::Attachment;
use crate::interface::Seat;
use crate::link::{LinkCause, LinkView, Target};
use crate::outbox::{Look, Waiter};
use crate::time::Now;

impl Registry {
    pub(super) fn begin_check(
        &mut self,
        now: Now,
        attachment: &Attachment,
        id: RequestId,
        mut expected: Vec<IpNet>,
    ) {
        let binding = self
            .holder_of(attachment)
            .filter(|binding| binding.is_live());
        if binding.is_some_and(|binding| self.is_worth_waiting(now, attachment, binding)) {
            self.interfaces.await_work(attachment);
            return self.begin_looking(
                attachment,
                Check {
                    request: id,
                    expected,
                    look: None,
                },
            );
        }
        let lease = binding.and_then(|binding| binding.lease(now.boot));
        let (Some(binding), Some(lease)) = (binding, lease) else {
            self.reply(
                now,
                id,
                Answer::Failed(Failure::Unknown(attachment.clone())),
            );
            return self.end(now, attachment);
        };
        let address = lease.address;
        // Nothing is known about the other family.
        expected.retain(|expected| matches!(expected, IpNet::V4(_)));
        if !expected.is_empty() && !expected.contains(&address.into()) {
            let expected = expected
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ");
            let failure = Failure::Differs {
                attachment: attachment.clone(),
                held: address,
                expected,
            };
            self.reply(now, id, Answer::Failed(failure));
            return self.end(now, attachment);
        }
        if binding.is_on_host() {
            self.reply(now, id, Answer::Checked);
            return self.end(now, attachment);
        }
        let target = Target::Known(binding.link.clone());
        let op = self.out.inspect_with(
            Waiter::Operation(attachment.clone(), Look::Check),
            target,
            true,
        );
        self.begin_looking(
            attachment,
            Check {
                request: id,
                expected,
                look: Some((op, address)),
            },
        );
    }

    fn begin_looking(&mut self, attachment: &Attachment, check: Check) {
        self.begin(attachment, Operation::Checking(Box::new(check)));
    }

    pub(super) fn checked(
        &mut self,
        now: Now,
        attachment: &Attachment,
        view: Result<LinkView, LinkCause>,
    ) {
        let Some(Operation::Checking(check)) = self.operation(attachment) else {
            return;
        };
        let Check {
            request,
            expected,
            look,
        } = &mut **check;
        let id = *request;
        let expected = std::mem::take(expected);
        let sought = look.map(|(_, address)| address);
        let binding = self.holder_of(attachment);
        let lease = binding.and_then(|binding| binding.lease(now.boot));
        let answer = match (binding, lease, view) {
            // It changed since the look was asked for, or is changing.
            (Some(binding), lease, Ok(_))
                if self.is_worth_waiting(now, attachment, binding)
                    || lease.is_some_and(|lease| Some(lease.address) != sought) =>
            {
                return self.begin_check(now, attachment, id, expected);
            }
            (Some(binding), Some(lease), Ok(view))
                if view.addresses.contains(&lease.address.into()) =>
            {
                match binding.lacks_route(&view, &self.interfaces) {
                    Some(route) => Answer::Failed(Failure::NoRoute {
                        attachment: attachment.clone(),
                        route: Box::new(route),
                        ifname: view.ifname,
                    }),
                    None => Answer::Checked,
                }
            }
            (Some(binding), Some(_), Ok(_))
                if self
                    .interfaces
                    .seat(&binding.link, binding.id)
                    .is_some_and(Seat::never_came) =>
            {
                Answer::Checked
            }
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
        };
        self.reply(now, id, answer);
        self.end(now, attachment);
    }

    /// Resumes the CHECKs whose interface is no longer being changed. Returns whether there were any.
    pub(super) fn resume_checks(&mut self, now: Now) -> bool {
        let waiting = self.interfaces.take_checks();
        let before = waiting.len();
        for attachment in waiting {
            let Some(Operation::Checking(check)) = self.operation(&attachment) else {
                continue;
            };
            if check.look.is_none() {
                let id = check.request;
                let expected = std::mem::take(&mut check.expected);
                self.begin_check(now, &attachment, id, expected);
            }
        }
        self.interfaces.checks() < before
    }

    /// Returns whether a CHECK waits for what the binding does at its interface. With another call behind it, it does not wait.
    fn is_worth_waiting(&self, now: Now, attachment: &Attachment, binding: &Binding) -> bool {
        let is_last = self
            .slots
            .get(attachment)
            .is_none_or(|slot| slot.waiting.is_empty());
        is_last && binding.is_changing(&self.interfaces, now.boot)
    }
}
