//! A resolver's file (resolv.conf(5)), read as host-local reads it.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use leasehold_api::cni::Dns;

use crate::fault::Fault;

/// The longest file that is read, in bytes.
const MOST: u64 = 64 << 10;

/// `O_NONBLOCK`: opening a pipe that nobody writes to waits otherwise.
const NONBLOCK: i32 = 0o4000;

/// Reads a file's name servers.
pub(crate) fn read(path: &Path) -> Result<Dns, Fault> {
    let mut options = OpenOptions::new();
    let opened = options.read(true).custom_flags(NONBLOCK).open(path);
    let read = opened.and_then(|file| {
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a file"));
        }
        let mut text = Vec::new();
        match file.take(MOST + 1).read_to_end(&mut text)? as u64 {
            0..=MOST => Ok(parse(&String::from_utf8_lossy(&text))),
            _ => Err(io::Error::other(format!("it has more than {MOST} bytes"))),
        }
    });
    read.map_err(Fault::at(path))
}

/// Returns a result's name servers. Of several domains the last counts; lines without meaning are ignored.
pub fn parse(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with(['#', ';']))
    {
        let mut words = line.split_whitespace();
        let keyword = words.next();
        let mut rest = words.map(str::to_owned).peekable();
        if rest.peek().is_none() {
            continue;
        }
        match keyword {
            Some("nameserver") => dns.nameservers.extend(rest.next()),
            Some("domain") => dns.domain = rest.next(),
            Some("search") => dns.search.extend(rest),
            Some("options") => dns.options.extend(rest),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_host_local_reads_them() {
        let text = "# nameserver 192.0.2.1\n; search x\n\nnameserver 192.0.2.2 192.0.2.3\n\tnameserver  fe80::1%eth0 \n\
                    domain old.example\ndomain new.example\nsearch a.example\tb.example\nsearch c.example\nsearch\n\
                    options ndots:2 rotate\nsortlist 10.0.0.0\nNameserver 192.0.2.4\n";
        let strings = |words: &[&str]| {
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        let expected = Dns {
            nameservers: strings(&["192.0.2.2", "fe80::1%eth0"]),
            domain: Some("new.example".to_owned()),
            search: strings(&["a.example", "b.example", "c.example"]),
            options: strings(&["ndots:2", "rotate"]),
        };
        assert_eq!(parse(text), expected);
        assert_eq!(parse(""), Dns::default());
    }
}
