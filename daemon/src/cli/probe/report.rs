//! What a probe found, for people and as JSON. Pure.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use data_encoding::HEXLOWER;
use ipnet::Ipv4Net;
use leasehold_core::dhcpv4::profile::Servers;
use leasehold_core::wire::message::MessageType;
use serde::Serialize;

use super::ask::{Answer, Asked, Question};
use super::option;
use crate::cli::term::{Paint, Term};

/// What a probe found. `leasehold probe --json` prints it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    link: String,
    /// The path of the link's namespace; absent for the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    netns: Option<String>,
    /// The VLAN on the link; 0: none.
    vlan: u16,
    /// The hardware address of the client that asked.
    mac: String,
    /// The network whose `servers` were applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<String>,
    /// For how long answers were waited for.
    seconds: f64,
    discovers: u32,
    /// The answers in the order in which they came, each once.
    answers: Vec<Heard>,
    /// Why nothing that a client would take was offered, as far as can be told.
    reasons: Vec<String>,
}

/// An answer.
#[derive(Debug, Serialize)]
pub(super) struct Heard {
    /// The server identifier (54).
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<Ipv4Addr>,
    /// The Ethernet source of the answer: the server's, or its relay's.
    mac: String,
    /// The relay that it went through.
    #[serde(skip_serializing_if = "Option::is_none")]
    relay: Option<Ipv4Addr>,
    /// Since the first DISCOVER.
    after_ms: f64,
    /// OFFER, or what came in its place; absent if it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// The offered address.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<Ipv4Net>,
    /// Whether the daemon would take it.
    believed: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<String>,
    /// All options as they were sent.
    options: Vec<Sent>,
}

/// An option of an answer.
#[derive(Debug, Serialize)]
struct Sent {
    code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'static str>,
    value: String,
    /// In hexadecimal.
    bytes: String,
}

/// How a probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A server offers an address that the daemon would take.
    Offered,
    /// No server answered.
    Silent,
    /// There were answers, and the daemon would take none.
    Refused,
}

impl Verdict {
    /// Returns the exit code for it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Offered => 0,
            Self::Silent => 3,
            Self::Refused => 4,
        }
    }
}

/// Takes each answer once, and judges it as the network's containers would.
#[derive(Debug)]
pub(super) struct Judge {
    network: Option<(String, Servers)>,
    seen: BTreeSet<(Option<Ipv4Addr>, String, Option<String>)>,
}

impl Judge {
    /// Returns the judge for clients that believe `servers` of this network, or all servers.
    pub(super) fn new(network: Option<(String, Servers)>) -> Self {
        Self { network, seen: BTreeSet::new() }
    }

    /// Returns an answer, unless the same came before.
    pub(super) fn hears(&mut self, answer: &Answer) -> Option<Heard> {
        let message = answer.message.as_ref();
        let server = message.and_then(|message| message.options.server_id);
        let mac = answer.from.to_string();
        let what = message.map(|message| format!("{} {}", message.kind, message.yiaddr));
        if !self.seen.insert((server, mac.clone(), what)) {
            return None;
        }
        let because = match &answer.offer {
            Err(refused) => Some(refused.to_string()),
            Ok(offer) => self.distrusts(offer.lease.server),
        };
        let offered = answer.offer.as_ref().ok();
        Some(Heard {
            server,
            mac,
            relay: message.map(|message| message.giaddr).filter(|relay| !relay.is_unspecified()),
            after_ms: millis(answer.after),
            message: message.map(|message| message.kind.to_string()),
            address: offered.map(|offer| offer.lease.address).or_else(|| yiaddr(answer)),
            believed: because.is_none(),
            because,
            options: answer.options.iter().map(|(code, bytes)| sent(*code, bytes)).collect(),
        })
    }

    fn distrusts(&self, server: Ipv4Addr) -> Option<String> {
        let (network, servers) = self.network.as_ref()?;
        (!servers.trusts(server)).then(|| format!("`servers` of network {network} does not allow {server}"))
    }

    /// Returns all that was found.
    pub(super) fn report(self, question: &Question, asked: &Asked, answers: Vec<Heard>) -> Report {
        let unheard = asked.not_beside.as_ref();
        let beside =
            unheard.map(|cause| format!("a server in a macvlan on {} was not asked: {cause}", question.ifname));
        let silence = asked.silence.as_ref().filter(|_| answers.is_empty());
        let host = silence.map(|silence| silence.reasons(&question.lan())).unwrap_or_default();
        // Each refused answer says itself why.
        let tally = asked.tally.reason().filter(|_| answers.is_empty());
        Report {
            link: question.ifname.clone(),
            netns: question.netns.as_ref().map(|netns| netns.display().to_string()),
            vlan: question.vlan,
            mac: asked.mac.to_string(),
            network: self.network.map(|(network, _)| network),
            seconds: question.wait.as_secs_f64(),
            discovers: asked.tally.discovers,
            answers,
            reasons: tally.into_iter().chain(host).chain(beside).collect(),
        }
    }
}

/// Returns what an answer that no client takes offers, where that is an address at all.
fn yiaddr(answer: &Answer) -> Option<Ipv4Net> {
    let message = answer.message.as_ref().filter(|message| message.kind == MessageType::Offer)?;
    Ipv4Net::new(message.yiaddr, message.options.subnet_mask?).ok().filter(|net| !net.addr().is_unspecified())
}

fn sent(code: u8, bytes: &[u8]) -> Sent {
    Sent { code, name: option::name(code), value: option::value(code, bytes), bytes: HEXLOWER.encode(bytes) }
}

fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

impl Heard {
    /// Returns the answer as lines of text.
    pub(super) fn text(&self, term: Term) -> String {
        let server = self.server.map_or_else(|| "an unnamed server".to_owned(), |server| server.to_string());
        let relay = self.relay.map(|relay| format!(", relay {relay}")).unwrap_or_default();
        let offers = match (&self.address, self.message.as_deref()) {
            (Some(address), _) => format!("offers {address}"),
            (None, Some(message)) => format!("answers {message}"),
            (None, None) => "answers what cannot be read".to_owned(),
        };
        let head = format!("{server} ({}{relay}) {offers} after {} ms", self.mac, self.after_ms);
        let judged = match &self.because {
            None => String::new(),
            Some(because) => term.wrapped("  ", &format!("not taken: {because}")),
        };
        let width = self.options.iter().map(|option| option.label().len()).max().unwrap_or_default();
        let options =
            self.options.iter().map(|option| term.wrapped(&format!("  {:width$}  ", option.label()), &option.value));
        let paint = if self.believed { Paint::Good } else { Paint::Warn };
        format!("{}\n{judged}{}", term.paint(paint, &head), options.collect::<String>())
    }
}

impl Sent {
    fn label(&self) -> String {
        self.name.map_or_else(|| format!("option {}", self.code), |name| format!("{name} ({})", self.code))
    }
}

impl Report {
    /// Returns what stands below the answers.
    pub(super) fn summary(&self, term: Term) -> String {
        let asked = format!("{} in {} s", count(self.discovers as usize, "DISCOVER"), self.seconds);
        let said = match (self.answers.len(), self.verdict()) {
            (0, _) => format!("No server answered {asked}."),
            (answers, Verdict::Refused) => {
                format!("{} to {asked}, and the daemon would take none.", count(answers, "answer"))
            }
            (answers, _) => format!("{} to {asked}.", count(answers, "answer")),
        };
        let reasons = self.reasons.iter().map(|reason| term.wrapped("- ", reason));
        term.wrapped("", &said) + &reasons.collect::<String>()
    }

    /// Returns how it ended.
    pub(super) fn verdict(&self) -> Verdict {
        match &self.answers[..] {
            [] => Verdict::Silent,
            answers if answers.iter().any(|answer| answer.believed) => Verdict::Offered,
            _ => Verdict::Refused,
        }
    }
}

fn count(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
