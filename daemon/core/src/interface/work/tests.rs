use super::super::{At, Interfaces};
use super::*;
use crate::effect::OpId;
use crate::grant::Route;
use crate::link::{Cookie, Link, LinkRoute};
use crate::record::BindingId;
use crate::wire::Mac;

const AT: At = (Cookie(1), 2);
const V4: BindingId = BindingId(1);

/// An interface of a kernel, and what its bindings do there.
struct Host {
    interfaces: Interfaces,
    at: At,
    addresses: Vec<IpNet>,
    routes: Vec<LinkRoute>,
    /// What each binding wants.
    wishes: Vec<(BindingId, Wish)>,
    /// The change under way.
    change: Option<(BindingId, Vec<Step>)>,
}

impl Host {
    fn new(at: At) -> Self {
        let (interfaces, addresses, routes) = (Interfaces::default(), Vec::new(), Vec::new());
        Self {
            interfaces,
            at,
            addresses,
            routes,
            wishes: Vec::new(),
            change: None,
        }
    }

    fn link(&self) -> Link {
        Link::InNetns {
            path: "/ns/1".into(),
            cookie: self.at.0,
            ifindex: self.at.1,
            mac: Mac::default(),
        }
    }

    /// Lets a binding move in, with nothing of it there.
    fn enter(&mut self, id: BindingId, wish: Wish) {
        self.interfaces.enter(&self.link(), id);
        self.work(id).expect_bare(true);
        self.wishes.push((id, wish));
    }

    /// Makes a binding want something other than `was`.
    fn want(&mut self, id: BindingId, was: &Grant, wish: Wish) {
        self.work(id).leave_behind(was.clone(), false);
        self.wishes
            .iter_mut()
            .filter(|(own, _)| *own == id)
            .for_each(|(_, wanted)| *wanted = wish.clone());
    }

    fn work(&mut self, id: BindingId) -> &mut Work {
        let link = self.link();
        self.interfaces
            .seat_mut(&link, id)
            .expect("it moved in")
            .due()
    }

    fn view(&self) -> LinkView {
        LinkView {
            cookie: self.at.0,
            ifindex: self.at.1,
            ifname: "eth0".into(),
            mac: Mac::default(),
            mtu: 1500,
            up: true,
            carrier: true,
            was_down: false,
            addresses: self.addresses.clone(),
            routes: None,
            bridge: false,
            macvlan: false,
            lower: None,
            wire: None,
            wireless: false,
            received: 0,
        }
    }

    /// Lets every binding go on as far as it can. Returns how many then have a change under way.
    fn go_on(&mut self) -> usize {
        for (id, wish) in self.wishes.clone() {
            let around = Around {
                has_parent: false,
                is_changing: self.interfaces.is_changing(self.at),
            };
            let view = self.view();
            let work = self.work(id);
            if work.busy()
                || work.is_settled(&wish, None, true)
                || work.go_on(&wish, true) != Act::Look
            {
                continue;
            }
            match work.on_inspected(Ok(view), wish, around) {
                Ok(Act::Apply(steps)) => {
                    assert!(self.change.is_none(), "one at a time");
                    self.interfaces.begin_change(self.at, OpId(id.0));
                    self.change = Some((id, steps));
                }
                act => assert_eq!(act, Ok(Act::Wait)),
            }
        }
        let link = self.link();
        let works = self
            .wishes
            .iter()
            .filter_map(|(id, _)| self.interfaces.seat(&link, *id)?.work());
        works.filter(|work| work.busy()).count()
    }

    /// Ends the change under way, and calls who waits for that. Returns its steps, and whose they were.
    fn end_change(&mut self) -> (BindingId, Vec<String>) {
        let (id, steps) = self.change.take().expect("a change");
        for step in &steps {
            match step {
                Step::AddAddress(address) => self.addresses.push(*address),
                Step::RemoveAddress(address) => self.addresses.retain(|there| there != address),
                Step::AddRoute(route) => self.routes.push(route.clone()),
                Step::RemoveRoute(route) => self.routes.retain(|there| there != route),
                Step::Up | Step::Mtu(_) | Step::ReplaceDefault { .. } | Step::Abandon => {
                    panic!("{step}")
                }
            }
        }
        assert_eq!(self.interfaces.end_change(OpId(id.0)), Some(self.at));
        let (taken, view) = (steps.len(), self.view());
        let wish = self
            .wishes
            .iter()
            .find(|(own, _)| *own == id)
            .map(|(_, wish)| wish.clone());
        let changed =
            self.work(id)
                .on_applied(taken, Ok(view), wish.as_ref().and_then(Wish::grant));
        assert!(
            matches!(changed, Worked::Done(Done { lacks: None, .. })),
            "{changed:?}"
        );
        (id, steps.iter().map(ToString::to_string).collect())
    }
}

fn grant(address: &str, gateway: &str) -> Grant {
    let (address, via): (IpNet, std::net::IpAddr) =
        (address.parse().unwrap(), gateway.parse().unwrap());
    let default = if via.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
    let route = Route::new(default.parse().unwrap(), Some(via));
    Grant {
        addresses: vec![address],
        gateway: Some(via),
        routes: vec![route],
        ..Grant::default()
    }
}

fn carry(grant: &Grant) -> Wish {
    Wish::Carry(Box::new(grant.clone()))
}

fn v4() -> Grant {
    grant("192.0.2.50/24", "192.0.2.1")
}

fn v6() -> Grant {
    grant("2001:db8::50/64", "fe80::1")
}

#[test]
fn a_step_that_the_kernel_refuses_is_done_without() {
    let mut work = Work::default();
    work.expect_bare(true);
    let (host, wish) = (Host::new(AT), carry(&v6()));
    let around = Around {
        has_parent: false,
        is_changing: false,
    };
    let steps = |work: &mut Work| {
        assert_eq!(work.go_on(&wish, false), Act::Look);
        match work.on_inspected(Ok(host.view()), wish.clone(), around) {
            Ok(Act::Apply(steps)) => steps.len(),
            act => panic!("{act:?}"),
        }
    };
    assert_eq!(steps(&mut work), 2);
    let changed = work.on_applied(
        1,
        Err(LinkCause::refused("add the route", "no")),
        wish.grant(),
    );
    assert!(
        matches!(
            &changed,
            Worked::Again {
                without: Some(Step::AddRoute(_))
            }
        ),
        "{changed:?}"
    );
    assert_eq!(steps(&mut work), 1, "the address alone");
    let changed = work.on_applied(
        0,
        Err(LinkCause::refused("add the address", "no")),
        wish.grant(),
    );
    assert!(matches!(changed, Worked::Failed(_)), "{changed:?}");
}

#[test]
fn a_lost_grants_router_outlives_its_removal() {
    let (mut host, router) = (Host::new(AT), "192.0.2.1".parse().ok());
    let lost = Grant { router, ..v4() };
    host.enter(V4, carry(&lost));
    host.go_on();
    host.end_change();
    host.want(V4, &lost, Wish::Nothing);
    assert_eq!(host.go_on(), 1);
    // The next lease comes while that is under way, and may use another router.
    host.work(V4).leave_router(&lost);
    host.end_change();
    assert_eq!(host.work(V4).former().router, router);
}
