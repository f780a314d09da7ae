//! The daemon's events, followed once for all pages (server-sent events, HTML Living Standard §9.2).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use leasehold_api::control::{EVENTS, Event, Events};
use leasehold_api::to_json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::cli::client;
use crate::log;

/// How many events a page gets at first.
const KEPT: usize = 200;

/// The most pages that follow.
const MOST: usize = 64;

/// How many events a page may be behind before it is cut off: it reconnects, and gets what it missed.
const BEHIND: usize = 512;

/// How long the daemon waits for an event before it answers that there is none. Each time, pages are told that all is well.
const WAIT: u64 = 15;

/// The pause after a missing answer before the daemon is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// The events, for those who follow them.
#[derive(Clone, Default)]
pub(super) struct Feed(Rc<RefCell<Known>>);

#[derive(Default)]
struct Known {
    /// The latest events, by number.
    events: VecDeque<(u64, Bytes)>,
    /// What pages last heard about the daemon.
    daemon: Bytes,
    pages: Vec<Page>,
}

/// A page that follows.
struct Page {
    events: mpsc::Sender<Bytes>,
    /// Dropped when the page is cut off.
    _follows: oneshot::Sender<Infallible>,
}

/// What a page hears.
#[derive(Debug)]
pub(super) struct Subscription {
    /// Text of server-sent events.
    pub(super) events: mpsc::Receiver<Bytes>,
    /// Ends when the page is cut off, whether or not it has read everything.
    pub(super) cut_off: oneshot::Receiver<Infallible>,
}

impl Feed {
    /// Returns the latest events after number `last`, then those that come; `None` if there are too many pages.
    pub(super) fn subscribe(&self, last: Option<u64>) -> Option<Subscription> {
        let mut known = self.0.borrow_mut();
        known.pages.retain(|page| !page.events.is_closed());
        if known.pages.len() == MOST {
            return None;
        }
        let (page, events) = mpsc::channel(BEHIND);
        let (follows, cut_off) = oneshot::channel();
        let missed = known
            .events
            .iter()
            .filter(|(number, _)| last.is_none_or(|last| *number > last));
        let daemon = Some(&known.daemon).filter(|said| !said.is_empty());
        for bytes in daemon.into_iter().chain(missed.map(|(_, bytes)| bytes)) {
            page.try_send(bytes.clone())
                .expect("there is room for what is kept");
        }
        known.pages.push(Page {
            events: page,
            _follows: follows,
        });
        Some(Subscription { events, cut_off })
    }

    /// Follows the daemon's events, for ever.
    pub(super) async fn follow(self, socket: PathBuf) {
        let socket: Arc<PathBuf> = socket.into();
        // Pages are told at once whether the daemon answers; only then is there something to wait for.
        let mut after = 0;
        let mut wait = 0;
        loop {
            let socket = socket.clone();
            let url = format!("{EVENTS}?after={after}&wait={wait}");
            let patience = Duration::from_secs(WAIT + 5);
            let asked = spawn_blocking(move || client::get_within(&socket, &url, patience)).await;
            let answer = asked
                .expect("a request does not panic")
                .map_err(|error| log::chain(&error));
            let read = answer.and_then(|body| {
                serde_json::from_slice::<Events>(&body).map_err(|error| error.to_string())
            });
            match read {
                Ok(Events { events, next_after }) => {
                    (after, wait) = (next_after, WAIT);
                    self.up(&events);
                }
                Err(why) => {
                    wait = 0;
                    self.down(&why);
                    sleep(AGAIN).await;
                }
            }
        }
    }

    fn up(&self, events: &[Event]) {
        let mut known = self.0.borrow_mut();
        known.daemon_is(Bytes::from_static(b"event: up\ndata: {}\n\n"));
        if events.is_empty() {
            known.tell(&Bytes::from_static(b":\n\n"));
        }
        for event in events {
            let bytes = Bytes::from(format!(
                "id: {}\nevent: lease\ndata: {}\n\n",
                event.number,
                to_json(event)
            ));
            known.tell(&bytes);
            known.events.push_back((event.number, bytes));
        }
        let surplus = known.events.len().saturating_sub(KEPT);
        known.events.drain(..surplus);
    }

    fn down(&self, why: &str) {
        let text = serde_json::json!({ "error": why }).to_string();
        self.0
            .borrow_mut()
            .daemon_is(Bytes::from(format!("event: down\ndata: {text}\n\n")));
    }
}

impl Known {
    /// Tells pages about the daemon, if there is news.
    fn daemon_is(&mut self, daemon: Bytes) {
        if self.daemon != daemon {
            self.tell(&daemon);
            self.daemon = daemon;
        }
    }

    /// Tells all pages; a page that does not read is cut off.
    fn tell(&mut self, bytes: &Bytes) {
        self.pages
            .retain(|page| page.events.try_send(bytes.clone()).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use leasehold_api::control::Attachment;

    use super::*;

    fn event(number: u64) -> Event {
        let attachment = Attachment::Cni {
            network: "lan".into(),
            container: "c".into(),
            ifname: "eth0".into(),
        };
        Event {
            number,
            time: String::new(),
            attachment,
            kind: "renewed".to_owned(),
            address: None,
            server: None,
            cause: String::new(),
            times: None,
            since: None,
        }
    }

    fn drained(page: &mut Subscription) -> Vec<String> {
        let text = std::iter::from_fn(|| page.events.try_recv().ok());
        text.map(|bytes| {
            String::from_utf8(bytes.to_vec())
                .unwrap()
                .lines()
                .next()
                .unwrap()
                .to_owned()
        })
        .collect()
    }

    #[test]
    fn a_page_hears_first_what_is_kept_and_then_what_comes() {
        let feed = Feed::default();
        feed.up(&(1..=300).map(event).collect::<Vec<_>>());
        let mut new = feed.subscribe(None).unwrap();
        let first = drained(&mut new);
        assert_eq!(
            (first.len(), first[0].as_str(), first[1].as_str()),
            (201, "event: up", "id: 101")
        );
        let mut back = feed.subscribe(Some(298)).unwrap();
        assert_eq!(drained(&mut back), ["event: up", "id: 299", "id: 300"]);
        feed.up(&[event(301)]);
        feed.down("no daemon");
        feed.down("no daemon");
        feed.up(&[]);
        assert_eq!(
            drained(&mut back),
            ["id: 301", "event: down", "event: up", ":"]
        );
    }

    #[test]
    fn a_page_that_reads_too_slowly_is_cut_off() {
        let feed = Feed::default();
        let mut slow = feed.subscribe(None).unwrap();
        let mut quick = feed.subscribe(None).unwrap();
        for number in 1..=1000 {
            feed.up(&[event(number)]);
            drained(&mut quick);
        }
        assert_eq!(feed.0.borrow().pages.len(), 1);
        assert_eq!(
            slow.cut_off.try_recv(),
            Err(oneshot::error::TryRecvError::Closed)
        );
        assert_eq!(
            quick.cut_off.try_recv(),
            Err(oneshot::error::TryRecvError::Empty)
        );
        assert_eq!(drained(&mut slow).len(), BEHIND);
        let pages: Vec<_> = std::iter::from_fn(|| feed.subscribe(None)).collect();
        assert_eq!(pages.len(), MOST - 1);
        drop(pages);
        assert!(feed.subscribe(None).is_some());
    }
}
