//! What the kernel reports unasked.

use std::net::Ipv4Addr;

use leasehold_core::link::{ByName, KernelMessage, LinkCause, LinkView, Step, Target};
use netlink_packet_core::NLM_F_REQUEST;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::lab::{Lab, Netns, PLAIN, in_lab, inside, ip, named, netlink_port};
use crate::net::NetReport;
use crate::net::netlink::encode;

/// A number that the kernel gives to no namespace by itself.
const NUMBER: i32 = 4711;
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

/// Returns what the kernel reported unasked up to now.
fn left_over(lab: &mut Lab) -> Vec<KernelMessage> {
    let news = |event| match event {
        NetReport::Kernel(news) => Some(news.event),
        _ => None,
    };
    lab.left_over().into_iter().filter_map(news).collect()
}

/// Puts an address on a known link, and waits until the kernel's message is heard.
async fn comes(lab: &mut Lab, netns: &Netns, view: &LinkView) {
    netns.ip(&format!("addr add {ADDRESS}/24 dev eth0"));
    let added = KernelMessage::AddressAdded((view.cookie, view.ifindex), ADDRESS.into());
    lab.kernel(added).await;
}

fn is_death(event: &KernelMessage) -> bool {
    matches!(event, KernelMessage::NetnsDied(..))
}

#[test]
fn carrier_comes_and_goes_with_the_other_end() {
    in_lab(async |mut lab: Lab| {
        let netns = Netns::with_veth("host0");
        let (_, inside) = lab.apply(netns.eth0(), &[Step::Up]).await;
        let inside = inside.unwrap();
        assert!(inside.up && !inside.carrier);
        let (cookie, ifindex) = (inside.cookie, inside.ifindex);
        ip("link set host0 up");
        lab.kernel(KernelMessage::Carrier((cookie, ifindex), true))
            .await;
        assert!(lab.inspect(netns.eth0()).await.unwrap().carrier);
        ip("link set host0 down");
        lab.kernel(KernelMessage::Carrier((cookie, ifindex), false))
            .await;
    });
}

#[test]
fn addresses_come_and_go() {
    in_lab(async |mut lab: Lab| {
        let (netns, view) = lab.known("host0").await;
        comes(&mut lab, &netns, &view).await;
        netns.ip(&format!("addr del {ADDRESS}/24 dev eth0"));
        let gone = KernelMessage::AddressGone((view.cookie, view.ifindex), ADDRESS.into());
        lab.kernel(gone).await;
    });
}

#[test]
fn the_hosts_namespace_is_watched_once_asked_for() {
    in_lab(async |mut lab: Lab| {
        let netns = Netns::with_veth("host0");
        let target = Target::Named(ByName {
            netns: "/proc/thread-self/ns/net".into(),
            ifname: "host0".to_owned(),
            host_too: true,
        });
        let (_, view) = lab.apply(target, &[Step::Up]).await;
        let Ok(LinkView {
            cookie, ifindex, ..
        }) = view
        else {
            panic!("{view:?}")
        };
        lab.apply(netns.eth0(), &[Step::Up]).await.1.unwrap();
        lab.kernel(KernelMessage::Carrier((cookie, ifindex), true))
            .await;
        ip("link del host0");
        lab.kernel(KernelMessage::LinkGone((cookie, ifindex))).await;
    });
}

#[test]
fn a_link_that_is_moved_away_counts_as_gone() {
    in_lab(async |mut lab: Lab| {
        let elsewhere = Netns::new();
        for end in [
            "link del eth0".to_owned(),
            format!("link set eth0 netns {elsewhere}"),
        ] {
            let (netns, view) = lab.known("host0").await;
            netns.ip(&end);
            lab.kernel(KernelMessage::LinkGone((view.cookie, view.ifindex)))
                .await;
        }
    });
}

#[test]
fn a_port_that_leaves_a_bridge_is_not_gone() {
    in_lab(async |mut lab: Lab| {
        let (netns, view) = lab.known("host0").await;
        netns.ip_link("add br0 type bridge\nset eth0 master br0\nset eth0 nomaster\n");
        comes(&mut lab, &netns, &view).await;
        let left = left_over(&mut lab);
        let gone = KernelMessage::LinkGone((view.cookie, view.ifindex));
        assert!(!left.contains(&gone), "{left:?}");
    });
}

#[test]
fn a_namespace_dies_though_exchanges_ran_in_it() {
    in_lab(async |mut lab: Lab| {
        let (netns, inside, _) = lab.pair().await;
        let (cookie, _) = inside.in_netns().unwrap();
        let closed = lab.open(inside.clone(), PLAIN).await.unwrap();
        let open = lab.open(inside, PLAIN).await.unwrap();
        lab.net.close(None, closed);
        drop(netns);
        // Nothing but the second exchange keeps it.
        lab.net.close(None, open);
        lab.kernel(KernelMessage::NetnsDied(cookie)).await;
    });
}

#[test]
fn a_lost_path_is_reported_before_the_namespaces_death() {
    in_lab(async |mut lab: Lab| {
        let (netns, directory) = (Netns::new(), tempfile::tempdir().unwrap());
        netns.veth("host0");
        let [path, other] = ["c1", "c2"].map(|name| directory.path().join(name));
        for path in [&path, &other] {
            std::os::unix::fs::symlink(netns.path(), path).unwrap();
        }
        let eth0 = named(&path, "eth0");
        let view = lab.apply(eth0.clone(), &[Step::Up]).await.1.unwrap();
        let cookie = view.cookie;
        let link = inside(&path, &view);
        let exchange = lab.open(link.clone(), PLAIN).await.unwrap();
        std::fs::remove_file(other).unwrap();
        for _ in 0..10 {
            lab.inspect(eth0.clone()).await.unwrap();
        }
        let is_gone =
            |event: &KernelMessage| is_death(event) || matches!(event, KernelMessage::PathGone(..));
        assert!(!left_over(&mut lab).iter().any(is_gone));
        std::fs::remove_file(&path).unwrap();
        lab.kernel(KernelMessage::PathGone(cookie)).await;
        let no_path = LinkCause::NoPath(path.clone());
        // The kernel knows the link.
        assert_eq!(
            lab.inspect(Target::Known(link.clone())).await,
            Err(no_path.clone()),
        );
        assert_eq!(lab.open(link.clone(), PLAIN).await.map(drop), Err(no_path));
        let ifindex = view.ifindex + 1;
        let other = inside(&path, &LinkView { ifindex, ..view });
        // Another link.
        assert_eq!(
            lab.inspect(Target::Known(other)).await,
            Err(LinkCause::NoNetns(path.clone())),
        );
        lab.net.close(None, exchange);
        drop(netns);
        lab.kernel(KernelMessage::NetnsDied(cookie)).await;
        assert_eq!(
            lab.inspect(Target::Known(link)).await,
            Err(LinkCause::NoNetns(path))
        );
    });
}

#[test]
fn news_of_the_host_and_of_strangers_is_not_told() {
    in_lab(async |mut lab: Lab| {
        let (known, stranger) = (Netns::new(), Netns::new());
        stranger.veth("host0");
        known.veth("host1");
        ip("link set host0 up");
        stranger.ip("addr add 192.0.2.99/32 dev lo");
        ip("addr add 192.0.2.1/24 dev host0");
        let view = lab.inspect(known.eth0()).await.unwrap();
        drop(stranger);
        comes(&mut lab, &known, &view).await;
        let left = left_over(&mut lab);
        let foreign = |event: &KernelMessage| match event {
            KernelMessage::Carrier((cookie, _), _) => *cookie != view.cookie,
            _ => true,
        };
        assert!(!left.iter().any(foreign), "{left:?}");
    });
}

#[test]
fn fifty_namespaces_are_set_up_and_their_ends_are_heard() {
    in_lab(async |mut lab: Lab| {
        let all: Vec<Netns> = (0..50).map(|_| Netns::new()).collect();
        let mut ops = Vec::new();
        for (n, netns) in all.iter().enumerate() {
            netns.veth(&format!("host{n}"));
            let op = lab.op();
            lab.net.apply(op, netns.eth0(), vec![Step::Up]);
            ops.push(op);
        }
        let mut cookies = Vec::new();
        for op in ops {
            let leasehold_core::effect::Outcome::Applied {
                taken: 1,
                result: Ok(view),
            } = lab.done(op).await
            else {
                panic!()
            };
            assert!(view.up);
            cookies.push(view.cookie);
        }
        drop(all);
        for cookie in cookies {
            lab.kernel(KernelMessage::NetnsDied(cookie)).await;
        }
        assert!(!left_over(&mut lab).iter().any(is_death));
    });
}

#[test]
fn a_number_that_is_used_again_kills_the_old_owner_only() {
    in_lab(async |mut lab: Lab| {
        let mut former = None;
        for round in 0..30 {
            // Its former owner dies before the loop turns again, which then finds both the death and the successor's look.
            let netns = Netns::new();
            netns.get_number(NUMBER);
            netns.veth(&format!("host{round}"));
            let view = lab.inspect(netns.eth0()).await.unwrap();
            if let Some(cookie) = former.replace(view.cookie) {
                lab.kernel(KernelMessage::NetnsDied(cookie)).await;
            }
            // The owner is heard, under its own cookie.
            comes(&mut lab, &netns, &view).await;
            assert!(!left_over(&mut lab).iter().any(is_death));
        }
    });
}

#[test]
fn a_number_freed_in_another_namespace_ends_nobody() {
    in_lab(async |mut lab: Lab| {
        let (known, other) = (Netns::new(), Netns::new());
        known.get_number(NUMBER);
        known.veth("host0");
        other.veth("host1");
        let (view, _) = (
            lab.inspect(known.eth0()).await.unwrap(),
            lab.inspect(other.eth0()).await.unwrap(),
        );
        // There the number means something else, which dies.
        other.run(|| (0..2).for_each(|_| Netns::new().get_number(NUMBER)));
        comes(&mut lab, &known, &view).await;
        // Workers take their work in order: these looks come after the one that the death caused.
        for _ in 0..10 {
            lab.inspect(known.eth0()).await.unwrap();
        }
        assert!(!left_over(&mut lab).iter().any(is_death));
        drop(known);
        lab.kernel(KernelMessage::NetnsDied(view.cookie)).await;
    });
}

#[test]
fn a_container_cannot_forge_the_numbers_of_namespaces() {
    in_lab(async |mut lab: Lab| {
        let (known, hostile, newcomer) = (Netns::new(), Netns::new(), Netns::new());
        known.get_number(NUMBER);
        for (netns, outside) in [(&known, "host0"), (&hostile, "host1"), (&newcomer, "host2")] {
            netns.veth(outside);
        }
        let (view, _) = (
            lab.inspect(known.eth0()).await.unwrap(),
            lab.inspect(hostile.eth0()).await.unwrap(),
        );
        // From a socket with the watch's port, with the third question's token.
        let port = netlink_port(true);
        hostile.run(|| tell_of_number(port, 3));
        let op = lab.op();
        lab.net.inspect(op, newcomer.eth0(), false);
        newcomer.wait_for_number();
        lab.done(op).await;
        comes(&mut lab, &known, &view).await;
        let left = left_over(&mut lab);
        assert!(
            !left
                .iter()
                .any(|event| is_death(event) || *event == KernelMessage::Missed),
            "{left:?}"
        );
    });
}

/// Makes the kernel report in this namespace that another one got the number, as if the socket with this port had asked for it.
fn tell_of_number(port: u32, sequence: u32) {
    let other = Netns::new();
    let mut message = NsidMessage::default();
    message.attributes = vec![
        NsidAttribute::Fd(other.file().cast_unsigned()),
        NsidAttribute::Id(NUMBER),
    ];
    let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
    socket.bind(&SocketAddr::new(port, 0)).unwrap();
    let request = encode(
        RouteNetlinkMessage::NewNsId(message),
        NLM_F_REQUEST,
        sequence,
    );
    socket.send_to(&request, &SocketAddr::new(0, 0), 0).unwrap();
}

#[test]
fn a_flood_of_news_waits_in_the_kernels_socket() {
    in_lab(async |mut lab: Lab| {
        let (netns, view) = lab.known("host0").await;
        change_mtu(&netns, 2000);
        netns.ip(&format!("addr add {ADDRESS}/24 dev eth0"));
        // The loop turns far more often than it takes to read all that.
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
        }
        let untaken = lab.untaken();
        assert!((512..=1024).contains(&untaken), "{untaken}");
        lab.kernel(KernelMessage::AddressAdded(
            (view.cookie, view.ifindex),
            ADDRESS.into(),
        ))
        .await;
    });
}

/// Changes the MTU of the namespace's link that many times.
fn change_mtu(netns: &Netns, times: usize) {
    let changes = (0..times).map(|n| format!("set eth0 mtu {}\n", 1400 + n % 2));
    netns.ip_link(&changes.collect::<String>());
}

#[test]
fn a_link_with_hundreds_of_names_loses_no_news() {
    in_lab(async |mut lab: Lab| {
        let netns = Netns::with_veth("host0");
        netns.ip_link(
            &(0..490)
                .map(|n| format!("property add dev eth0 altname {n:0127}\n"))
                .collect::<String>(),
        );
        let view = lab.apply(netns.eth0(), &[Step::Up]).await.1.unwrap();
        change_mtu(&netns, 1);
        comes(&mut lab, &netns, &view).await;
        assert!(!left_over(&mut lab).contains(&KernelMessage::Missed));
    });
}

#[test]
fn lost_news_are_told_and_another_look_hears_again() {
    in_lab(async |mut lab: Lab| {
        let (netns, view) = lab.known("host0").await;
        // More than the socket holds, while the loop stands.
        let mut rounds = 0..200;
        while !something_was_dropped() {
            change_mtu(&netns, 1000);
            assert!(rounds.next().is_some(), "the socket holds all that");
        }
        lab.kernel(KernelMessage::Missed).await;
        assert!(lab.inspect(Target::Known(netns.link(&view))).await.is_ok());
        comes(&mut lab, &netns, &view).await;
        drop(netns);
        lab.kernel(KernelMessage::NetnsDied(view.cookie)).await;
    });
}

/// Returns whether a netlink socket in this namespace has lost a message.
fn something_was_dropped() -> bool {
    let sockets = std::fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
    let drops = sockets
        .lines()
        .next()
        .unwrap()
        .split_whitespace()
        .position(|title| title == "Drops")
        .unwrap();
    sockets
        .lines()
        .skip(1)
        .any(|socket| socket.split_whitespace().nth(drops) != Some("0"))
}

#[test]
fn a_parent_is_never_news() {
    in_lab(async |mut lab: Lab| {
        let (_netns, inside, _) = lab.pair().await;
        left_over(&mut lab);
        ip("link set host0 down");
        let (cookie, inside) = inside.in_netns().unwrap();
        lab.kernel(KernelMessage::Carrier((cookie, inside), false))
            .await;
        let foreign = |event: &KernelMessage| matches!(event, KernelMessage::Carrier((of, _), _) if *of != cookie);
        let left = left_over(&mut lab);
        assert!(!left.iter().any(foreign), "{left:?}");
    });
}
