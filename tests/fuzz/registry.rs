//! Fuzzes lives of the registry.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_tests::hostile::registry(bytes));
