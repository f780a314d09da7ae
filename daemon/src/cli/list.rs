//! `leasehold list`: leases, as a table or as JSON, once or repeatedly.

pub(super) mod table;

use std::io::Write;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use leasehold_api::control::{
    BINDINGS, Binding, Bindings, NotAdopted, Pool, RANGES, Ranges, Which,
};

use leasehold_api::to_json;

use super::args::{Columns, ListArgs};
use super::client::{self, ClientError};
use super::ranges;
use super::term::{Term, printable};

/// The pause between two looks with `--watch`.
const PAUSE: Duration = Duration::from_secs(1);

/// Prints what the daemon lists; with `--watch` repeatedly, in place on a terminal, until the reader has seen enough.
pub(crate) fn list(args: &ListArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let term = Term::of_stdout();
    if !args.watch {
        return Ok(out.write_all(asked(args, term)?.as_bytes())?);
    }
    loop {
        let text = match asked(args, term) {
            Err(error @ ClientError::Unreadable(_)) => return Err(error.into()),
            // The daemon may be restarting.
            Err(error) => format!("{}\n", printable(&error.to_string())),
            Ok(text) => text,
        };
        out.write_all(term.in_place(&text).as_bytes())?;
        out.flush()?;
        thread::sleep(PAUSE);
    }
}

/// Asks the daemon and returns the text to print.
fn asked(args: &ListArgs, term: Term) -> Result<String, ClientError> {
    let which = args.which.which();
    if args.ranges {
        return ranges_of(args);
    }
    let path = format!("{BINDINGS}?{}", which.parameters().join("&"));
    let body = client::get_to_read(&args.socket, &path)?;
    if args.json {
        return client::pretty(&body);
    }
    let listed: Bindings = client::read(&body)?;
    let table = match args.output {
        Columns::Few => table::few(&listed.bindings, term.columns()),
        Columns::Wide => table::wide(&listed.bindings),
    };
    let others = match which == Which::default() {
        true => of_the_host(&listed),
        false => String::new(),
    };
    Ok(table + &of_leases(&listed.bindings) + &others)
}

/// Returns the local ranges. Only a daemon knows those of fallbacks; without one, the others are shown.
fn ranges_of(args: &ListArgs) -> Result<String, ClientError> {
    let asked =
        client::get_to_read(&args.socket, RANGES).and_then(|body| client::read::<Ranges>(&body));
    let fallbacks = match asked {
        Ok(Ranges { mut ranges }) => {
            ranges.retain(|range| range.fallback);
            Ok(ranges)
        }
        Err(error) => Err(error.to_string()),
    };
    let listed = ranges::Listed::gather(&args.cni_conf_dir, fallbacks);
    if args.json {
        return client::pretty(to_json(&listed).as_bytes());
    }
    Ok(listed.table())
}

/// Returns a heading with these lines, to go below the table; empty if there are no lines.
fn below(head: &str, lines: impl Iterator<Item = String>) -> String {
    let lines: String = lines.map(|line| printable(&line) + "\n").collect();
    if lines.is_empty() {
        lines
    } else {
        format!("\n{head}\n{lines}")
    }
}

/// Returns what a row of the table has no room for: what delays RELEASEs, which containers are in namespaces without a path, and
/// whose address is not the one that Docker was told.
fn of_leases(bindings: &[Binding]) -> String {
    let held_up = |binding: &Binding| {
        let (what, seconds) = (binding.held_up_by.as_ref()?, binding.seconds_held_up?);
        let end = binding
            .seconds_to_expiry
            .map(|seconds| format!(" (the lease expires in {seconds} s)"));
        let end = end.unwrap_or_default();
        Some(format!(
            "{}: for {seconds} s, {what}{end}",
            binding.attachment
        ))
    };
    let pathless = |binding: &Binding| {
        let netns = binding.link.as_ref().and_then(|link| link.netns.as_deref());
        let line = format!(
            "{}: was at {}",
            binding.attachment,
            netns.unwrap_or_default()
        );
        binding.pathless.then_some(line)
    };
    let misbelieved = |binding: &Binding| {
        let (told, address) = (binding.told?, binding.address?);
        let differs = told.addr() != address.addr();
        differs.then(|| format!("{}: {told}, and has {address}", binding.attachment))
    };
    let all = || bindings.iter();
    below("Being given back, but held up:", all().filter_map(held_up))
        + &below(
            "No path leads to these any more; extended from the host until a DEL, a GC or the namespace's end:",
            all().filter_map(pathless),
        )
        + &below(
            "Docker still shows an earlier address:",
            all().filter_map(misbelieved),
        )
}

/// Returns what the daemon says besides its leases: which addresses Docker's networks reserve, which of their parents were found by
/// their subnet, which containers run without a lease of the daemon's, and which links nobody deletes.
fn of_the_host(listed: &Bindings) -> String {
    let reserved = |Pool { id, reserved, .. }: &Pool| {
        let addresses: Vec<_> = reserved.iter().map(Ipv4Addr::to_string).collect();
        (!addresses.is_empty()).then(|| format!("{id}: {}", addresses.join(", ")))
    };
    let found = |pool: &Pool| Some(format!("{}: {}", pool.id, pool.found_parent.as_deref()?));
    let not = |NotAdopted { attachment, reason }: &NotAdopted| format!("{attachment}: {reason}");
    below(
        "Reserved in Docker's networks, without a lease:",
        listed.pools.iter().filter_map(reserved),
    ) + &below(
        "Docker's networks whose parent was found by their subnet:",
        listed.pools.iter().filter_map(found),
    ) + &below(
        "Not adopted; nobody renews their leases:",
        listed.not_adopted.iter().map(not),
    ) + &below(
        "Made for Docker by another leasehold, or under a store that is lost. If no other leasehold runs on this host, delete them:",
        listed
            .strangers
            .iter()
            .map(|link| format!("ip link delete {link}")),
    )
}

#[cfg(test)]
mod tests {
    use leasehold_api::control::{Attachment, Identity, Lan, Link, Source};

    use super::*;

    fn attachment(network: &str, container: &str) -> Attachment {
        let [network, container, ifname] = [network, container, "eth0"].map(str::to_owned);
        Attachment::Cni {
            network,
            container,
            ifname,
        }
    }

    fn binding(container: &str) -> Binding {
        let hex: String = format!("\0{container}/lan/eth0")
            .bytes()
            .map(|b| format!("{b:02x}"))
            .collect();
        Binding {
            attachment: attachment("lan", container),
            name: container.to_owned(),
            identity: Some(Identity {
                lan: Lan::Link {
                    parent: "eno1".into(),
                    vlan: 20,
                },
                client_id: hex,
                chaddr: "02:00:00:00:00:01".to_owned(),
            }),
            address: Some("10.0.0.23/24".parse().unwrap()),
            more_addresses: Vec::new(),
            state: "BOUND".to_owned(),
            source: Some(Source::Server),
            server: Some("10.0.0.1".parse().unwrap()),
            lost: false,
            asked_in_vain: None,
            seconds_asking: None,
            seconds_to_t1: Some(1_795),
            seconds_to_t2: Some(3_145),
            seconds_to_expiry: Some(3_595),
            lease_seconds: Some(3600),
            seconds_to_release: None,
            pathless: false,
            held_up_by: None,
            seconds_held_up: None,
            told: None,
            link: Some(Link {
                netns: Some("/run/netns/c1".to_owned()),
                ifindex: 2,
                mac: "02:00:00:00:00:01".to_owned(),
            }),
        }
    }

    #[test]
    fn the_table_shows_every_binding_in_columns() {
        let acquiring = Binding {
            address: None,
            server: None,
            source: None,
            state: "SELECTING".to_owned(),
            seconds_to_t1: None,
            seconds_to_t2: None,
            seconds_to_expiry: None,
            ..binding("c2-with-a-longer-name")
        };
        let for_ever = Binding {
            seconds_to_t1: None,
            seconds_to_t2: None,
            seconds_to_expiry: None,
            ..binding("c3")
        };
        let releasing = Binding {
            state: "RELEASING".to_owned(),
            seconds_to_t1: Some(0),
            link: Some(Link {
                netns: None,
                ifindex: 4,
                mac: "02:00:00:00:00:01".to_owned(),
            }),
            identity: Some(Identity {
                lan: Lan::Network {
                    network: "lan".to_owned(),
                },
                client_id: "ff00010203".to_owned(),
                chaddr: "02:00:00:00:00:04".to_owned(),
            }),
            ..binding("c4")
        };
        let kept = Binding {
            state: "KEPT".to_owned(),
            seconds_to_release: Some(42),
            ..binding("c5")
        };
        let kept_beyond_its_end = Binding {
            state: "KEPT".to_owned(),
            seconds_to_release: Some(498),
            seconds_to_expiry: Some(1),
            ..binding("c6")
        };
        let bindings = [
            binding("c1"),
            acquiring,
            for_ever,
            releasing,
            kept,
            kept_beyond_its_end,
        ];
        let few = table::few(&bindings, Some(80));
        let wide = table::wide(&bindings);
        assert_eq!(few, include_str!("list/few.golden"), "\n{few}");
        assert_eq!(wide, include_str!("list/wide.golden"), "\n{wide}");
    }

    #[test]
    fn an_empty_table_is_its_head() {
        assert_eq!(
            table::few(&[], Some(80)),
            "NAME  ATTACHMENT  ADDRESS  STATE  LEFT\n"
        );
        assert!(table::wide(&[]).starts_with("ATTACHMENT  NAME  LAN  "));
    }

    #[test]
    fn names_cannot_move_the_cursor() {
        let mut odd = binding("c1");
        odd.attachment = attachment("\u{1b}[2Jlan", "c1");
        assert!(
            !table::few(&[odd.clone()], Some(80)).contains('\u{1b}')
                && !table::wide(&[odd]).contains('\u{1b}')
        );
    }

    #[test]
    fn a_table_is_cut_to_the_reader_where_names_are_long() {
        let mut long = binding(&"c0ffee".repeat(11));
        long.attachment = attachment("a-network-with-a-long-name", &"c0ffee".repeat(11));
        let whole = table::few(&[long.clone(), binding("c1")], None);
        assert!(!whole.contains('…'), "a reader without a terminal: {whole}");
        let table = table::few(&[long, binding("c1")], Some(80));
        assert!(
            table.lines().all(|line| line.chars().count() <= 80),
            "{table}"
        );
        assert!(
            table.contains("…") && table.contains("10.0.0.23/24  BOUND  59m55s"),
            "{table}"
        );
    }

    #[test]
    fn what_needs_a_word_stands_below_the_table() {
        let told = |told: &str| Binding {
            told: Some(told.parse().unwrap()),
            ..binding("c3")
        };
        let waits = |container: &str, what: &str| Binding {
            held_up_by: Some(what.to_owned()),
            seconds_held_up: Some(312),
            ..binding(container)
        };
        let listed = Bindings {
            bindings: vec![
                binding("c1"),
                Binding {
                    pathless: true,
                    ..binding("c2")
                },
                told("10.0.0.23/16"),
                told("10.0.0.24/16"),
                waits("c4", "host link eth0 is not there"),
                Binding {
                    seconds_to_expiry: None,
                    ..waits("c5", "odd\u{1b}[2J")
                },
            ],
            pools: vec![
                pool("a", None, &[]),
                pool("b", None, &["10.0.0.1", "10.0.0.9"]),
                pool("192.168.1.0/24;;found=eth0", Some("eth0"), &[]),
            ],
            not_adopted: vec![NotAdopted {
                attachment: binding("c6").attachment,
                reason: "no DHCP offer".to_owned(),
            }],
            strangers: vec!["lh0123".to_owned()],
            refused: [].into(),
        };
        let expected = "
Being given back, but held up:
lan/c4/eth0: for 312 s, host link eth0 is not there (the lease expires in 3595 s)
lan/c5/eth0: for 312 s, odd\\u{1b}[2J

No path leads to these any more; extended from the host until a DEL, a GC or the namespace's end:
lan/c2/eth0: was at /run/netns/c1

Docker still shows an earlier address:
lan/c3/eth0: 10.0.0.24/16, and has 10.0.0.23/24

Reserved in Docker's networks, without a lease:
b: 10.0.0.1, 10.0.0.9

Docker's networks whose parent was found by their subnet:
192.168.1.0/24;;found=eth0: eth0

Not adopted; nobody renews their leases:
lan/c6/eth0: no DHCP offer

Made for Docker by another leasehold, or under a store that is lost. If no other leasehold runs on this host, delete them:
ip link delete lh0123
";
        let notes = of_leases(&listed.bindings) + &of_the_host(&listed);
        assert_eq!(notes, expected);
        assert_eq!(of_leases(&[binding("c1")]), "");
        assert_eq!(of_the_host(&Bindings::default()), "");
    }

    fn pool(id: &str, found_parent: Option<&str>, reserved: &[&str]) -> Pool {
        Pool {
            id: id.to_owned(),
            found_parent: found_parent.map(str::to_owned),
            gateway: None,
            reserved: reserved.iter().map(|text| text.parse().unwrap()).collect(),
        }
    }
}
