//! One HTTP exchange with the daemon, over its Unix socket: one connection, one request, one answer. The only I/O of this crate,
//! which shim and CLI share.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

/// The longest head of an answer, in bytes.
const MAX_HEAD: usize = 8192;

/// The shortest time-out given to a socket.
const SHORTEST: Duration = Duration::from_millis(1);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// Nobody listens, or the listener went away before the first byte of an answer: the daemon is down, starting or
    /// restarting. Asking again is safe and may help.
    #[error("no leasehold daemon answers there ({0}): start it (leasehold daemon)")]
    Down(io::Error),
    /// The socket cannot be used at all.
    #[error("the socket cannot be used: {0}")]
    Unusable(io::Error),
    /// The answer broke off in the middle.
    #[error("the leasehold daemon stopped in the middle of its answer")]
    BrokeOff,
    /// The deadline passed.
    #[error("the leasehold daemon did not answer in time")]
    TimedOut,
    /// What answered is not leasehold.
    #[error("not the leasehold daemon: {0}; does another daemon serve this socket (dhcp daemon)?")]
    NotLeasehold(String),
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `GET` or another.
    pub method: &'a str,
    /// The path and the query.
    pub url: &'a str,
    /// The body, which may be empty.
    pub body: &'a [u8],
    /// The longest body of an answer, in bytes.
    pub most: usize,
}

/// Asks the daemon at `socket`, and waits for the answer until `deadline`. Returns its status and its body.
///
/// The connection is never half-closed: the daemon would take that for a caller that hung up.
///
/// # Errors
/// There is no whole answer.
pub fn exchange(
    socket: &Path,
    request: Request<'_>,
    deadline: Instant,
) -> Result<(u16, Vec<u8>), Trouble> {
    let stream = connect(socket, deadline)?;
    let mut wire = Wire {
        stream,
        deadline,
        bytes: Vec::new(),
    };
    // A server may answer and close before it has read everything, so read even after a failed write.
    let written = wire.write(&request.bytes());
    if let Err(Trouble::TimedOut) = written {
        return Err(Trouble::TimedOut);
    }
    wire.read_answer(request.most)
}

/// Connects, by `deadline`: if the socket's backlog is full, that takes until somebody accepts.
///
/// Linux limits that wait by the time-out for sending, and then returns EAGAIN (`unix_stream_connect` in net/unix/af_unix.c). std
/// connects in one step, which leaves no moment to set the time-out.
fn connect(socket: &Path, deadline: Instant) -> Result<UnixStream, Trouble> {
    let address = SockAddr::unix(socket).map_err(Trouble::Unusable)?;
    let stream = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(Trouble::Unusable)?;
    // Tried even at the deadline: it takes no time to learn that nobody listens, and that says more than that the time is up.
    let mut limit = left(deadline).unwrap_or(SHORTEST);
    loop {
        stream
            .set_write_timeout(Some(limit))
            .map_err(Trouble::Unusable)?;
        match stream.connect(&address) {
            Ok(()) => return Ok(stream.into()),
            Err(cause)
                if matches!(cause.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                limit = left(deadline)?;
            }
            Err(cause) => return Err(not_there(cause)),
        }
    }
}

/// Classifies why a connect failed.
fn not_there(cause: io::Error) -> Trouble {
    match cause.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::NotFound | ErrorKind::ConnectionReset => {
            Trouble::Down(cause)
        }
        _ => Trouble::Unusable(cause),
    }
}

/// Returns the time left. Never returns zero, which a socket would take for "no time-out".
fn left(deadline: Instant) -> Result<Duration, Trouble> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(Trouble::TimedOut)
    } else {
        Ok(left.max(SHORTEST))
    }
}

impl Request<'_> {
    fn bytes(&self) -> Vec<u8> {
        let head = format!(
            "{} {} HTTP/1.1\r\nHost: leasehold\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.method,
            self.url,
            self.body.len()
        );
        [head.as_bytes(), self.body].concat()
    }
}

/// A connection with a deadline, and what was read from it.
struct Wire {
    stream: UnixStream,
    deadline: Instant,
    bytes: Vec<u8>,
}

impl Wire {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        let mut rest = bytes;
        while !rest.is_empty() {
            self.stream
                .set_write_timeout(Some(left(self.deadline)?))
                .map_err(Trouble::Unusable)?;
            match self.stream.write(rest) {
                Ok(length) => rest = &rest[length..],
                Err(error) => self.survive(error)?,
            }
        }
        Ok(())
    }

    fn read_answer(&mut self, most: usize) -> Result<(u16, Vec<u8>), Trouble> {
        let head = loop {
            if let Some(head) = Head::parse(&self.bytes, most)? {
                break head;
            }
            if self.bytes.len() > MAX_HEAD {
                return Err(Trouble::NotLeasehold(
                    "the head of its answer does not end".to_owned(),
                ));
            }
            self.read()?;
        };
        while self.bytes.len() < head.length + head.body {
            self.read()?;
        }
        let mut body = self.bytes.split_off(head.length);
        body.truncate(head.body);
        Ok((head.status, body))
    }

    /// Reads at least one more byte.
    fn read(&mut self) -> Result<(), Trouble> {
        let mut chunk = [0; 8192];
        loop {
            self.stream
                .set_read_timeout(Some(left(self.deadline)?))
                .map_err(Trouble::Unusable)?;
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(self.gone(ErrorKind::UnexpectedEof.into())),
                Ok(length) => {
                    self.bytes.extend_from_slice(&chunk[..length]);
                    return Ok(());
                }
                Err(error) => self.survive(error)?,
            }
        }
    }

    /// Decides which errors end the exchange. A time-out does not: the deadline itself is checked next.
    fn survive(&self, error: io::Error) -> Result<(), Trouble> {
        match error.kind() {
            ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(()),
            _ => Err(self.gone(error)),
        }
    }

    fn gone(&self, cause: io::Error) -> Trouble {
        if self.bytes.is_empty() {
            Trouble::Down(cause)
        } else {
            Trouble::BrokeOff
        }
    }
}

/// The head of an answer.
struct Head {
    status: u16,
    /// The bytes of the head itself.
    length: usize,
    /// The bytes of the body.
    body: usize,
}

impl Head {
    /// Returns the head with which `bytes` begin; `None` while it is not complete.
    fn parse(bytes: &[u8], most: usize) -> Result<Option<Self>, Trouble> {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response
            .parse(bytes)
            .map_err(|e| Trouble::NotLeasehold(format!("its answer is not HTTP ({e})")))?;
        let httparse::Status::Complete(length) = parsed else {
            return Ok(None);
        };
        let status = response.code.filter(|status| *status >= 200);
        let status = status
            .ok_or_else(|| Trouble::NotLeasehold("it does not answer the request".to_owned()))?;
        let body = content_length(response.headers, most)?;
        Ok(Some(Self {
            status,
            length,
            body,
        }))
    }
}

/// Returns the body's length. Our daemon always gives one.
fn content_length(headers: &[httparse::Header<'_>], most: usize) -> Result<usize, Trouble> {
    let value = |name: &str| {
        headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name))
            .map(|h| h.value)
    };
    if value("transfer-encoding").is_some() {
        return Err(Trouble::NotLeasehold(
            "its answer comes in an encoding that leasehold does not use".to_owned(),
        ));
    }
    let said = value("content-length").and_then(|value| str::from_utf8(value).ok()?.parse().ok());
    match said {
        Some(length) if length > most => Err(Trouble::NotLeasehold(format!(
            "its answer is {length} bytes long"
        ))),
        Some(length) => Ok(length),
        None => Err(Trouble::NotLeasehold("its answer has no length".to_owned())),
    }
}
