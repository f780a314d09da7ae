//! Fuzzes frames, from their Ethernet header on.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_tests::hostile::frame(bytes));
