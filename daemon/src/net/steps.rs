//! Changing a link, step by step: set up, MTU, addresses, routes.
//!
//! Every step may be taken twice. What is already there, or already gone, counts as done: a daemon that took a step and then died
//! takes it again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use leasehold_core::link::{Cookie, LinkCause, LinkRoute, LinkView, Step};
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NlasIterator};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::libc;

use super::alias::Mark;
use super::netlink::{Netlink, NetlinkError, Which, attribute_in, link_message};

/// The number of the main routing table.
const MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;

/// The most routes over a link that are looked at: a namespace's owner may add any number.
const MAX_ROUTES: usize = 1024;

impl Netlink {
    /// Takes `steps` in order, and returns what the link then looks like. `goes_on` is told how many steps were taken, before
    /// each and after the last; once it returns false, nobody waits for the rest, and they are not taken.
    pub(super) fn apply(
        &mut self,
        which: Which<'_>,
        cookie: Cookie,
        steps: &[Step],
        mut goes_on: impl FnMut(usize) -> bool,
    ) -> Result<LinkView, LinkCause> {
        // A link that is not Ethernet is left as it is. A link named by its index was looked at before.
        let (index, was_down) = match which {
            Which::Index(index) => (index, false),
            Which::Name(_) if steps.is_empty() => return self.view(which, cookie),
            Which::Name(_) => {
                let link = self.ethernet(which)?.0;
                (link.index, !(link.is_up() && link.has_carrier()))
            }
            Which::Station(name, mac) => (self.station(name, mac)?, false),
        };
        for (taken, step) in steps.iter().enumerate() {
            if !goes_on(taken) {
                return Err(LinkCause::TimedOut);
            }
            self.take(index, step)?;
        }
        goes_on(steps.len());
        Ok(LinkView {
            was_down,
            ..self.view(Which::Index(index), cookie)?
        })
    }

    fn take(&mut self, index: u32, step: &Step) -> Result<(), LinkCause> {
        let done = match step {
            Step::Up => self.set_up(index),
            Step::Mtu(mtu) => self.set(index, LinkAttribute::Mtu(*mtu)),
            Step::AddAddress(address) => self.add_address(index, *address),
            Step::RemoveAddress(address) => self.remove_address(index, *address),
            Step::AddRoute(route) => self.add_route(index, route),
            Step::RemoveRoute(route) => self.remove_route(index, route),
            Step::ReplaceDefault { from, to } => self.replace_default(index, *from, *to),
            Step::Abandon => return self.abandon(index),
        };
        done.map_err(|error| match (step, error) {
            // The link is a macvlan, and another on the same parent has its Ethernet address.
            (Step::Up, error) if error.is(libc::EADDRINUSE) => self.mac_taken(index),
            (_, error) => error.at(Which::Index(index), step.doing()),
        })
    }

    /// Deletes a link that a daemon made; sets any other down, and gives it a name that no runtime gives.
    fn abandon(&mut self, index: u32) -> Result<(), LinkCause> {
        let link = self.link(Which::Index(index))?;
        if Mark::of_any(&link.alias).is_some() {
            return self.delete(index);
        }
        let done = self
            .set_flags(index, LinkFlags::empty())
            .and_then(|()| self.set(index, LinkAttribute::IfName(format!("left{index}"))));
        done.map_err(|error| error.at(Which::Index(index), Step::Abandon.doing()))
    }

    fn mac_taken(&mut self, index: u32) -> LinkCause {
        match self.ethernet(Which::Index(index)) {
            Ok((_, mac)) => LinkCause::MacTaken(mac),
            Err(cause) => cause,
        }
    }

    /// Sets a link administratively up.
    pub(super) fn set_up(&mut self, index: u32) -> Result<(), NetlinkError> {
        self.set_flags(index, LinkFlags::Up)
    }

    fn set_flags(&mut self, index: u32, flags: LinkFlags) -> Result<(), NetlinkError> {
        let mut request = link_message(index, []);
        request.header.flags = flags;
        request.header.change_mask = LinkFlags::Up;
        self.change(RouteNetlinkMessage::SetLink(request), 0)
    }

    /// Sets one attribute of a link.
    pub(super) fn set(&mut self, index: u32, attribute: LinkAttribute) -> Result<(), NetlinkError> {
        let request = link_message(index, [attribute]);
        self.change(RouteNetlinkMessage::SetLink(request), 0)
    }

    fn add_address(&mut self, index: u32, address: IpNet) -> Result<(), NetlinkError> {
        let mut request = address_message(index, address);
        // A subnet of one or two addresses has no broadcast address (RFC 3021 §2.2), nor has one of IPv6.
        if let IpNet::V4(address) = address
            && address.prefix_len() < 31
        {
            request
                .attributes
                .push(AddressAttribute::Broadcast(address.broadcast()));
        }
        // Without NLM_F_REPLACE an existing address is left as it is: somebody may want its flags and lifetimes.
        unless(
            libc::EEXIST,
            self.change(RouteNetlinkMessage::NewAddress(request), NLM_F_CREATE),
        )
    }

    fn remove_address(&mut self, index: u32, address: IpNet) -> Result<(), NetlinkError> {
        let request = address_message(index, address);
        unless(
            libc::EADDRNOTAVAIL,
            self.change(RouteNetlinkMessage::DelAddress(request), 0),
        )
    }

    /// Adds a route, unless some program has already added it. A route without the wanted MTU or MSS is replaced: to the kernel
    /// it is the same route.
    ///
    /// NLM_F_APPEND puts it after the routes with the same destination and metric, over any link. The default is to refuse, and
    /// NLM_F_REPLACE would remove one of those.
    fn add_route(&mut self, index: u32, route: &LinkRoute) -> Result<(), NetlinkError> {
        for there in self
            .routes(index, route)?
            .into_iter()
            .filter(|there| there.scope == scope(route))
        {
            if there.has_metrics_of(route) {
                return Ok(());
            }
            self.delete_route(index, route, &there)?;
        }
        let mut request = route_message(index, route);
        request.header.protocol = RouteProtocol::Boot;
        request.header.kind = RouteType::Unicast;
        let metrics = [
            route.mtu.map(RouteMetric::Mtu),
            route.advmss.map(RouteMetric::Advmss),
        ];
        let metrics: Vec<_> = metrics.into_iter().flatten().collect();
        request
            .attributes
            .extend(Some(RouteAttribute::Metrics(metrics.clone())).filter(|_| !metrics.is_empty()));
        unless(
            libc::EEXIST,
            self.change(
                RouteNetlinkMessage::NewRoute(request),
                NLM_F_CREATE | NLM_F_APPEND,
            ),
        )
    }

    /// Removes a route, whichever program added it.
    ///
    /// To the kernel, a request without a metric means the first route with any metric. So the routes are listed, and each is
    /// removed by its full description.
    fn remove_route(&mut self, index: u32, route: &LinkRoute) -> Result<(), NetlinkError> {
        for there in self.routes(index, route)? {
            self.delete_route(index, route, &there)?;
        }
        Ok(())
    }

    /// Points the default routes over a link to another router: first adds the new route, then removes the old one.
    ///
    /// dockerd moves the default route by deleting its own, ignoring failures, and adding one without a metric, which fails if
    /// there is one. So the place without a metric stays free for dockerd's route, which takes precedence over ours.
    ///
    /// NLM_F_REPLACE would replace the first route with the same metric, over any link. So the new route goes before the others
    /// with its metric if the old one is the first of them, else behind them.
    fn replace_default(
        &mut self,
        index: u32,
        from: IpAddr,
        to: IpAddr,
    ) -> Result<(), NetlinkError> {
        let mut defaults = Vec::new();
        self.routes_of(family(from), Some(MAIN), None, |there| {
            if there.destination.prefix_len() == 0 {
                defaults.push(there);
            }
        })?;
        for old in defaults
            .iter()
            .filter(|there| there.index == Some(index) && there.via == Some(from))
        {
            let first = defaults.iter().find(|there| there.metric == old.metric);
            let behind = if first.is_some_and(|first| std::ptr::eq(first, old)) {
                0
            } else {
                NLM_F_APPEND
            };
            let route = |via, metric| LinkRoute {
                destination: old.destination,
                via: Some(via),
                metric: Some(metric),
                ..LinkRoute::default()
            };
            let mut new = route_message(index, &route(to, old.metric.max(1)));
            (new.header.protocol, new.header.kind) = (old.protocol, RouteType::Unicast);
            unless(
                libc::EEXIST,
                self.change(RouteNetlinkMessage::NewRoute(new), NLM_F_CREATE | behind),
            )?;
            self.delete_route(index, &route(from, old.metric), old)?;
        }
        Ok(())
    }

    fn delete_route(
        &mut self,
        index: u32,
        route: &LinkRoute,
        there: &RouteAnswer,
    ) -> Result<(), NetlinkError> {
        let mut request = route_message(index, route);
        (request.header.protocol, request.header.scope) = (there.protocol, there.scope);
        request.header.kind = RouteType::Unicast;
        unless(
            libc::ESRCH,
            self.change(RouteNetlinkMessage::DelRoute(request), 0),
        )
    }

    /// Returns each route that matches this one: main plugins that are given no scope add on-link routes with global scope.
    /// Routes that the kernel adds for an address belong to that address and do not count.
    fn routes(&mut self, index: u32, route: &LinkRoute) -> Result<Vec<RouteAnswer>, NetlinkError> {
        let mut found = Vec::new();
        self.routes_of(
            family(route.destination.addr()),
            Some(table(route)),
            Some(index),
            |there| {
                if there.is(index, route) && there.protocol != RouteProtocol::Kernel {
                    found.push(there);
                }
            },
        )?;
        Ok(found)
    }

    /// Looks at a link and at the IPv4 routes over it that the kernel did not make itself, unless there are too many.
    pub(super) fn view_with_routes(
        &mut self,
        which: Which<'_>,
        cookie: Cookie,
    ) -> Result<LinkView, LinkCause> {
        let view = self.view(which, cookie)?;
        let mut routes = Vec::new();
        let mut count = 0;
        let asked = self.routes_of(AddressFamily::Inet, None, Some(view.ifindex), |there| {
            if there.index == Some(view.ifindex) && there.protocol != RouteProtocol::Kernel {
                count += 1;
                routes.extend(Some(there.into_link_route()).filter(|_| count <= MAX_ROUTES));
            }
        });
        asked.map_err(|error| error.at(which, "list the routes"))?;
        Ok(LinkView {
            routes: Some(routes).filter(|_| count <= MAX_ROUTES),
            ..view
        })
    }

    /// Lists the routes of one table or all, over one link or all, in the kernel's order.
    fn routes_of(
        &mut self,
        family: AddressFamily,
        table: Option<u32>,
        over: Option<u32>,
        mut take: impl FnMut(RouteAnswer),
    ) -> Result<(), NetlinkError> {
        let mut request = RouteMessage::default();
        request.header.address_family = family;
        request.header.kind = RouteType::Unicast;
        request.attributes.extend(table.map(RouteAttribute::Table));
        request.attributes.extend(over.map(RouteAttribute::Oif));
        let asked = self.request(
            RouteNetlinkMessage::GetRoute(request),
            NLM_F_DUMP,
            |kind, payload| {
                if kind == libc::RTM_NEWROUTE {
                    RouteAnswer::read(payload)?.into_iter().for_each(&mut take);
                }
                Ok(())
            },
        );
        // A namespace gets a table with its first route.
        unless(libc::ENOENT, asked)
    }
}

/// Treats one of the kernel's refusals as success.
fn unless(errno: i32, asked: Result<(), NetlinkError>) -> Result<(), NetlinkError> {
    asked.or_else(|error| if error.is(errno) { Ok(()) } else { Err(error) })
}

fn address_message(index: u32, address: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    let ip = address.addr();
    message.header.family = family(ip);
    message.header.index = index;
    message.header.prefix_len = address.prefix_len();
    message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
    message
}

fn route_message(index: u32, route: &LinkRoute) -> RouteMessage {
    let destination = route.destination.trunc();
    let mut message = RouteMessage::default();
    message.header.address_family = family(destination.addr());
    message.header.destination_prefix_length = destination.prefix_len();
    message.header.scope = scope(route);
    message.attributes = vec![
        RouteAttribute::Destination(destination.addr().into()),
        RouteAttribute::Oif(index),
        RouteAttribute::Priority(metric(route)),
        RouteAttribute::Table(table(route)),
    ];
    message
        .attributes
        .extend(route.via.map(|via| RouteAttribute::Gateway(via.into())));
    message
}

fn family(of: IpAddr) -> AddressFamily {
    if of.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    }
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    v4().or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

/// Returns the scope to give a route without a scope of its own: in IPv4, only a route with link scope can lead to another
/// route's next hop; IPv6 has no scopes.
fn scope(route: &LinkRoute) -> RouteScope {
    match (route.destination, route.via) {
        (IpNet::V4(_), _) if let Some(scope) = route.scope => scope.into(),
        (IpNet::V4(_), None) => RouteScope::Link,
        (IpNet::V4(_), Some(_)) | (IpNet::V6(_), _) => RouteScope::Universe,
    }
}

fn table(route: &LinkRoute) -> u32 {
    route.table.unwrap_or(MAIN)
}

/// Returns the metric that the kernel gives a route (`IP6_RT_PRIO_USER`).
fn metric(route: &LinkRoute) -> u32 {
    route
        .metric
        .unwrap_or(if route.destination.addr().is_ipv4() {
            0
        } else {
            1024
        })
}

/// The part of a message about a route that is used.
#[derive(Debug)]
struct RouteAnswer {
    destination: IpNet,
    via: Option<IpAddr>,
    metric: u32,
    table: u32,
    mtu: Option<u32>,
    advmss: Option<u32>,
    index: Option<u32>,
    protocol: RouteProtocol,
    scope: RouteScope,
}

impl RouteAnswer {
    const HEADER: usize = 12;

    /// Reads a `struct rtmsg` and its attributes; `None` for a route that no step adds: another family, type or TOS, several
    /// next hops, or a next hop object.
    fn read(payload: &[u8]) -> Result<Option<Self>, NetlinkError> {
        let header = RouteHeader::parse(payload)
            .map_err(|_| NetlinkError::Unreadable("a route without a header"))?;
        let nowhere: IpAddr = match header.address_family {
            AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
            AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
            _ => return Ok(None),
        };
        if (header.kind, header.tos) != (RouteType::Unicast, 0) {
            return Ok(None);
        }
        let mut destination = nowhere;
        let mut via = None;
        let mut metric = 0;
        let mut index = None;
        let mut table = header.table.into();
        let mut mtu = None;
        let mut advmss = None;
        for attribute in NlasIterator::new(&payload[Self::HEADER..]) {
            let attribute = attribute
                .map_err(|_| NetlinkError::Unreadable("a route's attribute runs over its end"))?;
            let four = attribute.value().first_chunk::<4>().copied();
            match attribute.kind() {
                libc::RTA_DST => destination = ip(attribute.value()).unwrap_or(nowhere),
                libc::RTA_GATEWAY => via = ip(attribute.value()),
                libc::RTA_PRIORITY => metric = four.map_or(0, u32::from_ne_bytes),
                libc::RTA_OIF => index = four.map(u32::from_ne_bytes),
                libc::RTA_TABLE => table = four.map_or(table, u32::from_ne_bytes),
                libc::RTA_METRICS => {
                    let metric = |kind| {
                        let bytes = attribute_in(attribute.value(), kind)?.first_chunk()?;
                        Some(u32::from_ne_bytes(*bytes))
                    };
                    mtu = metric(Self::METRIC_MTU);
                    advmss = metric(Self::METRIC_ADVMSS);
                }
                libc::RTA_MULTIPATH | Self::VIA | Self::NEXT_HOP => return Ok(None),
                _ => {}
            }
        }
        let destination = IpNet::new(destination, header.destination_prefix_length)
            .map_err(|_| NetlinkError::Unreadable("a route with an impossible prefix"))?;
        let protocol = header.protocol;
        let scope = header.scope;
        Ok(Some(Self {
            destination,
            via,
            metric,
            table,
            mtu,
            advmss,
            index,
            protocol,
            scope,
        }))
    }

    fn into_link_route(self) -> LinkRoute {
        LinkRoute {
            destination: self.destination,
            via: self.via,
            metric: Some(self.metric).filter(|metric| *metric != 0),
            mtu: self.mtu,
            advmss: self.advmss,
            table: Some(self.table).filter(|table| *table != MAIN),
            scope: Some(self.scope.into()),
        }
    }

    /// RTA_VIA: a next hop of another family.
    const VIA: u16 = 18;
    /// RTA_NH_ID.
    const NEXT_HOP: u16 = 30;
    /// In RTA_METRICS: RTAX_MTU, RTAX_ADVMSS.
    const METRIC_MTU: u16 = 2;
    const METRIC_ADVMSS: u16 = 8;

    fn is(&self, index: u32, route: &LinkRoute) -> bool {
        self.index == Some(index)
            && (self.destination, self.via) == (route.destination.trunc(), route.via)
            && (self.metric, self.table) == (metric(route), table(route))
    }

    /// Returns whether it has the MTU and the MSS of this route, where that has any.
    fn has_metrics_of(&self, route: &LinkRoute) -> bool {
        route.mtu.is_none_or(|mtu| self.mtu == Some(mtu))
            && route
                .advmss
                .is_none_or(|advmss| self.advmss == Some(advmss))
    }
}
