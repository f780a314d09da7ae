//! The spool: DELs that came while no daemon ran, as files beside the socket, and ends of leases that the daemon's store could
//! not record. Beside it is a copy of what would be lost with that store.
//!
//! A spooled call is [`del`]'s request as JSON, in a file that appears whole under its name or not at all. Shims write, the
//! daemon reads, and both remove the file once the call is done. The file's name and content are defined here so that both agree;
//! this module neither reads nor writes.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cni::{Env, Request};

/// The most calls that may wait for a daemon, which reads that many at once. No configuration may fill a disk.
pub const MAX_CALLS: usize = 65_536;

/// The longest part of an attachment that is kept, in bytes. The daemon serves none that is longer.
const MAX_PART: usize = 255;

/// Returns what a daemon needs from a DEL: the attachment, and nothing else from the configuration. `None` if `request` names no
/// attachment.
///
/// Shims of earlier versions kept the whole request, which reads the same.
pub fn del(request: &Request) -> Option<Request> {
    let config: Value = serde_json::from_str(&request.config).ok()?;
    let network = part(config["name"].as_str())?;
    let env = Env {
        command: Some("DEL".to_owned()),
        container_id: Some(part(request.env.container_id.as_deref())?),
        ifname: Some(part(request.env.ifname.as_deref())?),
        ..Env::default()
    };
    Some(Request {
        env,
        config: json!({ "name": network }).to_string(),
    })
}

fn part(text: Option<&str>) -> Option<String> {
    text.filter(|text| (1..=MAX_PART).contains(&text.len()))
        .map(str::to_owned)
}

/// Returns the file in which a DEL of `request`'s attachment is kept for the daemon at `socket`.
///
/// An attachment always has the same name, however often it is deleted. Its parts come from outside and may be anything, so the
/// name contains their hash: for `/run/cni/dhcp.sock`, `/run/cni/dhcp.sock.del-` and 32 hexadecimal digits.
pub fn path(socket: &Path, request: &Request) -> PathBuf {
    socket.with_file_name(name(socket, ".del-", &digits(request)))
}

/// Returns the name under which the process `pid` writes the file that then becomes [`path`].
pub fn unfinished(socket: &Path, request: &Request, pid: u32) -> PathBuf {
    socket.with_file_name(name(socket, ".new-", &format!("{}-{pid}", digits(request))))
}

/// Returns the file in which the daemon at `socket` keeps the end of one of its store's bindings, while the store cannot be
/// written.
pub fn end(socket: &Path, store: u64, binding: u64) -> PathBuf {
    socket.with_file_name(name(socket, ".end-", &format!("{store:016x}-{binding}")))
}

/// Returns the binding of this store whose end the file `name` keeps; `None` if it keeps none.
pub fn ended(socket: &Path, store: u64, name: &OsStr) -> Option<u64> {
    kind_of(socket, name, ".end-")?
        .strip_prefix(&format!("{store:016x}-"))?
        .parse()
        .ok()
}

/// Returns the directory in which the daemon at `socket` keeps a copy of what only its store remembers.
pub fn copy(socket: &Path) -> PathBuf {
    socket.with_file_name(name(socket, ".copy", ""))
}

/// Returns whether the file `name` beside `socket` is a call that waits for the daemon.
pub fn is_call(socket: &Path, name: &OsStr) -> bool {
    kind_of(socket, name, ".del-").is_some()
}

fn kind_of<'a>(socket: &Path, name: &'a OsStr, infix: &str) -> Option<&'a str> {
    name.to_str()?
        .strip_prefix(socket.file_name()?.to_str()?)?
        .strip_prefix(infix)
}

fn name(socket: &Path, infix: &str, rest: &str) -> OsString {
    let mut name = socket.file_name().unwrap_or_default().to_owned();
    name.push(infix);
    name.push(rest);
    name
}

/// Hashes the attachment. An unreadable configuration stands for its own network.
fn digits(request: &Request) -> String {
    let config: Value = serde_json::from_str(&request.config).unwrap_or_default();
    let parts = [
        config["name"].as_str().unwrap_or(&request.config),
        request.env.container_id.as_deref().unwrap_or_default(),
        request.env.ifname.as_deref().unwrap_or_default(),
    ];
    // FNV-1a with 128 bits. Written out here, it stays the same in every build, which std's hasher does not promise. NUL cannot
    // be part of an environment variable, so it separates the parts.
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in parts.into_iter().flat_map(|part| part.bytes().chain([0])) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    format!("{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::Env;

    const SOCKET: &str = "/run/cni/dhcp.sock";

    fn del(network: &str, container: &str, ifname: &str) -> Request {
        Request {
            env: Env {
                container_id: Some(container.into()),
                ifname: Some(ifname.into()),
                ..Env::default()
            },
            config: format!(r#"{{"name": "{network}"}}"#),
        }
    }

    #[test]
    fn the_name_of_an_attachment_never_changes() {
        // Fixed: a newer daemon must find an older shim's file.
        assert_eq!(
            path(Path::new(SOCKET), &del("lan", "abc", "eth0")),
            Path::new("/run/cni/dhcp.sock.del-5d416efeea0b234eb9330f3d3b4862db"),
        );
    }

    #[test]
    fn the_rest_of_the_configuration_does_not_matter() {
        let mut other = del("lan", "abc", "eth0");
        other.config = r#"{"cniVersion": "1.0.0", "prevResult": {}, "name": "lan"}"#.into();
        other.env.netns = Some("/run/netns/x".into());
        assert_eq!(
            path(Path::new(SOCKET), &other),
            path(Path::new(SOCKET), &del("lan", "abc", "eth0"))
        );
    }

    #[test]
    fn what_is_kept_of_a_del_is_its_attachment() {
        let mut whole = del("lan", "abc", "eth0");
        whole.env = Env {
            netns: Some("/run/netns/x".into()),
            args: Some("A=1".into()),
            ..whole.env
        };
        whole.config =
            r#"{"cniVersion": "1.0.0", "name": "lan", "ipam": {"secret": 1}, "prevResult": {}}"#
                .into();
        let kept = super::del(&whole).unwrap();
        let expected = r#"{"env":{"CNI_COMMAND":"DEL","CNI_CONTAINERID":"abc","CNI_IFNAME":"eth0"},"config":"{\"name\":\"lan\"}"}"#;
        assert_eq!(serde_json::to_string(&kept).unwrap(), expected);
        assert_eq!(
            path(Path::new(SOCKET), &kept),
            path(Path::new(SOCKET), &whole)
        );
    }

    #[test]
    fn a_del_without_an_attachment_is_not_kept() {
        let no_json = Request {
            config: "{".into(),
            ..del("lan", "abc", "eth0")
        };
        let long = "x".repeat(256);
        let without = [
            del("", "abc", "eth0"),
            del("lan", "", "eth0"),
            del("lan", "abc", ""),
            del("lan", &long, "eth0"),
        ];
        for request in without.iter().chain([&no_json, &Request::default()]) {
            assert_eq!(super::del(request), None, "{request:?}");
        }
        assert!(super::del(&del("lan", &long[1..], "eth0")).is_some());
    }

    #[test]
    fn different_attachments_have_different_names() {
        let of = |n, c, i| path(Path::new(SOCKET), &del(n, c, i));
        let all = [
            of("lan", "abc", "eth0"),
            of("lan", "abc", "eth1"),
            of("lan", "abceth", "0"),
            of("la", "nabc", "eth0"),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b), "{a:?}");
        }
    }

    #[test]
    fn any_container_id_makes_a_name_in_the_same_directory() {
        for id in ["", "../../etc/passwd", "a/b", "\u{0}", &"x".repeat(100_000)] {
            let path = path(Path::new(SOCKET), &del("lan", id, "eth0"));
            assert_eq!(path.parent(), Some(Path::new("/run/cni")));
            assert!(is_call(Path::new(SOCKET), path.file_name().unwrap()));
        }
    }

    #[test]
    fn a_call_is_told_from_other_files() {
        let socket = Path::new(SOCKET);
        let request = del("lan", "abc", "eth0");
        let name = |path: PathBuf| path.file_name().unwrap().to_owned();
        assert!(is_call(socket, &name(path(socket, &request))));
        assert!(!is_call(socket, &name(unfinished(socket, &request, 7))));
        let end = name(end(socket, 0xab, 7));
        assert_eq!(
            (
                is_call(socket, &end),
                ended(socket, 0xab, &end),
                ended(socket, 0xac, &end)
            ),
            (false, Some(7), None)
        );
        for other in ["dhcp.sock", "dhcp.sock.lock", "other.sock.del-1"] {
            assert!(!is_call(socket, OsStr::new(other)));
        }
    }
}
