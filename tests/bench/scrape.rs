//! What a monitor costs a daemon with many leases, and what it costs those who ask for one more.

use std::error::Error;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::client;
use crate::contender::Contender;
use crate::ground::Place;
use crate::sample::Sample;
use crate::verdict::{Verdict, milliseconds};

/// How often a monitor asks.
const PERIOD: Duration = Duration::from_secs(1);
/// How often ADDs are measured with a monitor and without, in turn, so that anything else that changes over time affects both.
const ROUNDS: usize = 5;
/// How long each measurement lasts.
const LASTS: Duration = Duration::from_secs(5);
/// The longest time for an answer to a monitor.
const ANSWER: Duration = Duration::from_millis(50);
/// How many times as long the median ADD may take beside a monitor: two halves of the same measurement differ as much.
const RATIO: f64 = 1.1;

/// Measures scrapes, and ADDs beside them.
pub(crate) fn measure(
    daemon: &Contender,
    place: &Place,
    leases: usize,
    verdict: &mut Verdict,
) -> Result<(), Box<dyn Error>> {
    let (mut alone, mut beside, mut scraped) =
        (Sample::default(), Sample::default(), Sample::default());
    for _ in 0..ROUNDS {
        adds(daemon, place, &mut alone)?;
        let (stop, stopped) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let monitor = scope.spawn(|| scrapes(&daemon.socket, stopped, &mut scraped));
            let added = adds(daemon, place, &mut beside);
            drop(stop);
            monitor.join().expect("it does not panic")?;
            added
        })?;
    }
    for (what, sample) in [
        ("ADD", &alone),
        ("ADD beside a scrape a second", &beside),
        ("scrape", &scraped),
    ] {
        let [middle, most] = [50, 95].map(|percent| milliseconds(sample.percentile(percent)));
        println!(
            "  {what:40} {middle:>12} half of them, {most} 95 % ({} of them)",
            sample.len()
        );
    }
    verdict.promise(
        format!("{leases} leases: /metrics within {}", milliseconds(ANSWER)),
        scraped.failures.is_empty() && scraped.percentile(95) <= ANSWER,
        milliseconds(scraped.percentile(95)),
    );
    let [without, with] = [&alone, &beside].map(|sample| sample.percentile(50));
    let ratio = with.as_secs_f64() / without.as_secs_f64();
    verdict.promise(
        format!(
            "{leases} leases: an ADD beside a scrape a second takes at most {RATIO} times as long"
        ),
        alone.failures.is_empty() && beside.failures.is_empty() && ratio <= RATIO,
        format!(
            "{ratio:.3} times: {} instead of {}",
            milliseconds(with),
            milliseconds(without)
        ),
    );
    Ok(())
}

/// Calls ADD and DEL, one after the other.
fn adds(daemon: &Contender, place: &Place, sample: &mut Sample) -> Result<(), Box<dyn Error>> {
    let config = place.config(&daemon.socket);
    let until = Instant::now() + LASTS;
    while Instant::now() < until {
        client::note(
            sample,
            client::call(&daemon.plugin, "ADD", &place.container, &config)?,
        );
        let deleted = client::call(&daemon.plugin, "DEL", &place.container, &config)?;
        deleted.map_err(|client::Failure(said)| said)?;
    }
    Ok(())
}

/// Scrapes until told to stop.
fn scrapes(socket: &Path, stopped: mpsc::Receiver<()>, sample: &mut Sample) -> io::Result<()> {
    while stopped.recv_timeout(PERIOD) == Err(mpsc::RecvTimeoutError::Timeout) {
        let began = Instant::now();
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        match text.ends_with("# EOF\n") {
            true => sample.add(began.elapsed()),
            false => sample.failures.push(text),
        }
    }
    Ok(())
}
