//! Network namespaces, links, DHCP servers and engines for tests, as values that clean up.

pub mod model;
