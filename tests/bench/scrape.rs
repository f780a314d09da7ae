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
/// How long ADDs are measured with a monitor, and without.
const LASTS: Duration = Duration::from_secs(20);
/// The longest time for an answer to a monitor.
const ANSWER: Duration = Duration::from_millis(50);
/// How much longer an ADD may take beside a monitor, in the middle: less than one differs from the next.
const MORE: Duration = Duration::from_millis(1);

/// Measures scrapes, and ADDs beside them.
pub(crate) fn measure(
    daemon: &Contender,
    place: &Place,
    leases: usize,
    verdict: &mut Verdict,
) -> Result<(), Box<dyn Error>> {
    let alone = adds(daemon, place)?;
    let (stop, stopped) = mpsc::channel::<()>();
    let (beside, scraped) = thread::scope(|scope| {
        let monitor = scope.spawn(|| scrapes(&daemon.socket, stopped));
        let beside = adds(daemon, place);
        drop(stop);
        (beside, monitor.join().expect("it does not panic"))
    });
    let (beside, scraped) = (beside?, scraped?);
    for (what, sample) in [("ADD", &alone), ("ADD beside a scrape a second", &beside), ("scrape", &scraped)] {
        let [middle, most] = [50, 95].map(|percent| milliseconds(sample.percentile(percent)));
        println!("  {what:40} {middle:>12} half of them, {most} 95 % ({} of them)", sample.len());
    }
    verdict.promise(
        format!("{leases} leases: /metrics within {}", milliseconds(ANSWER)),
        scraped.failures.is_empty() && scraped.percentile(95) <= ANSWER,
        milliseconds(scraped.percentile(95)),
    );
    let (without, with) = (alone.percentile(50), beside.percentile(50));
    verdict.promise(
        format!("{leases} leases: an ADD beside a scrape a second takes no longer"),
        alone.failures.is_empty() && beside.failures.is_empty() && with <= without + MORE,
        format!("{} instead of {}", milliseconds(with), milliseconds(without)),
    );
    Ok(())
}

/// Calls ADD and DEL, one after the other.
fn adds(daemon: &Contender, place: &Place) -> Result<Sample, Box<dyn Error>> {
    let (mut sample, config) = (Sample::default(), place.config(&daemon.socket));
    let until = Instant::now() + LASTS;
    while Instant::now() < until {
        client::note(&mut sample, client::call(&daemon.plugin, "ADD", &place.container, &config)?);
        let deleted = client::call(&daemon.plugin, "DEL", &place.container, &config)?;
        deleted.map_err(|client::Failure(said)| said)?;
    }
    Ok(sample)
}

/// Scrapes until told to stop.
fn scrapes(socket: &Path, stopped: mpsc::Receiver<()>) -> io::Result<Sample> {
    let mut sample = Sample::default();
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
    Ok(sample)
}
