//! One client that sends DISCOVER and hears every answer, over the daemon's own sockets.
//!
//! It sends from the link, as the daemon does for a container on that LAN. From its second DISCOVER on, it also sends from a
//! macvlan beside the link, which a server in a macvlan on this host hears. It does not change the link.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use fastrand::Rng;
use leasehold_core::effect::{ExchangeId, OpId, Outcome};
use leasehold_core::identity::{ClientId, Lan};
use leasehold_core::link::{ByName, Hears, Line, Link, LinkCause, LinkView, Place, Sockets};
use leasehold_core::silence::{Silence, Survey};
use leasehold_core::source::{ClientProfile, Inquiry, Offer, Refused, Sender, Tally};
use leasehold_core::time::Instant;
use leasehold_core::wire::Mac;
use leasehold_core::wire::frame::{self, Frame, FrameMeta};
use leasehold_core::wire::message::Message;
use tokio::runtime;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::clock::Clock;
use crate::net::{Net, NetConfig, NetReport, StoreId};
use crate::unguessable;

/// The most sockets that a probe has open.
const SOCKETS: usize = 8;

/// What is asked, where, and for how long.
#[derive(Debug)]
pub(super) struct Question {
    /// The link's name.
    pub(super) ifname: String,
    /// The path of its namespace; `None` for the host's.
    pub(super) netns: Option<PathBuf>,
    /// The VLAN on it; 0: none.
    pub(super) vlan: u16,
    /// The client's hardware address, if it is neither the link's nor one derived from the link's.
    pub(super) mac: Option<Mac>,
    /// What the client says about itself. It believes every server.
    pub(super) client: ClientProfile,
    /// How long to wait for answers, from the first DISCOVER on.
    pub(super) wait: Duration,
}

/// An answer as it arrived.
#[derive(Debug)]
pub(super) struct Answer {
    /// The time since the first DISCOVER.
    pub(super) after: Duration,
    /// The Ethernet source.
    pub(super) from: Mac,
    /// The message, if it can be read.
    pub(super) message: Option<Message>,
    /// The options as they were sent, by code.
    pub(super) options: Vec<(u8, Vec<u8>)>,
    /// What it offers, or why a client would not take it.
    pub(super) offer: Result<Offer, Refused>,
}

/// The outcome.
#[derive(Debug)]
pub(super) struct Asked {
    /// The client's hardware address.
    pub(super) mac: Mac,
    /// What was tried.
    pub(super) tally: Tally,
    /// What the link and the host show, if nothing was offered.
    pub(super) silence: Option<Silence>,
    /// Why a server in a macvlan on this host could not be asked.
    pub(super) not_beside: Option<LinkCause>,
    /// Whether only broadcasts reach the client.
    pub(super) is_unreached: bool,
}

impl Question {
    /// Returns the LAN that the link is on.
    pub(super) fn lan(&self) -> Lan {
        match &self.netns {
            None => Lan::Link {
                parent: (&self.ifname).into(),
                vlan: self.vlan,
            },
            // The host's link of that LAN is unknown.
            Some(netns) => Lan::Network(format!("{} in {}", self.ifname, netns.display()).into()),
        }
    }

    fn place(&self, mac: Mac) -> Place {
        let ifname = self.ifname.clone();
        match &self.netns {
            None => Place::Parent { ifname, mac },
            Some(netns) => Place::InNetns(ByName {
                netns: netns.clone(),
                ifname,
                host_too: true,
            }),
        }
    }

    /// Asks, and hands each answer to `hear` as it comes.
    pub(super) fn ask(&self, hear: impl FnMut(Answer)) -> anyhow::Result<Asked> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start")?;
        runtime.block_on(async {
            let (events, news) = unbounded_channel();
            let config = NetConfig {
                host_prefix: "/".into(),
                docker_netns: None,
                store: StoreId(0),
                workers: 1,
                sockets: SOCKETS,
            };
            let net = Net::start(config, events)?;
            Asking {
                question: self,
                net,
                news,
                ops: 0,
            }
            .run(hear)
            .await
        })
    }
}

/// Returns a client's hardware address on a link. That is the link's own address if the link has a namespace of its own, or hears
/// no other address. On a link of the host it is a different one, so that neither a bridge nor a server takes the client for the
/// host.
fn chaddr(question: &Question, view: &LinkView) -> Mac {
    const LOCAL: u8 = 0b10;
    let own = question.netns.is_some() || view.macvlan || view.wireless;
    match question.mac {
        Some(mac) => mac,
        None if own => view.mac,
        None => {
            let Mac(mut other) = view.mac;
            (other[0], other[5]) = (other[0] | LOCAL, other[5] ^ 0x80);
            Mac(other)
        }
    }
}

/// A probe under way.
struct Asking<'a> {
    question: &'a Question,
    net: Net,
    news: UnboundedReceiver<NetReport>,
    ops: u64,
}

impl Asking<'_> {
    async fn run(mut self, mut hear: impl FnMut(Answer)) -> anyhow::Result<Asked> {
        let mut clock = Clock::new().context("cannot start")?;
        let question = self.question;
        let view = self.look().await?;
        let mac = chaddr(question, &view);
        let lan = question.lan();
        let place = question.place(mac);
        if !view.up {
            bail!("{0} is down: ip link set {0} up", question.ifname);
        }
        if !place.has_carrier(&view) {
            bail!(
                "{} has no carrier: is its cable plugged in, its parent up?",
                question.ifname
            );
        }
        let link = place.link(&view, &lan);
        let goes_beside = question.netns.is_none() && mac != view.mac;
        let mut line = Line::over(link.clone(), &view, !goes_beside);
        let mut exchange = self
            .open(link.clone(), mac)
            .await
            .map_err(|cause| self.failed(cause))?;

        let client = Arc::new(ClientProfile {
            rapid_commit: false,
            ..question.client.clone()
        });
        let sender = Sender::new(mac, &ClientId::ethernet(mac), client).from_station(link.mac());
        let before = self.survey(link.clone(), true).await.received;
        let began = Clock::now().boot;
        let end = began + question.wait;
        let mut inquiry = Inquiry::new(sender, began, Rng::with_seed(unguessable()));
        let mut offered = false;
        let mut not_beside = None;
        loop {
            let now = Clock::now().boot;
            if now >= end {
                break;
            }
            if inquiry.asks_again(now) && line.go_beside() {
                // The first socket stays open, because answers to its DISCOVERs may arrive there.
                match self.open(line.link.clone(), mac).await {
                    Ok(other) => exchange = other,
                    Err(cause) => not_beside = Some(cause),
                }
            }
            for frame in inquiry.on_clock(now) {
                self.net.send(None, exchange, frame, None);
            }
            tokio::select! {
                () = clock.sleep_until(inquiry.deadline().min(end)) => {}
                event = self.news.recv() => match event {
                    Some(NetReport::Frame { bytes, meta, .. }) => {
                        let now = Clock::now().boot;
                        let answer = answer(&mut inquiry, &bytes, meta, now, began);
                        answer.into_iter().for_each(|answer| {
                            offered |= answer.offer.is_ok();
                            hear(answer);
                        });
                    }
                    Some(NetReport::Broken { cause, .. }) => return Err(self.failed(cause)),
                    Some(NetReport::Unsent { cause, .. }) => inquiry.on_unsent(cause.to_string()),
                    Some(NetReport::Done { .. } | NetReport::Kernel(_)) => {}
                    Some(NetReport::Ended(_)) | None => return Err(self.failed(LinkCause::TimedOut)),
                },
            }
        }
        let silence = match offered {
            true => None,
            // What keeps servers from answering.
            false => Some(Silence {
                ifname: question.ifname.clone(),
                before,
                up_for: None,
                survey: self.survey(link, false).await,
                server: None,
            }),
        };
        Ok(Asked {
            mac,
            tally: inquiry.tally().clone(),
            silence,
            not_beside,
            is_unreached: inquiry.is_unreached(),
        })
    }

    fn failed(&self, cause: LinkCause) -> anyhow::Error {
        anyhow!("{}: {cause}", self.question.ifname)
    }

    fn op(&mut self) -> OpId {
        self.ops += 1;
        OpId(self.ops)
    }

    /// Waits for the outcome of an operation. Nobody needs what arrives meanwhile.
    async fn outcome(&mut self, of: OpId) -> anyhow::Result<Outcome> {
        loop {
            match self.news.recv().await {
                Some(NetReport::Done { op, outcome }) if op == of => return Ok(outcome),
                Some(NetReport::Ended(_)) | None => return Err(self.failed(LinkCause::TimedOut)),
                Some(_) => {}
            }
        }
    }

    async fn look(&mut self) -> anyhow::Result<LinkView> {
        let op = self.op();
        let target = self.question.place(Mac::default()).target();
        self.net.inspect(op, target, false);
        match self.outcome(op).await? {
            Outcome::Inspected(view) => view.map_err(|cause| self.failed(cause)),
            _ => Err(self.failed(LinkCause::TimedOut)),
        }
    }

    async fn open(&mut self, link: Link, chaddr: Mac) -> Result<ExchangeId, LinkCause> {
        let op = self.op();
        let exchange = ExchangeId(op.0);
        let want = Sockets::new(chaddr, Hears::Answers);
        self.net.open(op, exchange, link, want);
        match self.outcome(op).await {
            Ok(Outcome::Opened(opened)) => opened.map(|()| exchange),
            _ => Err(LinkCause::TimedOut),
        }
    }

    /// Looks at the link and the host, or only counts the frames that came in.
    async fn survey(&mut self, link: Link, counts: bool) -> Survey {
        let op = self.op();
        let lan = self.question.lan();
        let parent = lan.parent().map(str::to_owned);
        self.net.survey(op, link, parent, counts);
        match self.outcome(op).await {
            Ok(Outcome::Surveyed(survey)) => survey,
            _ => Survey::default(),
        }
    }
}

/// Returns a frame as an answer to the inquiry, unless it answers somebody else.
fn answer(
    inquiry: &mut Inquiry,
    bytes: &[u8],
    meta: FrameMeta,
    now: Instant,
    began: Instant,
) -> Option<Answer> {
    let udp = match frame::decode(bytes, meta) {
        Ok(Frame::Udp(udp)) => udp,
        Ok(Frame::Arp(arp)) => {
            inquiry.on_arp(&arp);
            return None;
        }
        Err(cause) => {
            inquiry.on_unreadable(cause);
            return None;
        }
    };
    let before = inquiry.tally().answers;
    let offer = inquiry.offer(now, &udp);
    if offer.is_err() && inquiry.tally().answers == before {
        return None;
    }
    Some(Answer {
        after: now.saturating_since(began),
        from: udp.source_mac,
        message: Message::decode(udp.payload).ok(),
        options: Message::options_as_sent(udp.payload).into_iter().collect(),
        offer,
    })
}
