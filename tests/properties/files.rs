//! Whatever lies in host-local's directory is read as it would be written, or says nothing.

use std::net::{Ipv4Addr, Ipv6Addr};

use leasehold_api::cni::File;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Addresses, IPv6 with any groups of zeros.
fn address() -> impl Strategy<Value = String> {
    let v6 = (any::<[u16; 8]>(), any::<u8>()).prop_map(|(mut groups, zeros)| {
        for (i, group) in groups
            .iter_mut()
            .enumerate()
            .filter(|(i, _)| zeros >> i & 1 == 1)
        {
            *group = if i == 5 { u16::MAX } else { 0 };
        }
        Ipv6Addr::from(groups).to_string()
    });
    prop_oneof![
        any::<Ipv4Addr>().prop_map(|address| address.to_string()),
        v6
    ]
}

/// Any bytes, and some that look like a holder.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let near = prop::collection::vec(prop::sample::select(&b"c1.-_ /:\r\n\0e"[..]), 0..20);
    prop_oneof![
        near,
        prop::collection::vec(any::<u8>(), 0..40),
        address().prop_map(String::into_bytes),
        Just(b"c1\r\neth0".to_vec())
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => address(),
        2 => (0usize..300).prop_map(|set| format!("last_reserved_ip.{set}")),
        1 => bytes().prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::with_cases(4000)
    })]

    #[test]
    fn any_file_is_read_as_it_would_be_written(name in name(), contents in bytes()) {
        let Some(file) = File::read(&name, &contents) else { return Ok(()) };
        prop_assert_eq!(file.name(), name);
        prop_assert_eq!(File::read(&file.name(), file.contents().as_bytes()), Some(file.clone()));
        if let File::Taken { by: Some(by), .. } = file {
            let is_plain = |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_control() || c == '/');
            prop_assert!(is_plain(&by.container) && by.ifname.as_deref().is_none_or(is_plain), "{by:?}");
        }
    }
}
