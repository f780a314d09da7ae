//! Docker's plugin protocol as dockerd speaks it: HTTP over a Unix socket, with a connection for each call.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::error::{Doing, Error};
use crate::process::DEADLINE;

/// A plugin, by its socket.
#[derive(Clone, Debug)]
pub struct Plugin {
    socket: PathBuf,
    called: Arc<Mutex<Vec<String>>>,
}

/// What a plugin answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// A call that is under way. Dropping it hangs up, as dockerd does when it is killed.
#[derive(Debug)]
pub struct PluginCall {
    method: String,
    stream: UnixStream,
}

/// How long dockerd waits before it repeats a call whose connection failed, in seconds.
const WAITS: [u64; 4] = [1, 2, 4, 8];

impl Plugin {
    /// Returns a plugin that is called as dockerd 25 to 29 do.
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
            called: Arc::default(),
        }
    }

    /// Returns the methods that were called, in order.
    pub fn called(&self) -> Vec<String> {
        self.called.lock().expect("no caller panics").clone()
    }

    /// Calls a method, again if its connection breaks, and returns the answer. As in dockerd, later tries send an empty body if
    /// the first body went out.
    ///
    /// # Errors
    /// [`Error::Refused`] with what the plugin says in `Error`, or in `Err` if it is a network driver or the status is not 200.
    pub fn call(&self, method: &str, body: &Value) -> Result<Value, Error> {
        let mut body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let mut waits = WAITS.iter();
        self.called
            .lock()
            .expect("no caller panics")
            .push(method.to_owned());
        loop {
            let tried = UnixStream::connect(&self.socket).and_then(|stream| {
                let sent = std::mem::take(&mut body);
                self.post(method, &sent, stream)?.read()
            });
            match (tried, waits.next()) {
                (Ok(reply), _) => return reply.value(method),
                (Err(e), Some(wait)) if e.kind() != ErrorKind::WouldBlock => {
                    thread::sleep(Duration::from_secs(*wait))
                }
                (Err(e), _) => return Err(e).doing(|| format!("call {method}")),
            }
        }
    }

    /// Sends a call with any body, once.
    pub fn send(&self, method: &str, body: &str) -> Result<PluginCall, Error> {
        let sent =
            UnixStream::connect(&self.socket).and_then(|stream| self.post(method, body, stream));
        sent.doing(|| format!("send {method}"))
    }

    fn post(&self, method: &str, body: &str, mut stream: UnixStream) -> io::Result<PluginCall> {
        let length = body.len();
        let request = format!(
            "POST /{method} HTTP/1.1\r\nHost: plugin.moby.localhost\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: {length}\r\n\
             Accept: application/vnd.docker.plugins.v1.2+json\r\n\r\n{body}"
        );
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.write_all(request.as_bytes())?;
        Ok(PluginCall {
            method: method.to_owned(),
            stream,
        })
    }
}

impl PluginCall {
    /// Waits for the answer.
    pub fn answer(self) -> Result<Reply, Error> {
        let method = self.method.clone();
        self.read().doing(|| format!("read the answer to {method}"))
    }

    fn read(mut self) -> io::Result<Reply> {
        let mut bytes = Vec::new();
        let mut more = [0; 4096];
        loop {
            if let Some(reply) = Reply::parse(&bytes)? {
                return Ok(reply);
            }
            match self.stream.read(&mut more)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                length => bytes.extend(&more[..length]),
            }
        }
    }
}

impl Reply {
    /// Reads an answer; `None` if there is more to come.
    fn parse(bytes: &[u8]) -> io::Result<Option<Self>> {
        let text = String::from_utf8_lossy(bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            return Ok(None);
        };
        let bad = || io::Error::new(ErrorKind::InvalidData, format!("not an answer: {text}"));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .ok_or_else(bad)?;
        let fields = head.lines().filter_map(|line| line.split_once(": "));
        let length = fields
            .into_iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let length: usize = length
            .and_then(|(_, value)| value.parse().ok())
            .ok_or_else(bad)?;
        Ok(body.get(..length).map(|body| Self {
            status,
            body: body.to_owned(),
        }))
    }

    /// Returns the JSON in it.
    fn value(self, method: &str) -> Result<Value, Error> {
        let value: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let (key, otherwise) = match self.status {
            200 if method.starts_with("NetworkDriver.") => ("Err", ""),
            200 => ("Error", ""),
            _ => ("Err", &*self.body),
        };
        match value[key]
            .as_str()
            .filter(|text| !text.is_empty())
            .unwrap_or(otherwise)
        {
            "" => Ok(value),
            said => Err(Error::Refused {
                call: method.to_owned(),
                said: said.to_owned(),
            }),
        }
    }
}
