//! Lists of links: those of a container's namespace, and the ports of a bridge of the host.

use leasehold_core::link::{Link, LinkCause};
use leasehold_core::wire::Mac;

use super::{Expected, Worker};
use crate::net::netlink::Which;
use crate::net::port::ALIAS;

impl Worker {
    /// Lists the Ethernet addresses of all links in a container's namespace.
    pub(in crate::net) fn list_inside(&mut self, link: &Link) -> Result<Vec<Mac>, LinkCause> {
        let Link::InNetns { path, cookie, .. } = link else {
            return Ok(Vec::new());
        };
        self.visit(path, Expected::This(*cookie), |netlink, _| {
            let mut macs = Vec::new();
            let listed = netlink.each_link(|link| macs.extend(link.mac));
            listed.map_err(|error| error.at(Which::Name("any link"), "list links"))?;
            Ok(macs)
        })
    }

    /// Counts the frames that came in on a bridge's ports that lead to no container of leasehold and to no socket of its own, and
    /// these ports.
    pub(in crate::net) fn count_outside(&mut self, bridge: u32) -> Option<(u64, usize)> {
        let mut ports = Vec::new();
        let listed = self.here().ok()?.each_link(|link| {
            ports.extend(Some(link).filter(|link| link.master == bridge && link.alias != ALIAS));
        });
        listed.ok()?;
        let book = self.host.registrar.book();
        ports.retain(|link| {
            link.other_ns
                .is_none_or(|number| book.cookie(Some(number)).is_none())
        });
        Some((ports.iter().map(|link| link.received).sum(), ports.len()))
    }
}
