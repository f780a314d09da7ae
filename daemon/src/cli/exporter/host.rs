//! By which names a browser may ask for the page.
//!
//! A foreign page whose name suddenly resolves to this host's address (DNS rebinding) asks under its own name. So only addresses,
//! `localhost` and the names that the operator gave are served.

use std::net::IpAddr;

use hyper::http::uri::Authority;

/// Returns whether a Host header names an address, `localhost`, or one of these names. The port does not matter.
pub(super) fn is_ours(header: &str, names: &[String]) -> bool {
    let Ok(authority) = header.parse::<Authority>() else {
        return false;
    };
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    let address = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    let is_named = |name: &str| host.trim_end_matches('.').eq_ignore_ascii_case(name);
    address.parse::<IpAddr>().is_ok()
        || is_named("localhost")
        || names.iter().any(|name| is_named(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_refused() {
        let names = ["Node1.example".to_owned()];
        let ours = [
            "127.0.0.1:9467",
            "127.0.0.1",
            "[::1]:9467",
            "localhost:9467",
            "LOCALHOST",
            "node1.EXAMPLE.:80",
        ];
        for header in ours {
            assert!(is_ours(header, &names), "{header}");
        }
        let others = [
            "",
            "rebind.example:9467",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "x@localhost",
            "a b",
        ];
        for header in others {
            assert!(!is_ours(header, &names), "{header}");
        }
        assert!(!is_ours("node1.example", &[]));
    }
}
