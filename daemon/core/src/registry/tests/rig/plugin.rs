//! What main plugins do after an ADD, and others by hand.

use super::*;
use crate::plan;

impl Rig {
    /// Puts the leased address on the interface, and the routes that it was given, as the main plugin does after an ADD.
    pub(in crate::registry::tests) fn configure(&mut self, address: &str) {
        let address: IpNet = address.parse().unwrap();
        self.interface.put(address);
        let told = self
            .store
            .all()
            .map(|record| record.lease.grant(&record.profile.policy).without_late());
        let told = told
            .filter(|grant| grant.has(address.addr()))
            .flat_map(|grant| plan::link_routes(&grant));
        // The kernel takes none for an interface that is down.
        for route in told.filter(|_| self.interface.up).collect::<Vec<_>>() {
            self.interface
                .step(&Step::AddRoute(route))
                .expect("its router is on the link");
        }
        self.input(Input::Kernel(KernelMessage::AddressAdded(
            (Cookie(1), 2),
            address.addr(),
        )));
    }

    /// The main plugins of all containers put the leased addresses on.
    pub(in crate::registry::tests) fn plug_all(&mut self) {
        let leased = self
            .store
            .all()
            .filter_map(|record| Some((record.link.in_netns()?, record.lease.address)));
        for ((cookie, ifindex), address) in leased.collect::<Vec<_>>() {
            self.interface.put(address.into());
            let address = address.addr().into();
            self.input(Input::Kernel(KernelMessage::AddressAdded(
                (cookie, ifindex),
                address,
            )));
        }
    }

    /// Adds attachment `a`, whose main plugin puts the address on at once.
    pub(in crate::registry::tests) fn bind(&mut self) {
        self.add("a", 1, "a");
        self.configure(A);
    }

    /// Adds attachment `a`, whose main plugin puts the address on when nobody listens for conflicts any more.
    pub(in crate::registry::tests) fn bind_slowly(&mut self) {
        self.add("a", 1, "a");
        self.run_until(1009.0);
        self.configure(A);
    }

    /// Takes an address off the interface, by hand.
    pub(in crate::registry::tests) fn take_off(&mut self, address: &str) {
        let address: IpNet = address.parse().unwrap();
        self.interface
            .step(&Step::RemoveAddress(address))
            .expect("it has none of IPv6");
        self.input(Input::Kernel(KernelMessage::AddressGone(
            (Cookie(1), 2),
            address.addr(),
        )));
    }
}
