//! What is shipped for Prometheus and Grafana: every metric there exists, every expression can be read, and the alerts do as they say.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use leasehold_core::counts::Histogram;
use netns_fixtures::{Need, are_met};
use serde_json::{Value, json};

use crate::{read, root};

const ALERTS: &str = "daemon/dist/prometheus/alerts.yaml";
const ALERTS_TEST: &str = "daemon/dist/prometheus/alerts-test.yaml";
const DASHBOARD: &str = "daemon/dist/prometheus/dashboard.json";

/// The document that has every metric, as a test of the daemon's sees to.
const METRICS: &str = "daemon/docs/metrics.md";

/// Returns the names of the metrics, as samples bear them.
fn samples() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for row in read(METRICS)
        .lines()
        .filter_map(|line| line.strip_prefix("| `leasehold_"))
    {
        let name = format!("leasehold_{}", row.split_once('`').expect("it ends").0);
        match row.contains("| histogram: ") {
            true => {
                names.extend(["_bucket", "_sum", "_count"].map(|suffix| format!("{name}{suffix}")))
            }
            false => drop(names.insert(name)),
        }
    }
    names
}

/// Returns every name of a metric in a text.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text
        .split(|c: char| !is_part(c))
        .filter(|word| word.starts_with("leasehold_"));
    words.map(str::to_owned).collect()
}

/// Returns the panels' expressions, with what Grafana puts in replaced.
fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    for panel in panels {
        let is_said = |what: &str| panel[what].as_str().is_some_and(|text| !text.is_empty());
        assert!(is_said("title") && is_said("description"), "{panel}");
    }
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let text = targets.map(|target| target["expr"].as_str().expect("an expression"));
    text.map(|text| {
        text.replace("$__rate_interval", "5m")
            .replace("$instance", ".*")
    })
    .collect()
}

#[test]
fn every_metric_that_alerts_and_dashboard_name_exists() {
    let known = samples();
    for file in [ALERTS, ALERTS_TEST, DASHBOARD] {
        let unknown: Vec<_> = named(&read(file)).difference(&known).cloned().collect();
        assert_eq!(unknown, [""; 0], "{file} names these");
    }
}

#[test]
fn every_alert_says_what_to_do_and_is_tried() {
    let (text, tried) = (read(ALERTS), read(ALERTS_TEST));
    let alerts: Vec<_> = text.split("- alert: ").skip(1).collect();
    assert!(alerts.len() > 10);
    for alert in alerts {
        for part in ["expr:", "severity:", "summary:", "runbook:"] {
            assert!(alert.contains(part), "{part} is missing: {alert}");
        }
        let name = alert.lines().next().expect("a name");
        assert!(
            tried.contains(name),
            "{ALERTS_TEST} has nothing about {name}"
        );
    }
}

/// Between two bounds a quantile is a guess, by which three seconds may count as nine.
#[test]
fn an_alert_compares_a_quantile_with_a_bound() {
    let alerts = read(ALERTS);
    let quantiles = alerts
        .lines()
        .filter(|line| line.contains("histogram_quantile("));
    for line in quantiles {
        let limit = line.rsplit_once(" > ").expect("a limit").1.trim();
        let limit: f64 = limit.parse().expect("a number");
        let is_bound = |bound: &u64| *bound as f64 == limit * 1e6;
        assert!(Histogram::BOUNDS.iter().any(is_bound), "{line}");
    }
}

#[test]
fn alerts_fire_as_they_say_and_expressions_can_be_read() {
    if !are_met(&[Need::Program("promtool")]) {
        return;
    }
    let promtool = |args: &[&str]| {
        let output = Command::new("promtool")
            .args(args)
            .current_dir(root())
            .output()
            .expect("it was looked for");
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "promtool {args:?}: {said}");
    };
    promtool(&["check", "rules", ALERTS]);
    promtool(&["test", "rules", ALERTS_TEST]);
    let rules = expressions()
        .into_iter()
        .enumerate()
        .map(|(n, expr)| json!({"record": format!("panel:{n}"), "expr": expr}));
    // JSON is YAML.
    let groups = json!({"groups": [{"name": "panels", "rules": rules.collect::<Vec<_>>()}]});
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("panels.yaml");
    fs::write(&file, groups.to_string()).expect("it takes a file");
    promtool(&["check", "rules", &file.to_string_lossy()]);
}
