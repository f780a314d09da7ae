//! Asks the daemon until it answers, the time is up, or a DEL has waited long enough to be kept instead.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_api::client::{self, Trouble};
use leasehold_api::cni::{Code, Env, Error, PATH, Request, Verb, value_of};
use leasehold_api::{DEFAULT_SOCKET, MAX_ADD_TIMEOUT, MAX_BODY, add_timeout, to_json};
use serde_json::Value;

use crate::spool;

/// How much longer the shim waits than the daemon may take, so that the daemon's own error, which knows the cause,
/// arrives first.
const MARGIN: Duration = Duration::from_secs(2);

/// How long a verb for which no container waits keeps asking a daemon that is down. A restart takes less. Waiting longer would
/// only delay the removal of a container: a kept DEL loses nothing, a GC is repeated, and STATUS asks exactly whether the daemon
/// is there.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);

/// The pauses between tries, which double from the first to the last. A try costs some 20 µs, so a hundred waiting shims cost a
/// host 2 % of one core, and nobody waits more than 100 ms longer than the daemon takes to start. inotify would be exact, but
/// would miss a daemon that dies with its socket in place.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_millis(100);

/// What the daemon said.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Whether it is a result or an error.
    pub(crate) success: bool,
    /// CNI's JSON, or nothing.
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn success(body: String) -> Self {
        Self {
            success: true,
            body: body.into_bytes(),
        }
    }
}

/// A call on its way to the daemon.
pub(crate) struct Ask {
    request: Request,
    /// The request as JSON.
    body: Vec<u8>,
    socket: PathBuf,
    verb: Verb,
    /// When to stop asking a daemon that is down.
    patience: Instant,
    /// When to give up.
    deadline: Instant,
}

impl Ask {
    /// Prepares a call. `parsed` is `config` as JSON, or null if it is not JSON.
    pub(crate) fn new(verb: Verb, env: Env, config: String, parsed: &Value) -> Result<Self, Error> {
        let ipam = get(parsed, "ipam");
        let socket = get(ipam, "daemonSocketPath")
            .as_str()
            .filter(|path| !path.is_empty())
            .unwrap_or(DEFAULT_SOCKET);
        let said = get(ipam, "timeout")
            .as_f64()
            .filter(|seconds| *seconds > 0.0);
        let now = Instant::now();
        let whole = add_timeout(said) + MARGIN;
        let patience = match verb {
            Verb::Del | Verb::Status | Verb::Gc => SHORT_PATIENCE,
            Verb::Add | Verb::Check => whole,
        };
        // The daemon has its own default, which an operator may have set, and keeps to it.
        let limit = if verb == Verb::Add && said.is_none() {
            MAX_ADD_TIMEOUT + MARGIN
        } else {
            whole
        };
        let request = Request { env, config };
        let body = to_json(&request).into_bytes();
        if body.len() > MAX_BODY {
            return Err(too_large());
        }
        Ok(Self {
            request,
            body,
            socket: socket.into(),
            verb,
            patience: now + patience.min(limit),
            deadline: now + limit,
        })
    }

    /// Returns the daemon's answer, or nothing as a success for a DEL that was kept.
    pub(crate) fn run(self) -> Result<Answer, Error> {
        match self.ask_patiently() {
            Err(Trouble::Down(_)) if self.verb == Verb::Del => self.keep(),
            result => result.map_err(|trouble| error(&self.socket, self.verb, &trouble)),
        }
    }

    /// Asks until someone answers, or until patience runs out with the daemon still down.
    fn ask_patiently(&self) -> Result<Answer, Trouble> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.ask_once() {
                Err(Trouble::Down(_)) if Instant::now() + pause < self.patience => {
                    thread::sleep(pause)
                }
                result => return result,
            }
            pause = LAST_PAUSE.min(pause * 2);
        }
    }

    fn ask_once(&self) -> Result<Answer, Trouble> {
        let request = client::Request {
            method: "POST",
            url: PATH,
            body: &self.body,
            most: MAX_BODY,
        };
        let (status, body) = client::exchange(&self.socket, request, self.deadline)?;
        let success = (200..300).contains(&status);
        // An error must be in CNI's form: whoever answers anything else knows nothing about CNI. What it says is not for the caller.
        if !success && !is_cni_error(&body) {
            return Err(Trouble::NotLeasehold(format!(
                "it answers with HTTP status {status}"
            )));
        }
        Ok(Answer { success, body })
    }

    /// Keeps the DEL, then tries once more: a daemon that began to listen just before may have looked for such files too early,
    /// but this try reaches it.
    ///
    /// A DEL that cannot be kept still succeeds: an error would only prevent the removal of its container until somebody
    /// intervened. The next daemon finds the container's namespace gone and gives its lease back.
    fn keep(&self) -> Result<Answer, Error> {
        let socket = self.socket.display();
        let done = Ok(Answer::success(String::new()));
        let kept = match spool::keep(&self.socket, &self.request) {
            Ok(kept) => kept,
            Err(cause) => {
                eprintln!(
                    "dhcp: no leasehold daemon at {socket}, and the DEL is not kept for it ({cause}): \
                     the next daemon gives the lease back if the container's network namespace is gone"
                );
                return done;
            }
        };
        match self.ask_once() {
            Ok(answer) => {
                if answer.success {
                    kept.forget();
                }
                Ok(answer)
            }
            Err(Trouble::Down(_)) => {
                eprintln!(
                    "dhcp: no leasehold daemon at {socket}: the next daemon carries out {}",
                    kept.path.display()
                );
                done
            }
            Err(trouble) => Err(error(&self.socket, self.verb, &trouble)),
        }
    }
}

fn is_cni_error(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body)
        .is_ok_and(|error| error["code"].is_u64() && error["msg"].is_string())
}

/// Returns whether a network's addresses come from local ranges.
pub(crate) fn has_ranges(config: &Value) -> bool {
    get(get(config, "ipam"), "type") == "host-local"
}

/// Returns the value of a key, or null.
fn get<'a>(value: &'a Value, key: &str) -> &'a Value {
    let keys = value.as_object();
    keys.and_then(|keys| value_of(keys, key))
        .unwrap_or(&Value::Null)
}

/// Returns the error for a configuration that is too large for a request.
pub(crate) fn too_large() -> Error {
    Error::new(
        Code::InvalidConfig,
        format!("the network configuration is too large: a request has at most {MAX_BODY} bytes"),
    )
}

fn error(socket: &Path, verb: Verb, trouble: &Trouble) -> Error {
    let code = match trouble {
        // Whatever the cause, an ADD could not be served.
        _ if verb == Verb::Status => Code::NotAvailable,
        Trouble::Down(_) | Trouble::BrokeOff | Trouble::TimedOut => Code::TryAgainLater,
        Trouble::Unusable(_) | Trouble::NotLeasehold(_) => Code::Io,
    };
    Error::new(code, format!("{}: {trouble}", socket.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From now until patience runs out, and until the shim gives up, in seconds.
    fn limits(verb: &str, timeout: &str) -> (u64, u64) {
        let verb = Verb::of(Some(verb)).unwrap();
        let config = format!(r#"{{"IPAM": {{"TimeOut": {timeout}}}}}"#);
        let parsed = serde_json::from_str(&config).unwrap();
        let now = Instant::now();
        let ask = Ask::new(verb, Env::default(), config, &parsed).unwrap();
        let seconds = |at: Instant| (at - now).as_secs_f64().round() as u64;
        (seconds(ask.patience), seconds(ask.deadline))
    }

    #[test]
    fn the_shim_waits_as_long_as_the_daemon_may_take() {
        let table = [
            ("ADD", "5", (7, 7)),
            ("ADD", "0.4", (2, 2)),
            // The daemon's default is unknown here; it is no longer than the longest.
            ("ADD", "null", (32, 602)),
            ("ADD", "0", (32, 602)),
            ("ADD", "\"x\"", (32, 602)),
            ("ADD", "1e9", (602, 602)),
            ("CHECK", "null", (32, 32)),
            ("DEL", "null", (1, 32)),
            ("DEL", "90", (1, 92)),
            ("GC", "null", (1, 32)),
            ("STATUS", "null", (1, 32)),
        ];
        for (verb, timeout, expected) in table {
            assert_eq!(limits(verb, timeout), expected, "{verb} {timeout}");
        }
    }
}
