//! Local ranges as `leasehold list` shows them.

use leasehold_api::control::{Range, Taken};

use super::columns::{columns, escaped};

const HEAD: [&str; 6] = ["NETWORK", "LAN", "SET", "RANGE", "SIZE", "TAKEN"];

/// Lays the ranges out in columns, and then the taken addresses of each.
pub(super) fn table(ranges: &[Range]) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(ranges.iter().map(row));
    let mut text = columns(&rows);
    for range in ranges.iter().filter(|range| !range.taken.is_empty()) {
        let set = if range.fallback {
            "fallback".to_owned()
        } else {
            format!("set {}", range.set)
        };
        text.push_str(&format!("\n{}, {set}:\n", escaped(&range.network)));
        for Taken {
            address,
            attachment,
            since,
        } in &range.taken
        {
            let by = if since.is_some() {
                ""
            } else {
                ", as its file says"
            };
            text.push_str(&escaped(&format!("{address}: {attachment}{by}")));
            text.push('\n');
        }
    }
    text
}

fn row(range: &Range) -> [String; HEAD.len()] {
    let cells = [
        range.network.clone(),
        range.lan.to_string(),
        if range.fallback {
            "fallback".to_owned()
        } else {
            range.set.to_string()
        },
        format!("{}-{} in {}", range.first, range.last, range.subnet),
        range.size.to_string(),
        range.taken.len().to_string(),
    ];
    cells.map(|cell| escaped(&cell))
}

#[cfg(test)]
mod tests {
    use leasehold_api::control::{Attachment, Lan};

    use super::*;

    fn taken(address: &str, network: &str, container: &str, since: Option<u64>) -> Taken {
        let attachment = Attachment::Cni {
            network: network.to_owned(),
            container: container.to_owned(),
            ifname: "eth0".to_owned(),
        };
        Taken {
            address: address.parse().unwrap(),
            attachment,
            since,
        }
    }

    fn ranges() -> Vec<Range> {
        let v4 = Range {
            network: "pods".to_owned(),
            lan: Lan::Link {
                parent: "cni0".into(),
                vlan: 0,
            },
            set: 0,
            subnet: "10.0.0.0/24".parse().unwrap(),
            first: "10.0.0.1".parse().unwrap(),
            last: "10.0.0.254".parse().unwrap(),
            size: 253,
            fallback: false,
            taken: vec![
                taken("10.0.0.2", "pods", "c1", Some(1)),
                taken("10.0.0.3", "other", "x", Some(1)),
                taken("10.0.0.4", "pods", "old", None),
            ],
        };
        let v6 = Range {
            set: 1,
            subnet: "fd00::/64".parse().unwrap(),
            first: "fd00::1".parse().unwrap(),
            last: "fd00::ffff:ffff:ffff:ffff".parse().unwrap(),
            size: u64::MAX,
            taken: vec![taken("fd00::2", "pods", "c1", Some(1))],
            ..v4.clone()
        };
        let fallback = Range {
            network: "lan".to_owned(),
            first: "10.0.0.200".parse().unwrap(),
            last: "10.0.0.203".parse().unwrap(),
            size: 4,
            fallback: true,
            taken: vec![taken("10.0.0.201", "lan", "c9", Some(1))],
            ..v4.clone()
        };
        vec![v4, v6, fallback]
    }

    #[test]
    fn each_range_is_shown_with_what_is_taken_of_it() {
        let expected = "\
NETWORK  LAN   SET       RANGE                                           SIZE                  TAKEN
pods     cni0  0         10.0.0.1-10.0.0.254 in 10.0.0.0/24              253                   3
pods     cni0  1         fd00::1-fd00::ffff:ffff:ffff:ffff in fd00::/64  18446744073709551615  1
lan      cni0  fallback  10.0.0.200-10.0.0.203 in 10.0.0.0/24            4                     1

pods, set 0:
10.0.0.2: pods/c1/eth0
10.0.0.3: other/x/eth0
10.0.0.4: pods/old/eth0, as its file says

pods, set 1:
fd00::2: pods/c1/eth0

lan, fallback:
10.0.0.201: lan/c9/eth0
";
        assert_eq!(table(&ranges()), expected);
    }
}
