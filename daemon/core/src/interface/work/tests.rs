use super::*;
use crate::grant::Route;
use crate::link::Cookie;
use crate::wire::Mac;

/// An interface with these addresses.
fn view(addresses: &[IpNet]) -> LinkView {
    LinkView {
        cookie: Cookie(1),
        ifindex: 2,
        ifname: "eth0".into(),
        mac: Mac::default(),
        mtu: 1500,
        up: true,
        carrier: true,
        was_down: false,
        addresses: addresses.to_vec(),
        routes: None,
        bridge: false,
        macvlan: false,
        lower: None,
        wire: None,
        wireless: false,
        received: 0,
    }
}

fn grant(address: &str, gateway: &str) -> Grant {
    let (address, via): (IpNet, IpAddr) = (address.parse().unwrap(), gateway.parse().unwrap());
    let default = if via.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
    let route = Route::new(default.parse().unwrap(), Some(via));
    Grant {
        addresses: vec![address],
        gateway: Some(via),
        routes: vec![route],
        ..Grant::default()
    }
}

/// Looks at an interface with these addresses, and returns how many steps follow.
fn steps(work: &mut Work, wish: &Wish, addresses: &[IpNet]) -> usize {
    assert_eq!(work.go_on(wish, true), Act::Look);
    match work.on_inspected(Ok(view(addresses)), wish.clone(), false) {
        Ok(Act::Apply(steps)) => steps.len(),
        act => panic!("{act:?}"),
    }
}

#[test]
fn a_step_that_the_kernel_refuses_is_done_without() {
    let mut work = Work::default();
    work.expect_bare(true);
    let wish = Wish::Carry(Box::new(grant("2001:db8::50/64", "fe80::1")));
    assert_eq!(steps(&mut work, &wish, &[]), 2);
    let refused = |doing| Err(LinkCause::refused(doing, "no"));
    let changed = work.on_applied(1, refused("add the route"), wish.grant());
    assert!(
        matches!(
            &changed,
            Worked::Again {
                without: Some(Step::AddRoute(_))
            }
        ),
        "{changed:?}"
    );
    assert_eq!(steps(&mut work, &wish, &[]), 1, "the address alone");
    let changed = work.on_applied(0, refused("add the address"), wish.grant());
    assert!(matches!(changed, Worked::Failed(_)), "{changed:?}");
}

#[test]
fn a_lost_grants_router_outlives_its_removal() {
    let router = "192.0.2.1".parse().ok();
    let mut lost = grant("192.0.2.50/24", "192.0.2.1");
    lost.router = router;
    let mut work = Work::default();
    work.leave_behind(lost.clone(), false);
    let taken = steps(&mut work, &Wish::Nothing, &lost.addresses);
    // The next lease comes while that is under way, and may use another router.
    work.leave_router(&lost);
    let changed = work.on_applied(taken, Ok(view(&[])), None);
    assert!(matches!(changed, Worked::Done(_)), "{changed:?}");
    assert_eq!(work.former().router, router);
}
