//! `leasehold list`: leases, as a table or as JSON, once or repeatedly.

mod table;

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
    let Bindings {
        bindings,
        pools,
        not_adopted,
        strangers,
        refused: _,
    } = client::read(&body)?;
    let table = match args.output {
        Columns::Few => table::few(&bindings, term.columns()),
        Columns::Wide => table::wide(&bindings),
    };
    let notes = held_up(&bindings) + &pathless(&bindings) + &misbelieved(&bindings);
    let others = match which == Which::default() {
        true => {
            reserved(&pools)
                + &found_parents(&pools)
                + &unadopted(&not_adopted)
                + &left_over(&strangers)
        }
        false => String::new(),
    };
    Ok(table + &notes + &others)
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

/// Returns what delays RELEASEs.
fn held_up(bindings: &[Binding]) -> String {
    let line = |binding: &Binding| {
        let what = binding.held_up_by.as_ref()?;
        let held_up = binding.seconds_held_up?;
        let end = binding
            .seconds_to_expiry
            .map(|seconds| format!(" (the lease expires in {seconds} s)"));
        let end = end.unwrap_or_default();
        let attachment = &binding.attachment;
        Some(format!("{attachment}: for {held_up} s, {what}{end}"))
    };
    below(
        "Being given back, but held up:",
        bindings.iter().filter_map(line),
    )
}

/// Returns the containers in namespaces without a path.
fn pathless(bindings: &[Binding]) -> String {
    let line = |binding: &Binding| {
        let link = binding.link.as_ref();
        let netns = link.and_then(|link| link.netns.as_deref());
        let netns = netns.unwrap_or_default();
        format!("{}: was at {netns}", binding.attachment)
    };
    let head = "No path leads to these any more; extended from the host until a DEL, a GC or the namespace's end:";
    below(
        head,
        bindings.iter().filter(|binding| binding.pathless).map(line),
    )
}

/// Returns the containers whose address is not the one that Docker was told.
fn misbelieved(bindings: &[Binding]) -> String {
    let line = |binding: &Binding| {
        let told = binding.told?;
        let address = binding.address?;
        let differs = told.addr() != address.addr();
        differs.then(|| format!("{}: {told}, and has {address}", binding.attachment))
    };
    below(
        "Docker still shows an earlier address:",
        bindings.iter().filter_map(line),
    )
}

/// Returns the addresses that Docker networks reserve.
fn reserved(pools: &[Pool]) -> String {
    let line = |Pool { id, reserved, .. }: &Pool| {
        let addresses: Vec<_> = reserved.iter().map(Ipv4Addr::to_string).collect();
        format!("{id}: {}", addresses.join(", "))
    };
    let pools = pools.iter().filter(|pool| !pool.reserved.is_empty());
    below(
        "Reserved in Docker's networks, without a lease:",
        pools.map(line),
    )
}

/// Returns the Docker networks whose parent was found by their subnet.
fn found_parents(pools: &[Pool]) -> String {
    let line = |pool: &Pool| Some(format!("{}: {}", pool.id, pool.found_parent.as_deref()?));
    below(
        "Docker's networks whose parent was found by their subnet:",
        pools.iter().filter_map(line),
    )
}

/// Returns the running containers whose leases the daemon does not hold.
fn unadopted(not_adopted: &[NotAdopted]) -> String {
    let line = |NotAdopted { attachment, reason }: &NotAdopted| format!("{attachment}: {reason}");
    below(
        "Not adopted; nobody renews their leases:",
        not_adopted.iter().map(line),
    )
}

/// The heading for links that another store's daemon made.
const LEFT_OVER: &str = "Made for Docker by another leasehold, or under a store that is lost. If no other leasehold runs on this host, delete them:";

/// Returns the links that nobody deletes, each with the command that deletes it.
fn left_over(strangers: &[String]) -> String {
    let lines = strangers.iter();
    below(
        LEFT_OVER,
        lines.map(|link| format!("ip link delete {link}")),
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
    fn what_docker_shows_stands_below_where_it_is_not_so() {
        let told = |told: &str| Binding {
            told: Some(told.parse().unwrap()),
            ..binding("c1")
        };
        assert_eq!(misbelieved(&[binding("c1"), told("10.0.0.23/16")]), "");
        assert_eq!(
            misbelieved(&[told("10.0.0.24/16")]),
            "\nDocker still shows an earlier address:\nlan/c1/eth0: 10.0.0.24/16, and has 10.0.0.23/24\n"
        );
    }

    #[test]
    fn what_no_path_leads_to_stands_below() {
        assert_eq!(pathless(&[binding("c1")]), "");
        let text = pathless(&[
            binding("c1"),
            Binding {
                pathless: true,
                ..binding("c2")
            },
        ]);
        assert!(
            text.starts_with("\nNo path leads to these any more") && !text.contains("c1/"),
            "{text}"
        );
        assert!(text.contains("\nlan/c2/eth0: was at /run/netns/"), "{text}");
    }

    #[test]
    fn the_list_says_what_holds_a_release_up() {
        let waits = |container: &str, what: &str| Binding {
            held_up_by: Some(what.to_owned()),
            seconds_held_up: Some(312),
            ..binding(container)
        };
        assert_eq!(held_up(&[binding("c1")]), "");
        let endless = Binding {
            seconds_to_expiry: None,
            ..waits("c3", "odd\u{1b}[2J")
        };
        assert_eq!(
            held_up(&[
                binding("c1"),
                waits("c2", "host link eth0 is not there"),
                endless
            ]),
            "\nBeing given back, but held up:\n\
             lan/c2/eth0: for 312 s, host link eth0 is not there (the lease expires in 3595 s)\n\
             lan/c3/eth0: for 312 s, odd\\u{1b}[2J\n"
        );
    }

    #[test]
    fn what_dockers_networks_reserve_stands_below() {
        let pool = |id: &str, reserved: &[&str]| Pool {
            id: id.to_owned(),
            found_parent: None,
            gateway: None,
            reserved: reserved.iter().map(|text| text.parse().unwrap()).collect(),
        };
        assert_eq!(reserved(&[pool("a", &[])]), "");
        assert_eq!(
            reserved(&[
                pool("a", &[]),
                pool("b", &["10.0.0.1", "10.0.0.9"]),
                pool("\u{1b}[2J", &["10.1.0.1"])
            ]),
            "\nReserved in Docker's networks, without a lease:\nb: 10.0.0.1, 10.0.0.9\n\\u{1b}[2J: 10.1.0.1\n"
        );
    }

    #[test]
    fn parents_that_were_found_stand_below() {
        let pool = |found_parent: Option<&str>| Pool {
            id: "192.168.1.0/24;;found=eth0".to_owned(),
            found_parent: found_parent.map(str::to_owned),
            gateway: None,
            reserved: vec![],
        };
        assert_eq!(found_parents(&[pool(None)]), "");
        assert_eq!(
            found_parents(&[pool(None), pool(Some("eth0"))]),
            "\nDocker's networks whose parent was found by their subnet:\n192.168.1.0/24;;found=eth0: eth0\n"
        );
    }

    #[test]
    fn what_was_not_adopted_stands_below_with_the_reason() {
        let not = |container: &str, reason: &str| NotAdopted {
            attachment: binding(container).attachment,
            reason: reason.to_owned(),
        };
        assert_eq!(unadopted(&[]), "");
        assert_eq!(
            unadopted(&[not("c1", "no DHCP offer"), not("c2", "gone\u{1b}[2J")]),
            "\nNot adopted; nobody renews their leases:\nlan/c1/eth0: no DHCP offer\nlan/c2/eth0: gone\\u{1b}[2J\n"
        );
    }

    #[test]
    fn the_list_says_how_to_delete_links_of_a_lost_store() {
        assert_eq!(left_over(&[]), "");
        assert_eq!(
            left_over(&["lh0123".to_owned(), "lh\u{1b}[2J".to_owned()]),
            "\nMade for Docker by another leasehold, or under a store that is lost. If no other leasehold runs on this host, delete them:\nip link delete lh0123\n\
             ip link delete lh\\u{1b}[2J\n"
        );
    }
}
