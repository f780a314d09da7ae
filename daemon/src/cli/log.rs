//! `leasehold log`: shows what the daemon logs, and changes it for a while.

use leasehold_api::control::{LOG, Log, LogChange};
use leasehold_api::to_json;

use super::args::LogArgs;
use super::client::{self, ClientError};
use super::term::printable;

/// Asks the daemon and returns the text to print.
pub(crate) fn log(args: &LogArgs) -> Result<String, ClientError> {
    let change = |filter: &String| LogChange {
        filter: filter.clone(),
        seconds: args.limit.as_secs(),
    };
    let ask =
        |method, body: &str| client::request(&args.socket, method, LOG, body, client::PATIENCE);
    let answer = match args.filter.as_ref().map(change) {
        Some(change) => ask("PUT", &to_json(&change))?,
        None if args.reset => ask("DELETE", "")?,
        None => ask("GET", "")?,
    };
    let said: Log = client::read(&answer)?;
    if args.json {
        return Ok(to_json(&said) + "\n");
    }
    let filter = printable(&said.filter);
    Ok(match said.seconds_left {
        Some(seconds) => format!("{filter}, for {seconds} s\n"),
        None => format!("{filter}\n"),
    })
}
