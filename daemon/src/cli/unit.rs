//! The variables of the daemon's unit, for commands that ask the daemon or look at what it uses.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

use clap::CommandFactory;
use clap::parser::ValueSource;

use crate::cli::args::Args;

/// Where the unit reads its variables from.
const FILE: &str = "/etc/default/leasehold";

/// Returns a command line with the flags added for which the unit has variables and which neither it nor the environment sets.
pub(crate) fn with_unit(line: Vec<OsString>) -> Vec<OsString> {
    // The daemon itself gets the variables from whoever starts it.
    if line.get(1).is_some_and(|verb| verb == "daemon") {
        return line;
    }
    let said = of_the_host();
    if said.is_empty() {
        line
    } else {
        completed(line, &said)
    }
}

/// Returns the variables of this host's unit.
pub(crate) fn of_the_host() -> BTreeMap<String, String> {
    variables(&fs::read_to_string(FILE).unwrap_or_default())
}

fn completed(mut line: Vec<OsString>, said: &BTreeMap<String, String>) -> Vec<OsString> {
    let command = Args::command();
    let Ok(matches) = command.clone().try_get_matches_from(&line) else {
        return line;
    };
    let Some((name, given)) = matches.subcommand() else {
        return line;
    };
    let flags = command
        .find_subcommand(name)
        .into_iter()
        .flat_map(clap::Command::get_arguments);
    for flag in flags {
        let is_set = matches!(
            given.value_source(flag.get_id().as_str()),
            Some(ValueSource::CommandLine | ValueSource::EnvVariable)
        );
        let value = flag
            .get_env()
            .and_then(|variable| said.get(variable.to_str()?));
        if let (Some(long), Some(value), false) = (flag.get_long(), value, is_set) {
            line.push(format!("--{long}={value}").into());
        }
    }
    line
}

/// Reads a file of variables as systemd does, except for syntax that nobody uses there (systemd.exec(5), EnvironmentFile=).
fn variables(text: &str) -> BTreeMap<String, String> {
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with(['#', ';']));
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.trim().to_owned(), unquoted(value.trim()).to_owned()))
        .collect()
}

fn unquoted(value: &str) -> &str {
    let within = |quote| {
        value
            .strip_prefix(quote)
            .and_then(|rest| rest.strip_suffix(quote))
    };
    within('"').or_else(|| within('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_comes_before_the_units_variables() {
        let said = variables(
            "# a comment\nLEASEHOLD_STATE_DIR=\"/mnt/state\"\nLEASEHOLD_SOCKET=/run/x.sock\nOTHER=1\n",
        );
        let line = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let mut completed = completed(line("leasehold doctor --socket /run/y.sock"), &said);
        assert_eq!(completed.split_off(4), line("--state-dir=/mnt/state"));
        for as_it_is in ["leasehold doctor --bad", "leasehold"] {
            assert_eq!(super::completed(line(as_it_is), &said), line(as_it_is));
        }
        assert_eq!(
            with_unit(line("leasehold daemon")),
            line("leasehold daemon")
        );
    }
}
