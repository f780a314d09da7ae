//! A proxy between dockerd and a plugin: passes on every call, except the one that a test makes fail.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::plugin::{Plugin, Reply};
use crate::daemon::DOCKER_PLUGINS;
use crate::error::{Doing, Error};
use crate::process::DEADLINE;

/// A plugin under a name of its own that passes calls to another, with faults. It ends with the test's process.
#[derive(Clone, Debug)]
pub struct Between {
    plugin: Plugin,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    fault: Mutex<Fault>,
    changed: Condvar,
}

/// The call to which something happens.
#[derive(Debug, Default)]
struct Fault {
    /// What will happen, and to which method.
    next: Option<(String, Fate)>,
    /// Whether it has happened.
    met: bool,
}

/// The fate of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The plugin never receives it, and dockerd gets an error.
    Refused,
    /// The plugin answers it, and dockerd only reads half of the answer.
    Garbled,
    /// The plugin answers it. dockerd gets nothing, however long it waits.
    Unheard,
    /// The plugin is called by a caller that hangs up at once. dockerd gets nothing, however long it waits.
    HungUp,
}

/// What dockerd reads of a [`Fate::Refused`] call.
pub const REFUSAL: &str = "refused on its way";

impl Between {
    /// Listens where dockerd looks for a plugin `name`, and passes calls on to another plugin.
    pub fn start(name: &str, plugin: &str) -> Result<Self, Error> {
        let [path, plugin] =
            [name, plugin].map(|name| Path::new(DOCKER_PLUGINS).join(format!("{name}.sock")));
        let listener =
            UnixListener::bind(&path).doing(|| format!("listen on {}", path.display()))?;
        let between = Self {
            plugin: Plugin::new(&plugin),
            shared: Arc::default(),
        };
        let serving = between.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let between = serving.clone();
                // dockerd sees it too when a call goes wrong.
                thread::spawn(move || between.pass_on(&stream));
            }
        });
        Ok(between)
    }

    /// Sets the fate of the next call of a method.
    pub fn next(&self, method: &str, fate: Fate) {
        *self.fault() = Fault {
            next: Some((method.to_owned(), fate)),
            met: false,
        };
    }

    /// Returns whether that call has come, and its fate is complete.
    pub fn has_met(&self) -> bool {
        self.fault().met
    }

    /// Waits until that call has come, and its fate is complete.
    pub fn wait_until_met(&self) -> Result<(), Error> {
        let waited = self
            .shared
            .changed
            .wait_timeout_while(self.fault(), DEADLINE, |fault| !fault.met);
        match waited.unwrap_or_else(PoisonError::into_inner).0.met {
            true => Ok(()),
            false => Err(Error::timed_out(
                "call with a fault",
                DEADLINE,
                String::new(),
            )),
        }
    }

    fn fault(&self) -> MutexGuard<'_, Fault> {
        self.shared
            .fault
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn pass_on(&self, stream: &UnixStream) -> Result<(), Error> {
        let (method, body) = read(stream).doing(|| "read a call".to_owned())?;
        let fate = self
            .fault()
            .next
            .take_if(|(next, _)| *next == method)
            .map(|(_, fate)| fate);
        let asked = || self.plugin.send(&method, &body);
        match fate {
            None => write(stream, &asked()?.answer()?),
            Some(Fate::Refused) => {
                self.meet();
                let body = format!("{{\"Err\":\"{REFUSAL}\",\"Error\":\"{REFUSAL}\"}}");
                write(stream, &Reply { status: 200, body })
            }
            Some(Fate::Garbled) => {
                let Reply { status, body } = asked()?.answer()?;
                self.meet();
                write(
                    stream,
                    &Reply {
                        status,
                        body: body[..body.len() / 2].to_owned(),
                    },
                )
            }
            Some(Fate::Unheard) => {
                asked()?.answer()?;
                self.hold(stream)
            }
            Some(Fate::HungUp) => {
                drop(asked()?);
                self.hold(stream)
            }
        }
    }

    fn meet(&self) {
        self.fault().met = true;
        self.shared.changed.notify_all();
    }

    /// Makes dockerd wait as long as it will.
    fn hold(&self, mut stream: &UnixStream) -> Result<(), Error> {
        self.meet();
        io::copy(&mut stream, &mut io::sink())
            .doing(|| "wait for a caller's end".to_owned())
            .map(drop)
    }
}

/// Reads a call: its method and its body.
fn read(stream: &UnixStream) -> io::Result<(String, String)> {
    let mut lines = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if lines.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let method = head
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .trim_start_matches('/')
        .to_owned();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or_default()];
    lines.read_exact(&mut body)?;
    Ok((method, String::from_utf8_lossy(&body).into_owned()))
}

fn write(mut stream: &UnixStream, Reply { status, body }: &Reply) -> Result<(), Error> {
    let head = format!(
        "HTTP/1.1 {status} said\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all((head + body).as_bytes())
        .doing(|| "answer a call".to_owned())
}
