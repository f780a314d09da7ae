//! Leases in columns: the most useful ones, or all.

use leasehold_api::control::{Attachment, Binding, Identity, Source};
use leasehold_core::identity::ClientId;

use crate::cli::columns::{columns, or_dash, widths};
use crate::cli::term::{brief, printable};

const FEW: [&str; 5] = ["NAME", "ATTACHMENT", "ADDRESS", "STATE", "LEFT"];

const ALL: [&str; 12] = [
    "ATTACHMENT",
    "NAME",
    "LAN",
    "CLIENT ID",
    "CHADDR",
    "ADDRESS",
    "STATE",
    "SERVER",
    "T1",
    "T2",
    "EXPIRES",
    "LINK",
];

/// The minimum width of a column that is cut to fit.
const LEAST: usize = 10;

/// How much of a container's id is shown.
const ID: usize = 12;

/// Lays leases out in the most useful columns, in lines no wider than `width` if possible.
pub(super) fn few(bindings: &[Binding], width: Option<usize>) -> String {
    let mut rows = vec![FEW.map(str::to_owned)];
    rows.extend(bindings.iter().map(|binding| {
        [
            binding.name.clone(),
            short(&binding.attachment),
            first_address(binding),
            state(binding),
            left(binding),
        ]
        .map(|cell| printable(&cell))
    }));
    let mut widths = widths(&rows);
    let room = width.map_or(usize::MAX, |width| {
        width.saturating_sub(2 * (FEW.len() - 1))
    });
    while widths.iter().sum::<usize>() > room {
        let wider = if widths[0] > widths[1] { 0 } else { 1 };
        if widths[wider] <= LEAST {
            break;
        }
        widths[wider] -= 1;
    }
    for row in &mut rows {
        row.iter_mut()
            .zip(widths)
            .for_each(|(cell, width)| *cell = cut(cell, width));
    }
    columns(&rows)
}

/// Lays leases out in all columns. T1, T2 and the end are seconds from now.
pub(super) fn wide(bindings: &[Binding]) -> String {
    let mut rows = vec![ALL.map(str::to_owned)];
    rows.extend(bindings.iter().map(all));
    columns(&rows)
}

/// Returns a text that is no longer than `width`.
fn cut(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text
            .chars()
            .take(width.saturating_sub(1))
            .chain(['…'])
            .collect(),
        false => text.to_owned(),
    }
}

/// Returns an attachment with the beginning of its container's id.
fn short(attachment: &Attachment) -> String {
    match attachment {
        Attachment::Cni {
            network,
            container,
            ifname,
        } => {
            let id: String = container.chars().take(ID).collect();
            format!("{network}/{id}/{ifname}")
        }
        Attachment::Docker { .. } => attachment.to_string(),
    }
}

fn first_address(binding: &Binding) -> String {
    let more = binding.more_addresses.len();
    match binding.address {
        Some(address) if more > 0 => format!("{address} +{more}"),
        Some(address) => address.to_string(),
        None => "-".to_owned(),
    }
}

fn state(binding: &Binding) -> String {
    match (kept_for(binding), binding.asked_in_vain) {
        (Some(seconds), _) => format!("{} {}", binding.state, brief(seconds)),
        (None, Some(times)) => format!("{} {times} unanswered", binding.state),
        (None, None) => binding.state.clone(),
    }
}

/// Returns for how long a lease is kept: no longer than it lasts.
pub(in crate::cli) fn kept_for(binding: &Binding) -> Option<u64> {
    let seconds = binding.seconds_to_release?;
    Some(seconds.min(binding.seconds_to_expiry.unwrap_or(seconds)))
}

fn left(binding: &Binding) -> String {
    match (binding.seconds_to_expiry, binding.address) {
        (Some(seconds), _) => brief(seconds),
        (None, Some(_)) => "never".to_owned(),
        (None, None) => "-".to_owned(),
    }
}

fn all(binding: &Binding) -> [String; ALL.len()] {
    let seconds = |seconds: Option<u64>| match (seconds, binding.address) {
        (Some(seconds), _) => seconds.to_string(),
        (None, Some(_)) => "never".to_owned(),
        (None, None) => "-".to_owned(),
    };
    let of_identity = |what: fn(&Identity) -> String| or_dash(binding.identity.as_ref().map(what));
    let cells = [
        binding.attachment.to_string(),
        binding.name.clone(),
        of_identity(|identity| identity.lan.to_string()),
        of_identity(|identity| readable(&identity.client_id)),
        of_identity(|identity| identity.chaddr.clone()),
        addresses(binding),
        match (kept_for(binding), binding.asked_in_vain) {
            (Some(seconds), _) => format!("{} for {seconds} s", binding.state),
            (None, Some(times)) => format!("{} {times} unanswered", binding.state),
            (None, None) => binding.state.clone(),
        },
        match (binding.server, binding.source) {
            (Some(server), _) => server.to_string(),
            (None, Some(Source::Range)) => "range".to_owned(),
            (None, Some(Source::Server) | None) => "-".to_owned(),
        },
        seconds(binding.seconds_to_t1),
        seconds(binding.seconds_to_t2),
        seconds(binding.seconds_to_expiry),
        or_dash(binding.link.as_ref()),
    ];
    // Names come from callers and packets: none may move a terminal's cursor.
    cells.map(|cell| printable(&cell))
}

/// Returns all addresses of a lease.
fn addresses(binding: &Binding) -> String {
    let all: Vec<_> = binding
        .address
        .iter()
        .chain(&binding.more_addresses)
        .map(ToString::to_string)
        .collect();
    if all.is_empty() {
        "-".to_owned()
    } else {
        all.join(" ")
    }
}

/// Shows a client identifier as the daemon's messages do.
fn readable(hex: &str) -> String {
    ClientId::try_from(hex.to_owned()).map_or_else(|_| hex.to_owned(), |id| id.readable())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_identifiers_are_text_only_where_they_are() {
        let table = [
            ("0063312f6c616e", "00:c1/lan"),
            ("01020000000001", "01020000000001"),
            ("00631b", "00631b"),
            ("00", "00"),
            ("", ""),
            ("0063é", "0063é"),
        ];
        for (hex, shown) in table {
            assert_eq!(readable(hex), shown);
        }
    }
}
