//! `leasehold renew` and `leasehold release`: leases are extended or given back before their time.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold_api::control::{BINDINGS, Bindings, Obeyed, Outcome, RELEASE, RENEW, Upshot, Which};

use super::args::{OrderArgs, ReleaseArgs};
use super::client;
use super::columns::or_dash;
use super::term::{Paint, Term, brief, printable};

/// How long the daemon may take for the last lease, and for each one: where nobody answers, it asks for 32 of a LAN in 4 s.
const PATIENCE: Duration = Duration::from_secs(60);
const EACH: Duration = Duration::from_millis(150);

/// The outcome of an order, for the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All was done.
    Done = 0,
    /// Something was not.
    Undone = 3,
    /// No lease was meant, or several match a name.
    Nobody = 4,
}

/// Extends leases, and prints the outcome.
pub(crate) fn renew(args: &OrderArgs, out: impl Write) -> anyhow::Result<Verdict> {
    order(args, RENEW, "Extend", None, out)
}

/// Gives leases back, and prints the outcome.
pub(crate) fn release(args: &ReleaseArgs, out: impl Write) -> anyhow::Result<Verdict> {
    order(
        &args.order,
        RELEASE,
        "Give back",
        args.force.then_some("force=true"),
        out,
    )
}

fn order(
    args: &OrderArgs,
    path: &str,
    words: &str,
    more: Option<&str>,
    mut out: impl Write,
) -> anyhow::Result<Verdict> {
    let which = Which {
        name: args.name.clone(),
        ..args.which.which()
    };
    if !args.all && which == Which::default() {
        bail!("say which leases you mean: by name, by a filter such as --network, or with --all");
    }
    let meant = client::get(
        &args.socket,
        &format!("{BINDINGS}?{}", which.parameters().join("&")),
    )?;
    let meant = client::read::<Bindings>(&meant)?.bindings.len();
    if args.all
        && !args.yes
        && !confirmed(&format!("{words} {meant} leases?")).context("cannot ask")?
    {
        bail!("nothing was done: confirm --all with y, or give --yes");
    }
    let mut parameters = which.parameters();
    parameters.extend(args.all.then(|| "all=true".to_owned()));
    parameters.extend(more.map(str::to_owned));
    let patience = PATIENCE + EACH * u32::try_from(meant).unwrap_or(u32::MAX);
    let url = format!("{path}?{}", parameters.join("&"));
    let answer = client::request(&args.socket, "POST", &url, "", patience)?;
    let obeyed: Obeyed = client::read(&answer)?;
    let text = match args.json {
        true => client::pretty(&answer)?,
        false => text(Term::of_stdout(), &which, &obeyed.leases),
    };
    out.write_all(text.as_bytes())?;
    Ok(verdict(&obeyed.leases))
}

/// Asks at the terminal.
fn confirmed(question: &str) -> io::Result<bool> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    eprint!("{question} [y/N] ");
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(["y", "yes"].contains(&line.trim().to_lowercase().as_str()))
}

fn verdict(leases: &[Upshot]) -> Verdict {
    match leases {
        [] => Verdict::Nobody,
        leases
            if leases
                .iter()
                .any(|lease| lease.outcome == Outcome::Ambiguous) =>
        {
            Verdict::Nobody
        }
        leases if leases.iter().all(|lease| lease.outcome.is_done()) => Verdict::Done,
        _ => Verdict::Undone,
    }
}

/// Returns a line for each lease, with the cause below each that was not done, and the number of each outcome at the end.
fn text(term: Term, which: &Which, leases: &[Upshot]) -> String {
    if leases.is_empty() {
        let name = which
            .name
            .as_deref()
            .map_or_else(String::new, |name| format!(" called {name}"));
        return printable(&format!(
            "There is no such lease{name}: `leasehold list` shows all."
        )) + "\n";
    }
    if leases[0].outcome == Outcome::Ambiguous {
        let names: String = leases
            .iter()
            .map(|lease| format!("  {}\n", line(lease)))
            .collect();
        return format!(
            "Nothing was done: {} leases match the name.\n{names}",
            leases.len()
        );
    }
    let mut text = String::new();
    for lease in leases {
        let paint = if lease.outcome.is_done() {
            Paint::Good
        } else {
            Paint::Warn
        };
        let left = lease
            .seconds_to_expiry
            .map(|seconds| format!(", {} left", brief(seconds)));
        let outcome = term.paint(paint, in_words(lease.outcome));
        text += &format!("{}  {outcome}{}\n", line(lease), left.unwrap_or_default());
        if !lease.outcome.is_done() || lease.outcome == Outcome::Recent {
            text += &term.wrapped("  ", &lease.because);
        }
    }
    if leases.len() > 1 {
        let mut counts = std::collections::BTreeMap::new();
        leases
            .iter()
            .for_each(|lease| *counts.entry(lease.outcome).or_insert(0) += 1);
        let counts: Vec<_> = counts
            .iter()
            .map(|(outcome, count)| format!("{count} {}", in_words(*outcome)))
            .collect();
        text += &format!("\n{} leases: {}.\n", leases.len(), counts.join(", "));
    }
    text
}

/// Returns what became of a lease, as it is printed after its name, or after a number of leases.
const fn in_words(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Extended => "extended",
        Outcome::Recent => "up to date",
        Outcome::Unanswered => "not extended",
        Outcome::Lost => "lost",
        Outcome::Nothing => "no lease",
        Outcome::Returned => "given back",
        Outcome::Lives => "not given back",
        Outcome::Ambiguous => "ambiguous",
        Outcome::Failed => "failed",
    }
}

fn line(lease: &Upshot) -> String {
    printable(&format!("{}  {}", lease.attachment, or_dash(lease.address)))
}

#[cfg(test)]
mod tests {
    use leasehold_api::control::Attachment;

    use super::*;

    fn lease(container: &str, outcome: Outcome) -> Upshot {
        let [network, container, ifname] = ["lan", container, "eth0"].map(str::to_owned);
        Upshot {
            attachment: Attachment::Cni {
                network,
                container,
                ifname,
            },
            address: Some("10.0.0.7/24".parse().unwrap()),
            outcome,
            because: "server 10.0.0.1 sent NAK; the daemon looks for another lease".to_owned(),
            seconds_to_expiry: (outcome == Outcome::Extended).then_some(3_600),
        }
    }

    #[test]
    fn each_lease_has_a_line_and_what_was_not_done_its_cause() {
        let leases = [
            lease("c1", Outcome::Extended),
            lease("c\u{1b}2", Outcome::Lost),
            lease("c3", Outcome::Extended),
        ];
        let expected = "\
lan/c1/eth0  10.0.0.7/24  extended, 1h0m left
lan/c\\u{1b}2/eth0  10.0.0.7/24  lost
  server 10.0.0.1 sent NAK; the daemon looks for another lease
lan/c3/eth0  10.0.0.7/24  extended, 1h0m left

3 leases: 2 extended, 1 lost.
";
        assert_eq!(text(Term::PLAIN, &Which::default(), &leases), expected);
        assert_eq!(verdict(&leases), Verdict::Undone);
        assert_eq!(verdict(&leases[..1]), Verdict::Done);
    }

    #[test]
    fn a_name_that_fits_none_or_several_is_told() {
        let which = Which {
            name: Some("web\u{1b}".to_owned()),
            ..Which::default()
        };
        assert_eq!(
            text(Term::PLAIN, &which, &[]),
            "There is no such lease called web\\u{1b}: `leasehold list` shows all.\n"
        );
        let several = [
            lease("c1", Outcome::Ambiguous),
            lease("c2", Outcome::Ambiguous),
        ];
        assert_eq!(
            text(Term::PLAIN, &which, &several),
            "Nothing was done: 2 leases match the name.\n  lan/c1/eth0  10.0.0.7/24\n  lan/c2/eth0  10.0.0.7/24\n"
        );
        assert_eq!([verdict(&[]), verdict(&several)], [Verdict::Nobody; 2]);
    }
}
