//! What a probe found, for people and as JSON. Pure.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use leasehold_api::control::DhcpOption;
use leasehold_core::source::{Servers, UNREACHED, UNREACHED_REMEDY};
use leasehold_core::wire::message::MessageType;
use serde::Serialize;

use super::ask::{Answer, Asked, Question};
use crate::cli::term::{Paint, Term};
use crate::options;

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
    /// How long the probe waited for answers.
    seconds: f64,
    discovers: u32,
    /// The answers in the order in which they came, each once.
    answers: Vec<Heard>,
    /// Why there was no acceptable offer, as far as is known, or what else is wrong.
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
    options: Vec<DhcpOption>,
}

/// How a probe ended, for the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A server offers an address that the daemon would take.
    Offered = 0,
    /// No server answered.
    Silent = 3,
    /// There were answers, and the daemon would take none.
    Refused = 4,
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
        let seen = BTreeSet::new();
        Self { network, seen }
    }

    /// Returns an answer, unless the same answer came before.
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
            relay: message
                .map(|message| message.giaddr)
                .filter(|relay| !relay.is_unspecified()),
            after_ms: millis(answer.after),
            message: message.map(|message| message.kind.to_string()),
            address: offered
                .map(|offer| offer.lease.address)
                .or_else(|| yiaddr(answer)),
            believed: because.is_none(),
            because,
            options: answer
                .options
                .iter()
                .map(|(code, bytes)| options::shown(*code, bytes))
                .collect(),
        })
    }

    fn distrusts(&self, server: Ipv4Addr) -> Option<String> {
        let (network, servers) = self.network.as_ref()?;
        (!servers.trusts(server))
            .then(|| format!("`servers` of network {network} does not allow {server}"))
    }

    /// Returns everything that was found.
    pub(super) fn report(self, question: &Question, asked: &Asked, answers: Vec<Heard>) -> Report {
        let unheard = asked.not_beside.as_ref();
        let beside = unheard.map(|cause| {
            format!(
                "a server in a macvlan on {} was not asked: {cause}",
                question.ifname
            )
        });
        let reach = asked
            .is_unreached
            .then(|| format!("{UNREACHED} ({UNREACHED_REMEDY})"));
        let silence = asked.silence.as_ref().filter(|_| answers.is_empty());
        let host = silence
            .map(|silence| silence.reasons(&question.lan()))
            .unwrap_or_default();
        // Each refused answer already says why it was refused.
        let tally = asked.tally.reason().filter(|_| answers.is_empty());
        Report {
            link: question.ifname.clone(),
            netns: question
                .netns
                .as_ref()
                .map(|netns| netns.display().to_string()),
            vlan: question.vlan,
            mac: asked.mac.to_string(),
            network: self.network.map(|(network, _)| network),
            seconds: question.wait.as_secs_f64(),
            discovers: asked.tally.discovers,
            answers,
            reasons: tally
                .into_iter()
                .chain(host)
                .chain(beside)
                .chain(reach)
                .collect(),
        }
    }
}

/// Returns the address that an unacceptable answer offers, if it is an address.
fn yiaddr(answer: &Answer) -> Option<Ipv4Net> {
    let message = answer
        .message
        .as_ref()
        .filter(|message| message.kind == MessageType::Offer)?;
    Ipv4Net::new(message.yiaddr, message.options.subnet_mask?)
        .ok()
        .filter(|net| !net.addr().is_unspecified())
}

fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

impl Heard {
    /// Returns the answer as lines of text.
    pub(super) fn text(&self, term: Term) -> String {
        let server = self.server.map_or_else(
            || "an unnamed server".to_owned(),
            |server| server.to_string(),
        );
        let relay = self
            .relay
            .map(|relay| format!(", relay {relay}"))
            .unwrap_or_default();
        let offers = match (&self.address, self.message.as_deref()) {
            (Some(address), _) => format!("offers {address}"),
            (None, Some(message)) => format!("answers {message}"),
            (None, None) => "sent an unreadable answer".to_owned(),
        };
        let head = format!(
            "{server} ({}{relay}) {offers} after {} ms",
            self.mac, self.after_ms
        );
        let judged = match &self.because {
            None => String::new(),
            Some(because) => term.wrapped("  ", &format!("not taken: {because}")),
        };
        let width = self
            .options
            .iter()
            .map(|option| label(option).len())
            .max()
            .unwrap_or_default();
        let options = self
            .options
            .iter()
            .map(|option| term.wrapped(&format!("  {:width$}  ", label(option)), &option.value));
        let paint = if self.believed {
            Paint::Good
        } else {
            Paint::Warn
        };
        format!(
            "{}\n{judged}{}",
            term.paint(paint, &head),
            options.collect::<String>()
        )
    }
}

fn label(option: &DhcpOption) -> String {
    option.name.as_ref().map_or_else(
        || format!("option {}", option.code),
        |name| format!("{name} ({})", option.code),
    )
}

impl Report {
    /// Returns the text below the answers.
    pub(super) fn summary(&self, term: Term) -> String {
        let asked = format!(
            "{} in {} s",
            count(self.discovers as usize, "DISCOVER"),
            self.seconds
        );
        let said = match (self.answers.len(), self.verdict()) {
            (0, _) => format!("No server answered {asked}."),
            (answers, Verdict::Refused) => {
                format!(
                    "{} to {asked}, but the daemon would take none.",
                    count(answers, "answer")
                )
            }
            (answers, _) => format!("{} to {asked}.", count(answers, "answer")),
        };
        let reasons = self.reasons.iter().map(|reason| term.wrapped("- ", reason));
        term.wrapped("", &said) + &reasons.collect::<String>()
    }

    /// Returns how the probe ended.
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

#[cfg(test)]
mod tests {
    use leasehold_core::silence::{Silence, Survey};
    use leasehold_core::source::{ClientProfile, Lease, Offer, Refusal, Refused, Tally};
    use leasehold_core::time::Instant;
    use leasehold_core::wire::Mac;
    use leasehold_core::wire::message::{BadMessage, Message};
    use leasehold_core::wire::option::Options;
    use serde_json::json;

    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);

    fn answer(server: [u8; 4], kind: MessageType, offered: Option<&str>) -> Answer {
        let server: Ipv4Addr = server.into();
        let address: Ipv4Net = offered.unwrap_or("0.0.0.0/24").parse().unwrap();
        let none = Ipv4Addr::UNSPECIFIED;
        let options = Options {
            server_id: Some(server),
            subnet_mask: Some(24),
            ..Options::default()
        };
        let message = Message {
            kind,
            xid: 1,
            yiaddr: address.addr(),
            giaddr: none,
            chaddr: MAC,
            options,
        };
        let lease = Lease {
            server,
            ..Lease::unknown(address, Instant::BOOT)
        };
        let refused = Refused::Unbelieved(Refusal::NoLeaseTime);
        Answer {
            after: Duration::from_micros(1_234),
            from: MAC,
            options: vec![(1, vec![255, 255, 255, 0]), (224, vec![7])],
            offer: if offered.is_some() {
                Ok(Offer {
                    message: message.clone(),
                    lease,
                })
            } else {
                Err(refused)
            },
            message: Some(message),
        }
    }

    fn question() -> Question {
        Question {
            ifname: "eth0".to_owned(),
            netns: None,
            vlan: 0,
            mac: None,
            client: ClientProfile::default(),
            wait: Duration::from_secs(8),
        }
    }

    fn asked(silence: Option<Silence>) -> Asked {
        let mut tally = Tally::default();
        tally.discovers = 4;
        Asked {
            mac: MAC,
            tally,
            silence,
            not_beside: None,
            is_unreached: false,
        }
    }

    #[test]
    fn an_offer_is_shown_with_its_options_and_as_json() {
        let mut judge = Judge::new(None);
        let offer = answer([10, 0, 0, 1], MessageType::Offer, Some("10.0.0.7/24"));
        let heard = judge.hears(&offer).unwrap();
        assert!(judge.hears(&offer).is_none(), "the same again");
        let text = "10.0.0.1 (02:00:00:00:00:09) offers 10.0.0.7/24 after 1.2 ms\n  \
                    subnet-mask (1)  255.255.255.0\n  option 224       07\n";
        assert_eq!(heard.text(Term::PLAIN), text);
        let report = judge.report(&question(), &asked(None), vec![heard]);
        assert_eq!(
            report.summary(Term::PLAIN),
            "1 answer to 4 DISCOVERs in 8 s.\n"
        );
        assert_eq!(report.verdict(), Verdict::Offered);
        let options = json!([
            {"code": 1, "name": "subnet-mask", "value": "255.255.255.0", "bytes": "ffffff00"},
            {"code": 224, "value": "07", "bytes": "07"}
        ]);
        let expected = json!({
            "link": "eth0", "vlan": 0, "mac": "02:00:00:00:00:09", "seconds": 8.0, "discovers": 4, "reasons": [],
            "answers": [{
                "server": "10.0.0.1", "mac": "02:00:00:00:00:09", "after_ms": 1.2, "message": "OFFER",
                "address": "10.0.0.7/24", "believed": true, "options": options
            }]
        });
        assert_eq!(serde_json::to_value(&report).unwrap(), expected);
    }

    #[test]
    fn refused_offers_are_shown_with_the_reason() {
        let deny = Servers {
            deny: vec![[10, 0, 0, 1].into()],
            ..Servers::default()
        };
        let mut judge = Judge::new(Some(("lan".to_owned(), deny)));
        let unreadable = Answer {
            message: None,
            options: Vec::new(),
            offer: Err(Refused::Malformed(BadMessage::NoMessageType)),
            ..answer([10, 0, 0, 3], MessageType::Offer, None)
        };
        let answers = [
            answer([10, 0, 0, 1], MessageType::Offer, Some("10.0.0.7/24")),
            answer([10, 0, 0, 2], MessageType::Nak, None),
            unreadable,
        ];
        let heard: Vec<_> = answers
            .iter()
            .filter_map(|answer| judge.hears(answer))
            .collect();
        let heads = [
            (
                "10.0.0.1 (02:00:00:00:00:09) offers 10.0.0.7/24",
                "`servers` of network lan does not allow 10.0.0.1",
            ),
            (
                "10.0.0.2 (02:00:00:00:00:09) answers NAK",
                "lease time missing",
            ),
            (
                "an unnamed server (02:00:00:00:00:09) sent an unreadable answer",
                "message type missing",
            ),
        ];
        for (heard, (head, because)) in heard.iter().zip(heads) {
            let text = heard.text(Term::PLAIN);
            assert!(
                text.starts_with(head) && text.contains(&format!("\n  not taken: {because}\n")),
                "{text}"
            );
        }
        let report = judge.report(&question(), &asked(None), heard);
        let summary = "3 answers to 4 DISCOVERs in 8 s, but the daemon would take none.\n";
        assert_eq!(
            (report.summary(Term::PLAIN).as_str(), report.verdict()),
            (summary, Verdict::Refused)
        );
    }

    #[test]
    fn silence_is_explained_by_what_the_host_shows() {
        let survey = Survey {
            carrier: Some(true),
            received: Some(10),
            ..Survey::default()
        };
        let silence = Silence {
            ifname: "eth0".to_owned(),
            before: Some(10),
            up_for: None,
            survey,
            server: None,
        };
        let report = Judge::new(None).report(&question(), &asked(Some(silence)), Vec::new());
        let summary = "No server answered 4 DISCOVERs in 8 s.\n\
                       - not one frame came in on eth0 from outside: is that the right network, VLAN\n  and switch port?\n";
        assert_eq!(
            (report.summary(Term::PLAIN).as_str(), report.verdict()),
            (summary, Verdict::Silent)
        );
        let codes = [Verdict::Offered, Verdict::Silent, Verdict::Refused];
        assert_eq!(codes.map(|verdict| verdict as u8), [0, 3, 4]);
    }
}
