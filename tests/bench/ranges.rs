//! Addresses from local ranges: our plugin in host-local's place, beside the real one. Both keep their files on the same disk;
//! each of our ADDs is also durable.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use netns_fixtures::{Container, Netns, Sandbox};
use serde_json::json;
use tempfile::TempDir;

use crate::binaries::Binaries;
use crate::client::{self, note};
use crate::contender::{Contender, Who, order};
use crate::report::{self, failures, percentiles, row, title};
use crate::rounds::{AT_ONCE, Pair};
use crate::sample::Sample;
use crate::verdict::{Verdict, milliseconds};

/// The plugin of Debian's package containernetworking-plugins.
const HOST_LOCAL: &str = "/usr/lib/cni/host-local";
/// The ADDs and DELs of a sequential measurement, and those of one of its turns.
const SEQUENTIAL: usize = 200;
const TURN: usize = 20;
/// How many addresses are taken in the larger measurement.
const TAKEN: usize = 5000;
/// The ADDs of the parallel measurement.
const PARALLEL: usize = 640;

/// How many times faster the median ADD must be with so many addresses taken.
const WITH_MANY: f64 = 5.0;
/// How many times more ADDs a second there must be with many at once.
const THROUGHPUT: f64 = 3.0;

/// The host, and where each side keeps its files.
struct Place {
    netns: Netns,
    ours: Contender,
    dirs: [TempDir; 2],
}

impl Place {
    fn plugin(&self, who: Who) -> &Path {
        if who == Who::Ours {
            &self.ours.plugin
        } else {
            Path::new(HOST_LOCAL)
        }
    }

    fn data_dir(&self, who: Who) -> PathBuf {
        self.dirs[usize::from(who == Who::Theirs)].path().to_owned()
    }

    fn config(&self, who: Who, network: &str) -> Vec<u8> {
        json!({
            "cniVersion": "1.0.0", "name": network, "type": "ptp",
            "ipam": {
                "type": "host-local", "daemonSocketPath": self.ours.socket, "dataDir": self.data_dir(who),
                "subnet": "10.9.0.0/16", "routes": [{"dst": "0.0.0.0/0"}],
            },
        })
        .to_string()
        .into_bytes()
    }

    fn container(&self, number: usize) -> Container {
        Container::new(&format!("c{number}"), self.netns.clone(), "eth0", [0; 6])
    }

    /// Makes both sides' files say that many addresses are taken.
    fn fill(&self, network: &str) -> io::Result<()> {
        for who in [Who::Ours, Who::Theirs] {
            let dir = self.data_dir(who).join(network);
            fs::create_dir_all(&dir)?;
            for number in 2..TAKEN + 2 {
                fs::write(
                    dir.join(format!("10.9.{}.{}", number / 256, number % 256)),
                    format!("old{number}\r\neth0"),
                )?;
            }
        }
        Ok(())
    }
}

/// Measures, and reports.
pub(crate) fn measure(
    binaries: &Binaries,
    sandbox: &Sandbox,
    verdict: &mut Verdict,
) -> Result<(), Box<dyn Error>> {
    let netns = Netns::new(sandbox, "host")?;
    let ours = Contender::start(Who::Ours, binaries, &netns)?;
    let place = Place {
        netns,
        ours,
        dirs: [binaries.state_dir()?, binaries.state_dir()?],
    };

    let (add, del) = sequential(&place, "few")?;
    title(&format!(
        "Local ranges, one after the other, {} each: ADD",
        add.ours.len()
    ));
    percentiles(&add.ours, &add.theirs, &[50, 99, 100]);
    title("DEL");
    percentiles(&del.ours, &del.theirs, &[50, 99, 100]);
    for (verb, Pair { ours, theirs }) in [("ADD", &add), ("DEL", &del)] {
        let (mine, other) = (ours.percentile(50), theirs.percentile(50));
        let found = format!("{} to {}", milliseconds(mine), milliseconds(other));
        verdict.promise(
            format!("{verb} from a range no slower than host-local's, median"),
            mine <= other,
            found,
        );
        failures(ours, verb, verdict);
    }

    place.fill("many")?;
    let (add, _) = sequential(&place, "many")?;
    title(&format!(
        "Local ranges with {TAKEN} addresses taken, {} each: ADD",
        add.ours.len()
    ));
    percentiles(&add.ours, &add.theirs, &[50, 99, 100]);
    let faster = report::ratio(add.theirs.percentile(50), add.ours.percentile(50));
    let what =
        format!("ADD with {TAKEN} addresses taken at least {WITH_MANY} times as fast, median");
    verdict.promise(what, faster >= WITH_MANY, format!("{faster:.1} times"));
    failures(&add.ours, "ADD", verdict);

    let mut rates = Vec::new();
    for who in [Who::Theirs, Who::Ours] {
        let (sample, rate) = at_once(&place, who)?;
        failures(&sample, "ADD", verdict);
        rates.push(rate);
    }
    title(&format!("Local ranges, {AT_ONCE} at once, {PARALLEL} each"));
    row(
        "ADDs a second",
        &format!("{:.0}", rates[1]),
        &format!("{:.0}", rates[0]),
        rates[1] / rates[0],
    );
    let what = format!("{THROUGHPUT} times as many ADDs a second, {AT_ONCE} at once");
    verdict.promise(
        what,
        rates[1] >= THROUGHPUT * rates[0],
        format!("{:.1} times", rates[1] / rates[0]),
    );
    place.ours.stop()
}

/// Attaches and detaches one container after the other, in turns.
fn sequential(
    place: &Place,
    network: &str,
) -> Result<(Pair<Sample>, Pair<Sample>), Box<dyn Error>> {
    let (mut add, mut del) = (Pair::<Sample>::default(), Pair::<Sample>::default());
    for round in 0..SEQUENTIAL / TURN {
        for who in order(round) {
            let (plugin, config) = (place.plugin(who), place.config(who, network));
            for number in 0..TURN {
                let container = place.container(number);
                note(
                    add.of(who),
                    client::call(plugin, "ADD", &container, &config)?,
                );
                note(
                    del.of(who),
                    client::call(plugin, "DEL", &container, &config)?,
                );
            }
        }
    }
    Ok((add, del))
}

/// Attaches containers with many calls under way at once. Returns the calls, and how many there were a second.
fn at_once(place: &Place, who: Who) -> io::Result<(Sample, f64)> {
    let (next, each) = (AtomicUsize::new(0), Mutex::new(Sample::default()));
    let (plugin, config) = (place.plugin(who), place.config(who, "crowd"));
    let caller = || -> io::Result<()> {
        let mut mine = Sample::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= PARALLEL {
                break;
            }
            note(
                &mut mine,
                client::call(plugin, "ADD", &place.container(number), &config)?,
            );
        }
        each.lock().expect("no caller panics").merge(mine);
        Ok(())
    };
    let began = Instant::now();
    thread::scope(|scope| {
        let callers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(caller)).collect();
        callers
            .into_iter()
            .try_for_each(|caller| caller.join().expect("no caller panics"))
    })?;
    let sample = each.into_inner().expect("no caller panics");
    let rate = sample.len() as f64 / began.elapsed().as_secs_f64();
    Ok((sample, rate))
}
