//! One request to the daemon, and why it failed.

use std::env;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold_api::client::{Request, Trouble, exchange};
use leasehold_api::control::{BINDINGS, Binding, Bindings, to_url};
use serde::Deserialize;
use serde_json::Value;

use super::term::printable;
use super::unit;

/// Where systemd listens for those who only read, and the variable that says where else.
const READ_SOCKET: &str = "/run/leasehold-read/leasehold.sock";
const READ_SOCKET_VARIABLE: &str = "LEASEHOLD_READ_SOCKET";

/// How long a whole exchange may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The same, for a question that is only asked to name a stranger.
const GO_RPC_PATIENCE: Duration = Duration::from_secs(2);

/// The longest answer that is read: ten thousand bindings take some megabytes.
const MAX_ANSWER: usize = 64 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// Nobody listens.
    #[error("no leasehold daemon at {}: start it with `systemctl start leasehold` or `leasehold daemon`", .0.display())]
    NoDaemon(PathBuf),
    /// The socket is not for this user.
    #[error("no permission to ask the daemon at {}: be root, or, for `list`, `show`, `status` and `events`, a member of the group of its \
         read-only socket", .0.display())]
    Denied(PathBuf),
    /// The connection failed, or the exchange took too long.
    #[error("daemon at {}", .socket.display())]
    Io {
        /// The daemon's socket.
        socket: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The daemon refused, with a status other than 200.
    #[error("the daemon at {} refused: {said}", .socket.display())]
    Refused {
        /// The daemon's socket.
        socket: PathBuf,
        /// The HTTP status.
        status: u16,
        /// Its sentence, escaped.
        said: String,
    },
    /// The daemon of the replaced plugin listens there.
    #[error(
        "what answers at {} is not leasehold, but the daemon of the plugin that leasehold replaces: stop it \
         (`systemctl disable --now cni-dhcp.socket cni-dhcp.service`, or whatever starts `dhcp daemon`), then `systemctl \
         restart leasehold.socket leasehold.service`",
        .0.display()
    )]
    OldDaemon(PathBuf),
    /// The answer is not a complete HTTP response.
    #[error("what answers at {} is not a leasehold daemon: {reason}", .socket.display())]
    NotHttp {
        /// The daemon's socket.
        socket: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The daemon's answer is not what was asked for.
    #[error("the daemon's answer cannot be read: do daemon and command have the same version?")]
    Unreadable(#[from] serde_json::Error),
}

impl ClientError {
    fn of(trouble: Trouble, socket: &Path, patience: Duration) -> Self {
        let socket = socket.to_owned();
        match trouble {
            Trouble::Down(source) | Trouble::Unusable(source) => match source.kind() {
                ErrorKind::UnexpectedEof => Self::NotHttp {
                    socket,
                    reason: "it ends the connection without an answer".to_owned(),
                },
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => Self::NoDaemon(socket),
                ErrorKind::PermissionDenied => Self::Denied(socket),
                _ => Self::Io { socket, source },
            },
            Trouble::TimedOut => Self::Io {
                socket,
                source: io::Error::new(
                    ErrorKind::TimedOut,
                    format!("no answer within {patience:?}"),
                ),
            },
            Trouble::BrokeOff => Self::NotHttp {
                socket,
                reason: "its answer breaks off".to_owned(),
            },
            Trouble::NotLeasehold(reason) => Self::NotHttp { socket, reason },
        }
    }
}

pub(crate) fn read<'a, T: Deserialize<'a>>(answer: &'a [u8]) -> Result<T, ClientError> {
    Ok(serde_json::from_slice(answer)?)
}

/// Returns the daemon's answer as it is printed. It is read as a value, so that fields that only a later daemon knows are shown
/// too.
pub(crate) fn pretty(answer: &[u8]) -> Result<String, ClientError> {
    Ok(format!("{:#}\n", read::<Value>(answer)?))
}

pub(crate) fn get(socket: &Path, url: &str) -> Result<Vec<u8>, ClientError> {
    request(socket, "GET", url, "", PATIENCE)
}

/// Asks as [`get`] does for what the read-only socket has too: its group needs no other.
pub(crate) fn get_to_read(socket: &Path, url: &str) -> Result<Vec<u8>, ClientError> {
    match get(socket, url) {
        Err(denied @ ClientError::Denied(_)) => match get(&read_socket(), url) {
            Err(ClientError::Denied(_) | ClientError::NoDaemon(_)) => Err(denied),
            answer => answer,
        },
        answer => answer,
    }
}

/// Returns the attachments of the leases that have this name.
pub(crate) fn called(socket: &Path, name: &str) -> Result<Vec<String>, ClientError> {
    let url = format!("{BINDINGS}?name={}", to_url(name));
    let found: Bindings = read(&get_to_read(socket, &url)?)?;
    let attachment = |binding: &Binding| binding.attachment.to_string();
    Ok(found.bindings.iter().map(attachment).collect())
}

/// Returns the path of the read-only socket.
fn read_socket() -> PathBuf {
    let said = env::var_os(READ_SOCKET_VARIABLE).map(PathBuf::from);
    said.or_else(|| {
        unit::of_the_host()
            .remove(READ_SOCKET_VARIABLE)
            .map(PathBuf::from)
    })
    .unwrap_or_else(|| READ_SOCKET.into())
}

/// Does the same within `patience`.
pub(crate) fn get_within(
    socket: &Path,
    url: &str,
    patience: Duration,
) -> Result<Vec<u8>, ClientError> {
    request(socket, "GET", url, "", patience)
}

/// Has the daemon do something within `patience`. Returns the body of its answer.
pub(crate) fn request(
    socket: &Path,
    method: &str,
    url: &str,
    body: &str,
    patience: Duration,
) -> Result<Vec<u8>, ClientError> {
    let request = Request {
        method,
        url,
        body: body.as_bytes(),
        most: MAX_ANSWER,
    };
    let asked = exchange(socket, request, Instant::now() + patience);
    let (status, body) = asked.map_err(|trouble| ClientError::of(trouble, socket, patience))?;
    if status == 200 {
        return Ok(body);
    }
    match said(&body) {
        Some(said) => Err(ClientError::Refused {
            socket: socket.to_owned(),
            status,
            said,
        }),
        None if status == 404 && speaks_go_rpc(socket) => {
            Err(ClientError::OldDaemon(socket.to_owned()))
        }
        None => Err(ClientError::NotHttp {
            socket: socket.to_owned(),
            reason: format!("it refuses {url:?} with status {status}"),
        }),
    }
}

/// Returns the text of a refusal of ours, which is an object with one sentence.
fn said(body: &[u8]) -> Option<String> {
    let object: Value = serde_json::from_slice(body).ok()?;
    let text = printable(object["error"].as_str()?.trim_end());
    Some(text.chars().take(500).collect())
}

/// Returns whether a server of Go's `net/rpc` listens, as the replaced plugin's daemon does.
fn speaks_go_rpc(socket: &Path) -> bool {
    let request = Request {
        method: "GET",
        url: "/_goRPC_",
        body: b"",
        most: MAX_ANSWER,
    };
    let answer = exchange(socket, request, Instant::now() + GO_RPC_PATIENCE);
    answer.is_ok_and(|(status, body)| status == 405 && body.starts_with(b"405 must CONNECT"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use tempfile::TempDir;

    use super::*;
    use crate::cli::tests::beside;

    /// Asks a daemon that says `answer`.
    fn asked(answer: &str) -> Result<Vec<u8>, ClientError> {
        let (result, lines) = beside(&[answer], |socket| get(socket, "/v1/bindings"));
        assert_eq!(lines, ["GET /v1/bindings HTTP/1.1"]);
        result
    }

    #[test]
    fn the_body_of_an_answer_is_returned() {
        let body = asked(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\ncontent-type: application/json\r\n\r\n{}",
        )
        .unwrap();
        assert_eq!(body, b"{}");
    }

    #[test]
    fn the_sentence_of_a_refusal_is_shown_escaped() {
        let error =
            asked("HTTP/1.1 400 Bad\r\ncontent-length: 24\r\n\r\n{\"error\":\"no \\u001bx\\n\"}")
                .unwrap_err();
        assert!(
            error.to_string().ends_with(r"refused: no \u{1b}x"),
            "{error}"
        );
    }

    #[test]
    fn the_daemon_of_the_replaced_plugin_is_named() {
        let not_found = "HTTP/1.1 404 Not Found\r\nContent-Length: 19\r\n\r\n404 page not found\n";
        let go_rpc =
            "HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 17\r\n\r\n405 must CONNECT\n";
        for (second, expected) in [
            (
                go_rpc,
                "but the daemon of the plugin that leasehold replaces: stop it",
            ),
            (
                not_found,
                "is not a leasehold daemon: it refuses \"/v1/status\" with status 404",
            ),
        ] {
            let (asked, _) = beside(&[not_found, second], |socket| get(socket, "/v1/status"));
            let error = asked.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn answers_that_are_cut_or_foreign_are_named() {
        let table = [
            ("", "ends the connection without an answer"),
            ("HTTP/1.1 200 OK\r\ncontent-le", "breaks off"),
            ("HTTP/1.1 200 OK\r\n\r\n{}", "has no length"),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}",
                "breaks off",
            ),
            ("SSH-2.0-x\r\n\r\n", "invalid HTTP version"),
        ];
        for (answer, reason) in table {
            let error = asked(answer).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_request_ends_if_the_daemon_says_nothing() {
        let dir = TempDir::new().unwrap();
        let socket = dir.path().join("s");
        let _listener = UnixListener::bind(&socket).unwrap();
        let error = get_within(&socket, "/", Duration::from_millis(10)).unwrap_err();
        assert!(
            matches!(&error, ClientError::Io { source, .. } if source.kind() == ErrorKind::TimedOut),
            "{error:?}"
        );
    }

    #[test]
    fn a_missing_daemon_is_named_with_the_way_to_start_it() {
        let dir = TempDir::new().unwrap();
        let missing = dir.path().join("missing");
        let stale = dir.path().join("stale");
        drop(UnixListener::bind(&stale).unwrap());
        for socket in [missing, stale] {
            let error = get(&socket, "/").unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "no leasehold daemon at {}: start it with `systemctl start leasehold` or `leasehold daemon`",
                    socket.display()
                ),
            );
        }
    }
}
