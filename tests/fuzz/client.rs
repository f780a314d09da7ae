//! Fuzzes lives of a DHCP client.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| leasehold_tests::hostile::client(bytes));
