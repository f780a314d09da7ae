//! What comes from outside neither panics nor gets through unchecked: the entry points that the fuzz targets drive,
//! with random bytes, with their corpus, and with a randomly damaged corpus.

mod files;
mod ranges;

use std::fs;
use std::path::Path;

use leasehold_tests::hostile;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::RngSeed;

/// A target's corpus: its seeds, and what it found.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let files =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| fs::read(path).expect("a file that is there"))
        .collect()
}

#[test]
fn the_corpus_of_each_target_passes() {
    for (target, entry) in hostile::ALL {
        let corpus = corpus(target);
        assert!(!corpus.is_empty(), "{target} has a corpus");
        corpus.iter().for_each(|bytes| entry(bytes));
    }
}

/// Any bytes, or some of a corpus with a few of them changed.
fn bytes(target: &'static str, most: usize) -> impl Strategy<Value = Vec<u8>> {
    let damage = prop::collection::vec((any::<Index>(), any::<u8>()), 0..6);
    let damaged =
        (select(corpus(target)), damage, any::<Index>()).prop_map(|(mut bytes, damage, end)| {
            for (at, byte) in damage {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
            }
            // Half of them are cut short.
            let end = end.index(2 * bytes.len() + 1);
            bytes.truncate(end);
            bytes
        });
    prop_oneof![prop::collection::vec(any::<u8>(), 0..most), damaged]
}

proptest! {
    // The same bytes in each run: randomness is for the fuzzer.
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::with_cases(1000)
    })]

    #[test]
    fn any_frame_is_read_or_refused(bytes in bytes("frame", 200)) {
        hostile::frame(&bytes);
    }

    #[test]
    fn any_message_is_read_or_refused(bytes in bytes("message", 600)) {
        hostile::message(&bytes);
    }

    #[test]
    fn any_options_are_read_or_dropped(bytes in bytes("option", 800)) {
        hostile::option(&bytes);
    }

    #[test]
    fn any_request_is_passed_on_or_refused(bytes in bytes("request", 200)) {
        hostile::request(&bytes);
    }
}
