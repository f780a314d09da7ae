//! Whatever lies in an address's file of host-local's is read as it would be written, or names nobody.

use leasehold_api::cni::Holder;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Any bytes, and some that look like a holder.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let near = prop::collection::vec(prop::sample::select(&b"c1.-_ /:\r\n\0e"[..]), 0..20);
    prop_oneof![
        near,
        prop::collection::vec(any::<u8>(), 0..40),
        Just(b"c1\r\neth0".to_vec())
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::with_cases(4000)
    })]

    #[test]
    fn any_file_is_read_as_it_would_be_written(contents in bytes()) {
        let Some(by) = Holder::read(&contents) else { return Ok(()) };
        prop_assert_eq!(Holder::read(by.contents().as_bytes()), Some(by.clone()));
        let is_plain = |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_control() || c == '/');
        prop_assert!(is_plain(&by.container) && by.ifname.as_deref().is_none_or(is_plain), "{by:?}");
    }
}
