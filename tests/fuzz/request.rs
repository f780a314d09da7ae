//! Fuzzes a runtime's requests and configurations.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_tests::hostile::request(bytes));
