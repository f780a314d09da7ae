use super::super::{At, Interfaces, Presence};
use super::*;
use crate::effect::OpId;
use crate::grant::Route;
use crate::link::{Cookie, Link, LinkRoute};
use crate::record::BindingId;
use crate::wire::Mac;

const AT: At = (Cookie(1), 2);
const V4: BindingId = BindingId(1);
const V6: BindingId = BindingId(2);

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

    /// Returns what is on the interface.
    fn carried(&self) -> Vec<String> {
        let addresses = self.addresses.iter().map(ToString::to_string);
        addresses
            .chain(self.routes.iter().map(ToString::to_string))
            .collect()
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

/// Returns an interface that carries a grant of each family.
fn both() -> Host {
    let mut host = Host::new(AT);
    host.enter(V4, carry(&v4()));
    host.enter(V6, carry(&v6()));
    for _ in 0..2 {
        assert_eq!(host.go_on(), 1);
        host.end_change();
    }
    assert_eq!(host.go_on(), 0);
    host
}

#[test]
fn an_interface_carries_a_v6_grant_beside_a_v4_one() {
    let mut host = Host::new(AT);
    host.enter(V4, carry(&v4()));
    host.enter(V6, carry(&v6()));
    assert_eq!(host.go_on(), 1, "the other waits for its turn");
    let steps = [
        "add the address 192.0.2.50/24",
        "add the route 0.0.0.0/0 via 192.0.2.1",
    ]
    .map(String::from);
    assert_eq!(host.end_change(), (V4, steps.into()));
    assert_eq!(host.go_on(), 1);
    let steps = [
        "add the address 2001:db8::50/64",
        "add the route ::/0 via fe80::1",
    ]
    .map(String::from);
    assert_eq!(host.end_change(), (V6, steps.into()));
    assert_eq!(host.go_on(), 0, "both have what they want");
    let carried = [
        "192.0.2.50/24",
        "2001:db8::50/64",
        "0.0.0.0/0 via 192.0.2.1",
        "::/0 via fe80::1",
    ];
    assert_eq!(host.carried(), carried);
}

#[test]
fn a_change_for_one_family_leaves_the_other_alone() {
    let (mut host, next) = (both(), grant("2001:db8:1::50/64", "fe80::2"));
    host.want(V6, &v6(), carry(&next));
    host.go_on();
    host.end_change();
    let carried = [
        "192.0.2.50/24",
        "2001:db8:1::50/64",
        "0.0.0.0/0 via 192.0.2.1",
        "::/0 via fe80::2",
    ];
    assert_eq!(host.carried(), carried);
    host.want(V4, &v4(), Wish::Nothing);
    host.go_on();
    host.end_change();
    assert_eq!(host.carried(), ["2001:db8:1::50/64", "::/0 via fe80::2"]);
}

#[test]
fn two_that_want_a_change_at_once_take_turns() {
    let (mut host, next) = (
        both(),
        [
            grant("192.0.2.77/24", "192.0.2.1"),
            grant("2001:db8::77/64", "fe80::1"),
        ],
    );
    host.want(V4, &v4(), carry(&next[0]));
    host.want(V6, &v6(), carry(&next[1]));
    let turns: Vec<_> =
        std::iter::from_fn(|| (host.go_on() > 0).then(|| host.end_change().0)).collect();
    assert_eq!(turns, [V4, V6]);
    assert_eq!(host.addresses, [next[0].addresses[0], next[1].addresses[0]]);
}

#[test]
fn an_interface_stays_as_it_is_until_something_is_wanted() {
    let mut host = both();
    host.want(V4, &v4(), Wish::AsIs);
    assert_eq!(host.go_on(), 0);
    assert_eq!(host.carried().len(), 4);
}

#[test]
fn a_regained_interface_carries_the_same() {
    let mut before = both();
    let own = before.link();
    before.interfaces.seat_mut(&own, V4).unwrap().see(
        true,
        None,
        Instant::from_boot(Duration::ZERO),
    );
    before.interfaces.leave(&own, V4);
    assert_eq!(before.interfaces.presence(&own, V4), Presence::Unknown);
    let mut after = Host::new((Cookie(2), 5));
    after.enter(V4, carry(&v4()));
    after.go_on();
    after.end_change();
    assert_eq!(
        after.carried(),
        ["192.0.2.50/24", "0.0.0.0/0 via 192.0.2.1"]
    );
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
