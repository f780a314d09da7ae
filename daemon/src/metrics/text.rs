//! The names of all metrics, and the text with their values (OpenMetrics 1.0).

use std::collections::BTreeMap;
use std::fmt::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::counts::Histogram;
use leasehold_core::source::{Fate, Form};
use leasehold_core::trouble::{Subject, TroubleKind};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::Snapshot;

/// The type of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The prefix of each name.
const PREFIX: &str = "leasehold";

/// Writes all numbers.
pub(crate) fn write(snapshot: Snapshot) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(snapshot));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all text");
    text
}

/// The labels of one value.
type Labels<const N: usize> = [(&'static str, String); N];

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut writer = Writer(encoder);
        self.write_daemon(&mut writer)?;
        self.write_troubles(&mut writer)?;
        self.write_leases(&mut writer)?;
        self.write_exchanges(&mut writer)?;
        self.write_shell(&mut writer)
    }
}

impl Snapshot {
    fn write_daemon(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        writer.gauges(
            "build_info",
            "The daemon's version, always 1",
            [([label("version", env!("CARGO_PKG_VERSION"))], 1.0)],
        )?;
        writer.gauge(
            "start_time_seconds",
            "When the daemon started, in seconds since 1970",
            self.since.as_secs_f64(),
        )
    }

    /// Writes how much is wrong, by kind and LAN. A kind of which there is nothing is written as 0, without a LAN.
    fn write_troubles(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let mut counts: BTreeMap<(TroubleKind, String), u64> = TroubleKind::ALL
            .map(|kind| ((kind, String::new()), 0))
            .into();
        for trouble in &self.troubles {
            let place = match &trouble.subject {
                Subject::Lan(lan) => lan.to_string(),
                Subject::Link(ifname) => ifname.to_string(),
                Subject::Host => String::new(),
            };
            *counts.entry((trouble.kind, place)).or_default() += trouble.count;
        }
        let counts = counts.into_iter().map(|((kind, lan), count)| {
            (
                [label("kind", kind.name()), label("lan", &lan)],
                count as f64,
            )
        });
        let help = "What is wrong, as `leasehold status` says it: how many leases, ADDs and the like it concerns";
        writer.gauges("troubles", help, counts)
    }

    fn write_leases(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let holdings = &self.holdings;
        let leases = holdings.leases.iter().map(|(kind, count)| {
            let names = [
                ("door", kind.door),
                ("network", &*kind.network),
                ("source", kind.source),
                ("state", kind.state),
            ];
            (names.map(|(name, value)| label(name, value)), *count as f64)
        });
        writer.gauges(
            "leases",
            "Leases, including those being acquired or given back",
            leases,
        )?;
        let end = holdings.next_end.map(|left| ([], left.as_secs_f64()));
        let help = "Time until the end of the first lease that no server has extended although one was asked; absent if there is none";
        writer.gauges("unextended_lease_ends_in_seconds", help, end)?;
        let ratio = holdings
            .least_left
            .map(|(left, of)| ([], left.as_secs_f64() / of.as_secs_f64()));
        let help = "Part of its term that is left of the lease that was not extended although a server was asked; the least; absent if there is none";
        writer.gauges("unextended_lease_left_ratio", help, ratio)?;
        writer.gauge(
            "adoptions_pending",
            "Containers that ran before the daemon and are not adopted yet",
            holdings.adopting as f64,
        )
    }

    fn write_exchanges(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let counts = &self.counts;
        let named = |(form, fate, count): (Form, Fate, u64)| {
            (
                [label("message", form.name()), label("outcome", fate.name())],
                count,
            )
        };
        let messages = counts.messages().map(named);
        writer.counters(
            "messages",
            "DHCP messages sent for leases, by outcome",
            messages,
        )?;
        let refused = counts
            .refusals()
            .iter()
            .map(|(cause, count)| ([label("cause", cause)], *count));
        writer.counters(
            "refused_packets",
            "Packets, or options in them, that were refused",
            refused,
        )?;
        let events = counts
            .events()
            .map(|(kind, count)| ([label("kind", kind.name())], count));
        writer.counters(
            "events",
            "What happened to leases, as `leasehold events` shows it",
            events,
        )?;
        writer.counter(
            "events_dropped",
            "Events that the store did not accept",
            self.events_dropped,
        )?;
        let phases = counts
            .phases()
            .iter()
            .map(|(phase, took)| ([label("phase", phase.name())], took));
        writer.histograms(
            "add_phase_seconds",
            "Phases of ADDs that got their lease from a server",
            phases,
        )?;
        let extensions = counts
            .extensions()
            .iter()
            .map(|(form, took)| ([label("message", form.name())], took));
        let help =
            "Extensions of leases that are held, from the first message of the phase to the ACK";
        writer.histograms("extension_seconds", help, extensions)
    }

    fn write_shell(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let calls = self.meter.calls.iter().map(|((call, ending), took)| {
            ([label("call", call), label("outcome", ending.name())], took)
        });
        writer.histograms(
            "call_seconds",
            "Calls, from the request to the answer",
            calls,
        )?;
        let connections = self
            .connections
            .iter()
            .map(|(socket, count)| ([label("socket", socket)], *count as f64));
        writer.gauges("connections", "Open connections of callers", connections)?;
        writer.histograms(
            "loop_lag_seconds",
            "How late the loop was for its work of every second",
            [([], &self.meter.lag)],
        )?;
        writer.counter(
            "old_plugin_calls",
            "Calls of the replaced plugin, which speaks Go RPC",
            self.old_plugin_calls,
        )?;
        let commits = &self.commits;
        let outcomes = [("done", commits.done), ("failed", commits.failed)];
        let by_outcome = outcomes.map(|(outcome, count)| ([label("outcome", outcome)], count));
        writer.counters(
            "store_commits",
            "Commits of the store, each of one transaction or more",
            by_outcome,
        )?;
        writer.counters(
            "store_commit_seconds",
            "How long these commits took together",
            [([], commits.took.as_secs_f64())],
        )?;
        let last = commits.last.map(|last| ([], since_epoch(last)));
        writer.gauges(
            "store_last_commit_time_seconds",
            "When the store last wrote, in seconds since 1970; absent before",
            last,
        )?;
        writer.gauge(
            "watched_namespaces",
            "Network namespaces from which the kernel reports changes",
            self.watched.namespaces as f64,
        )?;
        writer.counter(
            "kernel_messages_lost",
            "How often the kernel lost messages; each time, the daemon looks at everything again",
            self.watched.lost,
        )
    }
}

fn label(name: &'static str, value: &str) -> (&'static str, String) {
    (name, value.to_owned())
}

fn since_epoch(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs_f64()
}

/// Writes metrics, each with all its values.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: f64) -> Result<(), Error> {
        self.gauges(name, help, [([], value)])
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        self.counters(name, help, [([], value)])
    }

    fn gauges<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<N>, f64)>,
    ) -> Result<(), Error> {
        self.all(name, help, MetricType::Gauge, values, |encoder, value| {
            encoder.encode_gauge(&value)
        })
    }

    fn counters<const N: usize, V: prometheus_client::encoding::EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<N>, V)>,
    ) -> Result<(), Error> {
        self.all(name, help, MetricType::Counter, values, |encoder, value| {
            encoder.encode_counter::<NoLabelSet, V, u64>(&value, None)
        })
    }

    fn histograms<'h, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<N>, &'h Histogram)>,
    ) -> Result<(), Error> {
        self.all(
            name,
            help,
            MetricType::Histogram,
            values,
            |encoder, took| {
                let buckets: Vec<_> = took.buckets().collect();
                encoder.encode_histogram::<NoLabelSet>(
                    took.sum().as_secs_f64(),
                    took.count(),
                    &buckets,
                    None,
                )
            },
        )
    }

    fn all<const N: usize, V>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        values: impl IntoIterator<Item = (Labels<N>, V)>,
        write: impl Fn(&mut MetricEncoder<'_>, V) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut encoder = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in values {
            write(&mut encoder.encode_family(&labels)?, value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use leasehold_core::registry::{Holdings, Kind};
    use leasehold_core::trouble::Trouble;

    use super::super::{Ending, Meter};
    use super::*;
    use crate::net::Watched;
    use crate::store::Commits;

    fn snapshot() -> Snapshot {
        let kind = |network: &str| Kind {
            door: "cni",
            network: network.to_owned(),
            source: "server",
            state: "BOUND",
        };
        let mut meter = Meter::default();
        meter.call("add", Ending::Done, Duration::from_millis(3));
        meter.lag(Duration::ZERO);
        Snapshot {
            holdings: Holdings {
                leases: [(kind("lan"), 2), (kind("a \"b\"\n"), 1)].into(),
                next_end: Some(Duration::from_millis(1500)),
                least_left: Some((Duration::from_secs(3), Duration::from_secs(12))),
                adopting: 0,
            },
            meter,
            commits: Commits {
                done: 7,
                failed: 1,
                took: Duration::from_millis(20),
                last: Some(UNIX_EPOCH),
                fault: None,
            },
            watched: Watched {
                namespaces: 3,
                lost: 0,
            },
            connections: BTreeMap::from([("control", 1)]),
            since: Duration::from_secs(5),
            troubles: vec![Trouble {
                kind: TroubleKind::LinkDown,
                subject: Subject::Link("eth0".into()),
                since: None,
                count: 2,
                sentence: String::new(),
                remedy: String::new(),
            }],
            ..Snapshot::default()
        }
    }

    /// Returns the names that a text declares, with the suffix that samples of its type have.
    fn declared(text: &str) -> BTreeSet<String> {
        let types = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        types
            .map(|(name, kind)| {
                if kind == "counter" {
                    format!("{name}_total")
                } else {
                    name.to_owned()
                }
            })
            .collect()
    }

    #[test]
    fn values_are_written_with_their_labels() {
        let text = write(snapshot());
        for line in [
            "leasehold_build_info{version=\"0.1.0\"} 1.0",
            "leasehold_start_time_seconds 5.0",
            "leasehold_leases{door=\"cni\",network=\"lan\",source=\"server\",state=\"BOUND\"} 2.0",
            r#"leasehold_leases{door="cni",network="a \"b\"\n",source="server",state="BOUND"} 1.0"#,
            "leasehold_unextended_lease_ends_in_seconds 1.5",
            "leasehold_unextended_lease_left_ratio 0.25",
            "leasehold_troubles{kind=\"adds_fail\",lan=\"\"} 0.0",
            "leasehold_troubles{kind=\"link_down\",lan=\"eth0\"} 2.0",
            "leasehold_call_seconds_bucket{le=\"0.005\",call=\"add\",outcome=\"done\"} 1",
            "leasehold_call_seconds_bucket{le=\"+Inf\",call=\"add\",outcome=\"done\"} 1",
            "leasehold_call_seconds_count{call=\"add\",outcome=\"done\"} 1",
            "leasehold_store_commits_total{outcome=\"failed\"} 1",
            "leasehold_store_commit_seconds_total 0.02",
            "leasehold_watched_namespaces 3.0",
        ] {
            assert!(
                text.lines().any(|written| written == line),
                "{line} is not in\n{text}"
            );
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn the_document_has_every_metric_and_no_other() {
        let document = include_str!("../../docs/metrics.md");
        let rows = document
            .lines()
            .filter_map(|line| line.strip_prefix("| `leasehold_")?.split_once('`'));
        let named: BTreeSet<_> = rows.map(|(name, _)| format!("leasehold_{name}")).collect();
        let of_the_exporter = BTreeSet::from(["leasehold_up".to_owned()]);
        assert_eq!(&declared(&write(snapshot())) | &of_the_exporter, named);
    }
}
