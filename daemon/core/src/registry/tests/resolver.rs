//! Published facts about leases: their name servers, while they are held.

use super::rig::*;

const FIRST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const SECOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);

fn with(server: Ipv4Addr) -> Option<Dns> {
    Some(Dns {
        servers: vec![server.into()],
        ..Dns::default()
    })
}

fn rig() -> Rig {
    let mut rig = Rig::new(8);
    rig.dns = Some(FIRST);
    rig
}

/// Returns what was published since the last call.
fn published(rig: &mut Rig) -> Vec<(String, Option<Dns>)> {
    std::mem::take(&mut rig.published)
}

fn one(who: &str, dns: Option<Dns>) -> Vec<(String, Option<Dns>)> {
    vec![(who.to_owned(), dns)]
}

#[test]
fn a_renewal_is_published_only_if_the_name_servers_change() {
    let mut rig = rig();
    rig.add("a", 1, "id");
    published(&mut rig);
    rig.run_until(1060.0);
    assert_eq!(published(&mut rig), []);
    rig.dns = Some(SECOND);
    rig.run_until(1120.0);
    assert_eq!(published(&mut rig), one("a", with(SECOND)));
    rig.dns = None;
    rig.run_until(1180.0);
    assert_eq!(published(&mut rig), one("a", None));
}
