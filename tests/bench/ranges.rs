//! Addresses from local ranges: our plugin in host-local's place, beside the real one, without a daemon. Both keep their files on
//! the same disk.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use leasehold_api::cni::Holder;
use leasehold_host_local::{Directory, Fault, Host, Note, Progress};
use netns_fixtures::{Container, Netns, Sandbox};
use serde_json::json;
use tempfile::TempDir;

use crate::binaries::Binaries;
use crate::client::{self, note};
use crate::contender::{Who, order};
use crate::report::{self, failures, percentiles, row, title};
use crate::rounds::{AT_ONCE, Pair};
use crate::sample::Sample;
use crate::verdict::Verdict;

/// The plugin of Debian's package containernetworking-plugins.
const HOST_LOCAL: &str = "/usr/lib/cni/host-local";
/// The ADDs and DELs of a sequential measurement, and those of one of its turns.
const SEQUENTIAL: usize = 200;
const TURN: usize = 20;
/// How many addresses are taken in the larger measurement.
const TAKEN: usize = 5000;
/// The ADDs of the parallel measurement.
const PARALLEL: usize = 640;

/// How many times faster the median ADD and DEL must be.
const WITH_FEW: f64 = 3.0;
/// The same with so many addresses taken. The kernel alone lists their 10,000 files in a fifteenth of host-local's time.
const WITH_MANY: f64 = 7.0;

/// The host, and where each side keeps its files.
struct Place {
    netns: Netns,
    ours: PathBuf,
    dirs: [TempDir; 2],
}

impl Place {
    fn plugin(&self, who: Who) -> &Path {
        if who == Who::Ours {
            &self.ours
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
                "type": "host-local", "dataDir": self.data_dir(who),
                "subnet": "10.9.0.0/16", "routes": [{"dst": "0.0.0.0/0"}],
            },
        })
        .to_string()
        .into_bytes()
    }

    fn container(&self, number: usize) -> Container {
        Container::new(&format!("c{number}"), self.netns.clone(), "eth0", [0; 6])
    }

    /// Makes both sides' files say that many addresses are taken, each as its own plugin writes them.
    fn fill(&self, network: &str) -> Result<(), Box<dyn Error>> {
        let addresses = || (2..TAKEN + 2).map(|n| [10, 9, (n / 256) as u8, (n % 256) as u8]);
        let dir = self.data_dir(Who::Theirs).join(network);
        fs::create_dir_all(&dir)?;
        for (number, [a, b, c, d]) in addresses().enumerate() {
            fs::write(
                dir.join(format!("{a}.{b}.{c}.{d}")),
                format!("old{number}\r\neth0"),
            )?;
        }
        let ours = Directory::at(self.data_dir(Who::Ours).join(network));
        let fault = |fault: Fault| fault.to_string();
        ours.make().map_err(fault)?;
        let locked = ours.lock(&Progress::default()).map_err(fault)?;
        let mut names = locked.names().map_err(fault)?;
        let note = Note::of(&Host::this(), self.netns.path());
        for (number, address) in addresses().enumerate() {
            let by = Holder {
                container: format!("old{number}"),
                ifname: Some("eth0".to_owned()),
            };
            let taken = locked.take(&mut names, address.into(), &by, &note);
            taken.map_err(fault)?;
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
    let place = Place {
        netns,
        ours: binaries.shim.clone(),
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
    for (verb, sample) in [("ADD", &add), ("DEL", &del)] {
        faster(verb, sample, WITH_FEW, verdict);
    }

    place.fill("many")?;
    let (add, del) = sequential(&place, "many")?;
    for (verb, sample) in [("ADD", &add), ("DEL", &del)] {
        title(&format!(
            "Local ranges with {TAKEN} addresses taken, {} each: {verb}",
            sample.ours.len()
        ));
        percentiles(&sample.ours, &sample.theirs, &[50, 99, 100]);
        faster(
            &format!("{verb} with {TAKEN} addresses taken"),
            sample,
            WITH_MANY,
            verdict,
        );
    }

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
    let what = format!("no fewer ADDs a second, {AT_ONCE} at once");
    verdict.promise(
        what,
        rates[1] >= rates[0],
        format!("{:.1} times", rates[1] / rates[0]),
    );
    Ok(())
}

/// Promises that our median is so many times as fast.
fn faster(what: &str, sample: &Pair<Sample>, times: f64, verdict: &mut Verdict) {
    let Pair { ours, theirs } = sample;
    let found = report::ratio(theirs.percentile(50), ours.percentile(50));
    verdict.promise(
        format!("{what} at least {times} times as fast as host-local's, median"),
        found >= times,
        format!("{found:.1} times"),
    );
    failures(ours, what, verdict);
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
