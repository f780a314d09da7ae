use super::*;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn lan() -> Lan {
    Lan::Link {
        parent: "eth0".into(),
        vlan: 0,
    }
}

fn at(seconds: u64) -> Now {
    Now {
        boot: Instant::from_boot(Duration::from_secs(seconds)),
        wall: WallTime::from_epoch(Duration::from_secs(1_000_000 + seconds)),
    }
}

fn net(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}

fn offers(server: Ipv4Addr, subnet: &str) -> Said {
    Said {
        server,
        subnet: Some(net(subnet)),
        extends: false,
        acknowledges: false,
    }
}

fn extends(server: Ipv4Addr) -> Said {
    Said {
        server,
        subnet: None,
        extends: true,
        acknowledges: true,
    }
}

#[test]
fn the_account_knows_the_last_server_and_its_last_ack() {
    let mut accounts = Accounts::default();
    assert_eq!(accounts.last_server(&lan()), None);
    accounts.heard(&lan(), extends(SERVER), at(10).boot);
    accounts.heard(&lan(), offers(OTHER, "10.0.0.5/24"), at(20).boot);
    accounts.heard(&lan(), offers(SERVER, "10.0.0.6/24"), at(30).boot);
    assert_eq!(accounts.last_server(&lan()), Some(SERVER));
    let since = |server, seconds| accounts.acknowledged_since(&lan(), server, at(seconds).boot);
    assert!(since(SERVER, 10) && !since(SERVER, 11) && !since(OTHER, 0));
}

fn troubles(accounts: &Accounts, now: u64) -> Vec<(TroubleKind, u64)> {
    let found = accounts.troubles(std::iter::empty(), at(now).boot);
    found
        .iter()
        .map(|trouble| (trouble.kind, trouble.count))
        .collect()
}

#[test]
fn a_lan_is_silent_for_a_minute_or_until_it_answers() {
    let mut accounts = Accounts::default();
    let silent = |accounts: &Accounts, now| accounts.is_silent(&lan(), at(now).boot);
    assert!(!silent(&accounts, 5));
    accounts.no_offer(&lan(), at(5).boot);
    assert!(silent(&accounts, 5) && silent(&accounts, 64) && !silent(&accounts, 65));
    accounts.heard(&lan(), offers(SERVER, "10.0.0.9/24"), at(5).boot);
    assert!(!silent(&accounts, 6));
    accounts.no_offer(&lan(), at(7).boot);
    assert!(silent(&accounts, 8));
    accounts.has_room(&lan());
    assert!(!silent(&accounts, 8));
}

#[test]
fn failed_adds_count_until_a_success_or_ten_minutes() {
    let mut accounts = Accounts::default();
    let whose = Attachment::cni("lan", "c1", "eth0");
    let fail = |accounts: &mut Accounts, now| {
        accounts.add_failed(&lan(), &whose, "no DHCP offer".to_owned(), at(now));
    };
    (1..=3).for_each(|now| fail(&mut accounts, now));
    let found = accounts.troubles(std::iter::empty(), at(3).boot);
    assert_eq!(
        (found[0].count, found[0].since, found[0].sentence.as_str()),
        (
            3,
            Some(at(1).wall),
            "3 ADDs on eth0 failed, the last that of lan/c1/eth0: no DHCP offer"
        )
    );
    assert_eq!(troubles(&accounts, 602), [(TroubleKind::AddsFail, 3)]);
    assert_eq!(troubles(&accounts, 603), []);
    fail(&mut accounts, 700);
    assert_eq!(troubles(&accounts, 700), [(TroubleKind::AddsFail, 1)]);
    accounts.add_succeeded(&lan());
    assert_eq!(troubles(&accounts, 700), []);
}

#[test]
fn a_server_that_stops_to_extend_leases_is_news_once() {
    let mut accounts = Accounts::default();
    let asked = |accounts: &mut Accounts, since, now| {
        accounts.asked_in_vain(&lan(), SERVER, at(since).boot, at(now))
    };
    accounts.heard(&lan(), extends(SERVER), at(10).boot);
    assert!(!asked(&mut accounts, 9, 14), "it extended another since");
    assert!(asked(&mut accounts, 11, 15) && !asked(&mut accounts, 12, 16));
    let since = |accounts: &Accounts| {
        accounts
            .silent_since(&lan(), SERVER)
            .map(|silent| silent.boot)
    };
    assert_eq!(since(&accounts), Some(at(11).boot));
    // What it offers to others shows that it is there, not that it extends leases.
    let offer = accounts.heard(&lan(), offers(SERVER, "10.0.0.9/24"), at(17).boot);
    assert!(offer.is_none() && since(&accounts).is_some());
    let back = accounts.heard(&lan(), extends(SERVER), at(18).boot);
    assert_eq!(back.map(|silent| silent.boot), Some(at(11).boot));
    assert!(since(&accounts).is_none() && asked(&mut accounts, 20, 24));
}

#[test]
fn servers_that_offer_different_subnets_are_trouble() {
    let mut accounts = Accounts::default();
    accounts.heard(&lan(), offers(SERVER, "10.0.0.9/24"), at(1).boot);
    accounts.heard(&lan(), offers(OTHER, "10.0.0.77/24"), at(2).boot);
    assert_eq!(troubles(&accounts, 3), [], "a pair that shares a subnet");
    accounts.heard(&lan(), offers(OTHER, "192.168.1.7/24"), at(4).boot);
    let found = accounts.troubles(std::iter::empty(), at(4).boot);
    assert_eq!(
        found[0].sentence,
        "servers on eth0 offer different subnets: 10.0.0.1 offers 10.0.0.0/24, 10.0.0.2 offers 192.168.1.0/24"
    );
    assert_eq!(troubles(&accounts, 3_601), [], "an hour after the first");
    // A lease that is held says so as long as it is held.
    let held = [(&lan(), SERVER, net("10.0.0.9/24"))];
    let found = accounts.troubles(held.into_iter(), at(3_601).boot);
    assert_eq!(found[0].kind, TroubleKind::SubnetsDiffer);
}

#[test]
fn there_is_an_account_of_so_many_lans_and_servers() {
    let mut accounts = Accounts::default();
    let lans = (0..2 * MOST).map(|n| Lan::Network(format!("lan{n}").into()));
    lans.zip(1..)
        .for_each(|(lan, now)| accounts.no_offer(&lan, at(now).boot));
    assert_eq!(accounts.0.len(), MOST);
    for n in 0..=255 {
        let server = Ipv4Addr::new(10, 0, 0, n);
        accounts.heard(&lan(), extends(server), at(1_000).boot);
    }
    assert_eq!(accounts.0[&lan()].servers.len(), MOST_SERVERS);
    accounts.no_offer(&Lan::Network("late".into()), at(5_000).boot);
    assert_eq!(accounts.0.len(), 1, "what is old is forgotten");
}

fn named(name: &str) -> Lan {
    Lan::Network(name.into())
}

fn time(seconds: f64) -> Instant {
    Instant::from_boot(Duration::from_secs_f64(seconds))
}

#[test]
fn a_lan_has_ten_declines_in_ten_minutes() {
    let (mut lans, a) = (Accounts::default(), lan());
    assert!(
        (0..10).all(|n| lans.may_decline(&a, time(n.into())) && lans.decline(&a, time(n.into())))
    );
    assert!(!lans.may_decline(&a, time(599.999)) && !lans.decline(&a, time(599.999)));
    // Each LAN has its own, and what is known about another one stays.
    assert!(lans.decline(&named("b"), time(599.999)));
    assert!(!lans.decline(&a, time(599.999)));
    assert!(lans.may_decline(&a, time(600.0)) && lans.decline(&a, time(600.0)));
    assert!(!lans.decline(&a, time(600.999)) && lans.decline(&a, time(601.0)));
}

#[test]
fn eight_proxies_are_remembered_for_ten_minutes() {
    let (mut lans, a) = (Accounts::default(), lan());
    let mac = |n| Mac([2, 0, 0, 0, 0, n]);
    let known = |lans: &Accounts, n, now| lans.is_proxy(&lan(), mac(n), time(now));
    lans.answers_for_all(&a, mac(0), time(0.0));
    lans.answers_for_all(&named("b"), mac(1), time(0.0));
    assert!(known(&lans, 0, 599.999) && !known(&lans, 0, 600.0) && !known(&lans, 1, 0.0));
    (1..=8).for_each(|n| lans.answers_for_all(&a, mac(n), time(1.0)));
    assert!(!known(&lans, 0, 1.0) && known(&lans, 1, 1.0));
    lans.answers_for_all(&a, mac(1), time(2.0));
    lans.answers_for_all(&a, mac(9), time(2.0));
    assert!(known(&lans, 1, 2.0) && !known(&lans, 2, 2.0));
}

#[test]
fn a_server_is_known_to_be_on_the_wire_for_ten_minutes() {
    let (mut lans, a) = (Accounts::default(), lan());
    let all = |lans: &Accounts, now| lans.are_on_wire(&lan(), |_| true, time(now));
    assert!(!all(&lans, 0.0));
    assert_eq!(lans.is_on_wire(&a, SERVER, time(0.0)), None);
    lans.answered(&a, OTHER);
    assert_eq!(lans.is_on_wire(&a, SERVER, time(1.0)), Some(false));
    lans.answered(&a, SERVER);
    assert_eq!(lans.is_on_wire(&a, SERVER, time(599.999)), Some(true));
    assert!(all(&lans, 599.999));
    assert!(!lans.are_on_wire(&a, |address| address != SERVER, time(1.0)));
    assert_eq!(lans.is_on_wire(&a, OTHER, time(599.0)), None);
    // Another server may be in a sibling.
    assert!(!all(&lans, 599.5));
    lans.answered(&a, OTHER);
    assert!(all(&lans, 599.999) && !lans.are_on_wire(&a, |at| at == SERVER, time(600.0)));
    assert_eq!(lans.is_on_wire(&a, SERVER, time(600.0)), None);
    assert!(!all(&lans, 600.0));
}
