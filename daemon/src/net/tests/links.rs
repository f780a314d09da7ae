//! Looking at links and changing them; what is at a path; work that hangs.

use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use leasehold_core::link::{ByName, Cookie, Link, LinkCause, LinkView, Step, Target};
use leasehold_core::wire::Mac;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::lab::{Lab, MAC, Netns, PEER, PLAIN, host, in_lab, inside, named, netlink_port};
use crate::net::netlink::{Netlink, Which, encode};
use crate::net::netns::Host;
use crate::net::pool::Pool;
use crate::net::reaper::Reaper;
use crate::net::registrar::Registrar;

#[test]
fn a_link_is_looked_at_set_up_and_given_an_mtu() {
    in_lab(async |mut lab: Lab| {
        let netns = Netns::with_veth("host0");
        let before = lab.inspect(netns.eth0()).await.unwrap();
        assert_eq!(
            (before.ifname.as_str(), before.mac, before.mtu),
            ("eth0", MAC, 1500)
        );
        assert!(
            !before.up && !before.carrier && before.addresses.is_empty(),
            "{before:?}"
        );
        assert!(!before.was_down, "it was only looked at");

        let (taken, after) = lab.apply(netns.eth0(), &[Step::Up, Step::Mtu(1400)]).await;
        let after = after.unwrap();
        // The other end is down.
        assert_eq!(
            (taken, after.up, after.carrier, after.mtu),
            (2, true, false, 1400),
        );
        assert!(after.was_down);

        netns.ip("addr add 192.0.2.7/24 dev eth0");
        netns.ip("addr add 192.0.2.99/32 dev lo");
        let known = lab
            .inspect(Target::Known(netns.link(&after)))
            .await
            .unwrap();
        assert_eq!(known.addresses, ["192.0.2.7/24".parse().unwrap()]);
        assert_eq!(
            (known.cookie, known.ifindex),
            (before.cookie, before.ifindex)
        );
    });
}

#[test]
fn the_links_of_a_subnet_are_those_with_its_very_prefix() {
    in_lab(async |_| {
        let netns = Netns::new();
        for command in [
            "link add br0 type bridge",
            "link add eth1 type veth peer name eth2",
            "link set eth2 master br0",
            "link add link eth1 name mv0 type macvlan mode bridge",
            "link add eth3 type veth peer name eth4",
            "address add 10.1.0.1/24 dev eth1",
            "address add 10.1.0.2/24 dev eth1",
            "address add 10.1.0.3/24 dev eth2",
            "address add 10.1.0.4/24 dev mv0",
            "address add 10.1.0.5/25 dev eth3",
            "address add 10.1.0.6/16 dev eth4",
            "address add 10.2.0.1/24 dev br0",
            "address add 10.2.0.2/24 dev eth3",
        ] {
            netns.ip(command);
        }
        let links_in = |subnet: &str| netns.run(|| crate::net::links_in(subnet.parse().unwrap()));
        assert_eq!(links_in("10.1.0.0/24"), ["eth1"]);
        assert_eq!(links_in("10.1.0.0/25"), ["eth3"]);
        assert_eq!(links_in("10.2.0.0/24"), ["br0", "eth3"]);
        assert!(links_in("10.3.0.0/24").is_empty());
    });
}

#[test]
fn steps_end_at_the_first_failure_and_say_why() {
    in_lab(async |mut lab: Lab| {
        let netns = Netns::with_veth("host0");
        let (taken, result) = lab
            .apply(
                netns.eth0(),
                &[Step::Up, Step::Mtu(1_000_000), Step::Mtu(1400)],
            )
            .await;
        let Err(LinkCause::Refused { doing, reason }) = result else {
            panic!("{result:?}")
        };
        assert_eq!((taken, doing), (1, "set the MTU"));
        assert!(
            reason.contains("mtu greater than device maximum"),
            "{reason}"
        );
        assert_eq!(lab.inspect(netns.eth0()).await.unwrap().mtu, 1500);
    });
}

#[test]
fn a_link_of_the_host_is_looked_at_in_the_host() {
    in_lab(async |mut lab: Lab| {
        let netns = Netns::with_veth("host0");
        let host0 = host("host0");
        let (_, view) = lab.apply(host0.clone(), &[Step::Up]).await;
        let view = view.unwrap();
        assert_eq!((view.mac, view.up), (PEER, true));
        let known = Target::Known(Link::parent(view.ifindex, MAC));
        assert_eq!(
            lab.look(known).await.unwrap(),
            lab.look(host0).await.unwrap()
        );
        assert_ne!(lab.inspect(netns.eth0()).await.unwrap().cookie, view.cookie);
    });
}

#[test]
fn a_missing_link_and_one_without_ethernet_are_named() {
    in_lab(async |mut lab: Lab| {
        let netns = Netns::new();
        let named = |ifname: &str| named(netns.path(), ifname);
        for ifname in ["eth0", "", "a-name-that-is-too-long", "nul\0"] {
            let no_link = LinkCause::NoLink(ifname.to_owned());
            assert_eq!(lab.inspect(named(ifname)).await, Err(no_link.clone()));
            assert_eq!(
                lab.apply(named(ifname), &[Step::Up]).await,
                (0, Err(no_link))
            );
        }
        assert_eq!(
            lab.apply(named("lo"), &[Step::Up]).await,
            (0, Err(LinkCause::NotEthernet("lo".to_owned())))
        );
        netns.veth("host0");
        let view = lab.inspect(netns.eth0()).await.unwrap();
        let ifindex = 4711;
        let gone = netns.link(&LinkView { ifindex, ..view });
        let cause = LinkCause::NoLink("with index 4711".to_owned());
        assert_eq!(
            lab.inspect(Target::Known(gone.clone())).await,
            Err(cause.clone())
        );
        assert_eq!(
            lab.apply(Target::Known(gone.clone()), &[Step::Up]).await,
            (0, Err(cause.clone()))
        );
        assert_eq!(lab.open(gone, PLAIN).await, Err(cause));
    });
}

#[test]
fn what_is_no_network_namespace_is_told_at_once() {
    in_lab(async |mut lab: Lab| {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        std::fs::write(at("file"), "x").unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        symlink("loop", at("loop")).unwrap();
        for path in [
            at("fifo"),
            at("file"),
            at("socket"),
            at("loop"),
            dir.path().to_owned(),
            "/proc/self/ns/uts".into(),
            "/dev/null".into(),
        ] {
            assert_eq!(
                lab.inspect(named(&path, "eth0")).await,
                Err(LinkCause::NotANetns(path))
            );
        }
        std::fs::write(at("bare"), "").unwrap();
        assert_eq!(
            lab.inspect(named(at("bare"), "eth0")).await,
            Err(LinkCause::NotMounted(at("bare")))
        );
        for path in [
            at("missing"),
            "relative".into(),
            "".into(),
            "/proc/4194304/ns/net".into(),
        ] {
            assert_eq!(
                lab.inspect(named(&path, "eth0")).await,
                Err(LinkCause::NoNetns(path))
            );
        }
        // Nothing can be known about what is in no directory.
        for path in [at("file/under"), at("missing/under")] {
            assert_eq!(
                lab.inspect(named(&path, "eth0")).await,
                Err(LinkCause::NoDirectory(path))
            );
        }
    });
}

#[test]
fn the_namespace_of_the_host_must_be_asked_for() {
    in_lab(async |mut lab: Lab| {
        let _netns = Netns::with_veth("host0");
        let own = PathBuf::from("/proc/thread-self/ns/net");
        let named = |host_too| {
            Target::Named(ByName {
                netns: own.clone(),
                ifname: "host0".to_owned(),
                host_too,
            })
        };
        assert_eq!(
            lab.apply(named(false), &[Step::Up]).await,
            (0, Err(LinkCause::HostNetns(own.clone())))
        );
        let host0 = host("host0");
        assert!(!lab.inspect(host0.clone()).await.unwrap().up);

        // Unless that is wanted. From then on it is a namespace like any other.
        let (1, Ok(view)) = lab.apply(named(true), &[Step::Up]).await else {
            panic!("not applied")
        };
        let view = LinkView {
            was_down: false,
            ..view
        };
        assert_eq!(lab.inspect(host0).await, Ok(view.clone()));
        let link = inside(&own, &view);
        assert_eq!(
            lab.inspect(Target::Known(link.clone()))
                .await
                .map(|seen| seen.at()),
            Ok(view.at())
        );
        lab.open(link, PLAIN).await.unwrap();
    });
}

#[test]
fn a_path_that_was_made_again_leads_to_another_namespace() {
    in_lab(async |mut lab: Lab| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("netns");
        let first = Netns::with_veth("host0");
        symlink(first.path(), &path).unwrap();
        let view = lab.inspect(named(&path, "eth0")).await.unwrap();
        let link = inside(&path, &view);
        assert_eq!(
            lab.inspect(Target::Known(link.clone()))
                .await
                .map(|seen| seen.at()),
            Ok(view.at())
        );

        let second = Netns::with_veth("host1");
        std::fs::remove_file(&path).unwrap();
        symlink(second.path(), &path).unwrap();
        let no_path = LinkCause::NoPath(path.clone());
        // The first lives.
        assert_eq!(
            lab.apply(Target::Known(link.clone()), &[Step::Up]).await,
            (0, Err(no_path.clone())),
        );
        assert_eq!(lab.open(link.clone(), PLAIN).await, Err(no_path));
        let ifindex = view.ifindex + 1;
        let link = inside(&path, &LinkView { ifindex, ..view });
        let changed = LinkCause::NetnsChanged(path.clone());
        // Without that link.
        assert_eq!(lab.open(link.clone(), PLAIN).await, Err(changed));
        assert!(!lab.inspect(named(&path, "eth0")).await.unwrap().up);

        std::fs::remove_file(&path).unwrap();
        assert_eq!(lab.open(link, PLAIN).await, Err(LinkCause::NoNetns(path)));
    });
}

/// Starts a pool whose host's root is seen at `prefix`.
fn pool(prefix: &Path, threads: usize, limit: Duration) -> Pool {
    let registrar = Registrar::open(None).unwrap();
    let host = Host::here(prefix.to_owned(), registrar, Reaper::start().unwrap()).unwrap();
    Pool::start(Arc::new(host), threads, limit).unwrap()
}

#[test]
fn a_path_stays_in_the_host_prefix_over_absolute_links() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_owned();
    in_lab(async move |_| {
        let netns = Netns::with_veth("host0");
        for made in ["run/netns", "var", "proc"] {
            std::fs::create_dir_all(root.join(made)).unwrap();
        }
        std::fs::write(root.join("run/netns/c1"), "").unwrap();
        symlink("/run", root.join("var/run")).unwrap();
        // Mounts of this thread and its children only.
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(&["--make-rprivate", "/"]);
        mount(&[
            "--bind",
            &netns.to_string(),
            root.join("run/netns/c1").to_str().unwrap(),
        ]);
        mount(&["--bind", "/proc", root.join("proc").to_str().unwrap()]);

        let pool = pool(&root, 1, Duration::from_secs(5));
        let look = |path: &str| {
            let target = named(path, "eth0");
            let look = pool.run(move |worker| worker.apply(&target, &[], |_| true));
            async { look.await.unwrap().map(|view| view.mac) }
        };
        assert_eq!(look("/run/netns/c1").await, Ok(MAC));
        assert_eq!(look("/var/run/netns/c1").await, Ok(MAC));
        assert_eq!(look("/var/run/../../../run/netns/c1").await, Ok(MAC));
        // A magic link.
        assert_eq!(look(netns.path().to_str().unwrap()).await, Ok(MAC));
        // Its directory shows another.
        let none = "/var/run/netns/c2";
        let gone = LinkCause::NetnsRemoved(none.into());
        assert_eq!(look(none).await, Err(gone));
        let none = "/proc/4194304/ns/net";
        assert_eq!(look(none).await, Err(LinkCause::NoNetns(none.into())));
        std::fs::remove_file(root.join("var/run")).unwrap();
        mount(&["-t", "tmpfs", "none", root.join("proc").to_str().unwrap()]);
        for unseen in ["/var/run/netns/c1", "/proc/4194304/ns/net"] {
            assert_eq!(
                look(unseen).await,
                Err(LinkCause::NoDirectory(unseen.into()))
            );
        }
    });
    // It cannot be removed where it is mounted; here it can.
    dir.close().unwrap();
}

fn mount(arguments: &[&str]) {
    assert!(
        Command::new("mount")
            .arg("--no-canonicalize")
            .args(arguments)
            .status()
            .unwrap()
            .success(),
        "{arguments:?}"
    );
}

#[test]
fn work_that_hangs_is_told_and_its_thread_replaced() {
    in_lab(async |_| {
        let pool = pool(Path::new("/"), 1, Duration::from_secs(3));
        let (release, hang) = mpsc::channel::<()>();
        let (back, came_back) = mpsc::channel();
        let hanging = pool.run(move |_| {
            let _ = hang.recv();
            back.send(()).unwrap();
        });
        let waiting = pool.run(|_| 1);
        assert_eq!(hanging.await, Err(LinkCause::TimedOut));
        // It was given up while it waited for the only thread, or the thread's successor took it.
        assert!(matches!(waiting.await, Err(LinkCause::TimedOut) | Ok(1)));
        assert_eq!(pool.run(|_| 2).await, Ok(2));
        release.send(()).unwrap();
        came_back.recv().unwrap();
        assert_eq!(pool.run(|_| 3).await, Ok(3));
    });
}

#[test]
fn steps_that_nobody_waits_for_any_more_are_not_taken() {
    in_lab(async |_| {
        let netns = Netns::with_veth("host0");
        let pool = pool(Path::new("/"), 1, Duration::from_secs(5));
        let target = netns.eth0();
        let steps = [Step::Up, Step::Mtu(1400), Step::Mtu(1300)];
        let cut = pool
            .run(move |worker| worker.apply(&target, &steps, |taken| taken < 2))
            .await;
        assert_eq!(cut, Ok(Err(LinkCause::TimedOut)));
        let target = netns.eth0();
        let view = pool
            .run(move |worker| worker.apply(&target, &[], |_| true))
            .await
            .unwrap()
            .unwrap();
        assert_eq!((view.up, view.mtu), (true, 1400));
    });
}

#[test]
fn work_that_panics_costs_its_thread_and_no_more() {
    in_lab(async |_| {
        let pool = pool(Path::new("/"), 1, Duration::from_secs(5));
        let broken = pool.run(|_| panic!("a test of a panic")).await;
        assert!(
            matches!(broken, Err(LinkCause::Refused { .. })),
            "{broken:?}"
        );
        assert_eq!(pool.run(|_| 4).await, Ok(4));
    });
}

#[test]
fn nobody_in_a_namespace_answers_in_the_kernels_place() {
    in_lab(async |_lab: Lab| {
        let netns = Netns::with_veth("host0");
        netns.run(|| {
            let mut netlink = Netlink::open().unwrap();
            netlink.view(Which::Name("eth0"), Cookie(1)).unwrap();
            let port = netlink_port(false);
            // The next request, the third, would take this for its answer.
            let mut hostile = Socket::new(NETLINK_ROUTE).unwrap();
            hostile.bind_auto().unwrap();
            let answer = encode(RouteNetlinkMessage::NewLink(LinkMessage::default()), 0, 3);
            let sent = hostile.send_to(&answer, &SocketAddr::new(port, 0), 0);
            assert_eq!(
                sent.map_err(|error| error.kind()),
                Err(ErrorKind::ConnectionRefused)
            );
            assert_eq!(
                netlink.view(Which::Name("eth0"), Cookie(1)).unwrap().mac,
                MAC
            );
        });
    });
}

/// Returns the link inside that has this Ethernet address, or else this name.
fn of_server(netns: &Netns, ifname: &str, mac: Mac) -> Target {
    match named(netns.path(), ifname) {
        Target::Named(at) => Target::OfServer(at, mac),
        other => other,
    }
}

#[test]
fn a_link_is_found_by_the_mac_that_its_server_knows() {
    in_lab(async |mut lab: Lab| {
        let netns = Netns::with_veth("host0");
        let by = |ifname, mac| of_server(&netns, ifname, mac);
        let view = lab.inspect(by("gone", MAC)).await.unwrap();
        assert_eq!((view.ifname.as_str(), view.mac), ("eth0", MAC));
        let refused = lab
            .inspect(by("eth0", Mac([2, 9, 9, 9, 9, 9])))
            .await
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains(
                "0 links with a way out have 02:09:09:09:09:09, the address that the server knows"
            ),
            "{refused}"
        );
    });
}

#[test]
fn of_links_with_one_mac_the_one_with_a_way_out_counts() {
    in_lab(async |mut lab: Lab| {
        let netns = Netns::with_veth("host0");
        let known = of_server(&netns, "eth0", MAC);
        // As KubeVirt does: the interface becomes a port under another name, and another link has its name and address.
        netns.ip_link("set eth0 down\nset eth0 name eth0-nic\nadd br0 type bridge\n");
        netns.ip_link("set eth0-nic master br0\nset eth0-nic up\nset br0 up\n");
        netns.ip_link(&format!(
            "add eth0 address {MAC} type veth peer name inside\n"
        ));
        assert_eq!(lab.inspect(known.clone()).await.unwrap().ifname, "eth0-nic");
        // Of two that are ports, the one whose other end is outside.
        netns.ip_link("set eth0 master br0\n");
        assert_eq!(lab.inspect(known.clone()).await.unwrap().ifname, "eth0-nic");
        netns.ip_link("delete eth0-nic\n");
        assert_eq!(lab.inspect(known.clone()).await.unwrap().ifname, "eth0");
        netns.ip_link("set eth0 nomaster\n");
        let refused = lab.inspect(known.clone()).await.unwrap_err().to_string();
        assert!(
            refused.contains("0 links with a way out")
                && refused.ends_with("eth0 is only a stand-in"),
            "{refused}"
        );
    });
}
