//! `leasehold show`: everything about one lease.

use leasehold_api::control::{Binding, DhcpOption, Event, Interface, Lease, SHOW, Story, Which};

use super::args::ShowArgs;
use super::client::{self, ClientError};
use super::columns::{columns, or_dash};
use super::events;
use super::list::table::kept_for;
use super::order::Verdict;
use super::term::{brief, printable};

/// Asks the daemon; returns the text to print, and whether it is about one lease.
pub(crate) fn show(args: &ShowArgs) -> Result<(String, Verdict), ClientError> {
    let which = Which {
        name: Some(args.name.clone()),
        ..Which::default()
    };
    let answer = client::get_to_read(
        &args.socket,
        &format!("{SHOW}?{}", which.parameters().join("&")),
    )?;
    let story: Story = client::read(&answer)?;
    let verdict = if story.lease.is_some() {
        Verdict::Done
    } else {
        Verdict::Nobody
    };
    if args.json {
        return Ok((client::pretty(&answer)?, verdict));
    }
    let text = match (&story.lease, &story.candidates[..]) {
        (Some(lease), _) => text(lease),
        (None, []) => {
            printable(&format!(
                "There is no lease called {}: `leasehold list` shows all.",
                args.name
            )) + "\n"
        }
        (None, several) => {
            let lines: String = several.iter().map(candidate).collect();
            format!("{} leases match the name:\n{lines}", several.len())
        }
    };
    Ok((text, verdict))
}

fn candidate(binding: &Binding) -> String {
    printable(&format!(
        "  {}  {}  {}",
        binding.attachment,
        or_dash(binding.address),
        binding.name
    )) + "\n"
}

/// Describes a lease: a line for each fact, then its options and its last events.
fn text(lease: &Lease) -> String {
    let binding = &lease.binding;
    let mut text = printable(&binding.attachment.to_string()) + "\n" + &facts(lease);
    if !lease.options.is_empty() {
        text += "\nOptions that the daemon remembers:\n";
        text += &options(&lease.options);
    }
    if !lease.events.is_empty() {
        text += "\nLast events:\n";
        text.extend(lease.events.iter().map(happened));
    }
    text
}

fn facts(lease: &Lease) -> String {
    let binding = &lease.binding;
    let at = |time: &Option<String>, seconds: Option<u64>| match (time, seconds) {
        (Some(time), Some(0)) => Some(format!("{time}, which is past")),
        (Some(time), Some(seconds)) => Some(format!("{time}, in {}", brief(seconds))),
        _ => None,
    };
    let never = || binding.address.map(|_| "never".to_owned());
    let server = binding.server.map(|server| match &lease.server_mac {
        Some(mac) => format!("{server}, at {mac}"),
        None => server.to_string(),
    });
    let kept = kept_for(binding)
        .map(|seconds| format!("{}, goes back in {}", binding.state, brief(seconds)));
    let identity = binding.identity.as_ref();
    let held_up = binding.held_up_by.as_ref().zip(binding.seconds_held_up);
    let all = [
        ("name", Some(binding.name.clone())),
        (
            "address",
            binding.address.map(|address| address.to_string()),
        ),
        ("state", Some(kept.unwrap_or_else(|| binding.state.clone()))),
        ("unanswered", unanswered(binding)),
        (
            "held up",
            held_up.map(|(what, seconds)| format!("for {}: {what}", brief(seconds))),
        ),
        ("server", server),
        (
            "client",
            identity.map_or(Some(lease.client.clone()), |of| {
                Some(format!("{} ({})", lease.client, of.client_id))
            }),
        ),
        ("hardware address", identity.map(|of| of.chaddr.clone())),
        ("LAN", identity.map(|of| of.lan.to_string())),
        ("T1", at(&lease.renews, binding.seconds_to_t1)),
        ("T2", at(&lease.rebinds, binding.seconds_to_t2)),
        (
            "expires",
            at(&lease.expires, binding.seconds_to_expiry).or_else(never),
        ),
        (
            "told",
            binding.told.map(|told| format!("Docker was told {told}")),
        ),
        ("link", binding.link.as_ref().map(ToString::to_string)),
        ("interface", lease.interface.as_ref().map(interface)),
        (
            "interface",
            lease
                .interface_unseen
                .as_ref()
                .map(|cause| format!("cannot be seen: {cause}")),
        ),
    ];
    let rows: Vec<_> = all
        .into_iter()
        .filter_map(|(what, fact)| Some([format!("  {what}"), printable(&fact?)]))
        .collect();
    columns(&rows)
}

/// Returns how often servers were asked in vain to extend the lease, and since when.
fn unanswered(binding: &Binding) -> Option<String> {
    let requests = match binding.asked_in_vain? {
        1 => "1 request to extend the lease".to_owned(),
        times => format!("{times} requests to extend the lease"),
    };
    let since = binding
        .seconds_asking
        .map(|seconds| format!(", the first {} ago", brief(seconds)));
    Some(requests + &since.unwrap_or_default())
}

fn interface(of: &Interface) -> String {
    let state = match (of.up, of.carrier) {
        (true, true) => "up",
        (true, false) => "up, without carrier",
        (false, _) => "down",
    };
    let addresses: Vec<_> = of.addresses.iter().map(ToString::to_string).collect();
    let list = |what: &str, all: &[String]| match all {
        [] => format!(", no {what}"),
        all => format!(", {what} {}", all.join(", ")),
    };
    let Interface {
        name,
        mac,
        mtu,
        routes,
        ..
    } = of;
    format!(
        "{name} ({mac}) is {state}, MTU {mtu}{}{}",
        list("addresses", &addresses),
        list("routes", routes)
    )
}

fn options(all: &[DhcpOption]) -> String {
    let row = |option: &DhcpOption| {
        let name = option.name.as_deref().unwrap_or("option");
        [
            printable(&format!("  {name} ({})", option.code)),
            printable(&option.value),
        ]
    };
    columns(&all.iter().map(row).collect::<Vec<_>>())
}

fn happened(event: &Event) -> String {
    let of = format!("{} ", event.attachment);
    format!(
        "  {}\n",
        events::line(event).replacen(&printable(&of), "", 1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_an_answer_are_counted_since_the_first() {
        let binding = |more: &str| {
            let text = format!(
                r#"{{"attachment":{{"door":"cni","network":"lan","container":"c1","ifname":"eth0"}},"name":"web","state":"RENEWING"{more}}}"#
            );
            serde_json::from_str::<Binding>(&text).expect("it is a binding")
        };
        for (more, said) in [
            ("", None),
            (
                r#","asked_in_vain":1"#,
                Some("1 request to extend the lease"),
            ),
            (
                r#","asked_in_vain":3,"seconds_asking":125"#,
                Some("3 requests to extend the lease, the first 2m5s ago"),
            ),
        ] {
            assert_eq!(unanswered(&binding(more)).as_deref(), said);
        }
    }
}
