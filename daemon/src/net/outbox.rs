//! The orders of one exchange: frames to send, and what to hear from then on.
//!
//! It has its own queue to save memory: while a host's containers start, each has an exchange that only listens for conflicts,
//! and even an empty tokio channel takes more than a kilobyte.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use leasehold_core::effect::OpId;
use leasehold_core::link::Hears;
use tokio::sync::Notify;

/// Returns both ends of a queue that holds at most `places` orders.
pub(super) fn outbox(places: usize) -> (Sender, Outbox) {
    let shared = Arc::new(Shared {
        queue: Mutex::default(),
        places,
        news: Notify::new(),
    });
    (Sender(Arc::clone(&shared)), Outbox(shared))
}

/// What to do, in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Send a frame.
    Send(Outgoing),
    /// Hear only this ARP.
    Hear(Hears),
}

/// A frame to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outgoing {
    /// The operation to answer when it is sent, or cannot be.
    pub(super) op: Option<OpId>,
    /// From its Ethernet header on.
    pub(super) frame: Vec<u8>,
    /// The host's link over which it leaves, if that link accepts it.
    pub(super) over: Option<u32>,
}

/// The sending end. Dropping it closes the exchange once its orders are carried out.
#[derive(Debug)]
pub(super) struct Sender(Arc<Shared>);

/// The receiving end.
#[derive(Debug)]
pub(super) struct Outbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    places: usize,
    news: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    orders: VecDeque<Order>,
    /// No more orders come.
    closed: bool,
    /// Nobody takes orders any more.
    abandoned: bool,
    /// Whoever waits for the end.
    waiter: Option<OpId>,
}

impl Sender {
    /// Adds an order. Returns whether there was room for it, and a receiver to take it.
    pub(super) fn put(&self, order: Order) -> bool {
        let mut queue = self.0.queue();
        let fits = !queue.abandoned && queue.orders.len() < self.0.places;
        if fits {
            queue.orders.push_back(order);
            self.0.news.notify_one();
        }
        fits
    }

    /// Closes the exchange once its orders are carried out; `waiter` is told of its end. Returns `waiter` if it has already
    /// ended.
    pub(super) fn close(self, waiter: Option<OpId>) -> Option<OpId> {
        let mut queue = self.0.queue();
        if queue.abandoned {
            return waiter;
        }
        queue.waiter = waiter;
        None
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.0.queue().abandoned
    }
}

impl Outbox {
    /// Takes the next order, or waits for it; `None` when the queue is closed and empty.
    ///
    /// May be dropped at any await: an order is only taken at the moment it is returned.
    pub(super) async fn next(&mut self) -> Option<Order> {
        loop {
            {
                let mut queue = self.0.queue();
                if let Some(order) = queue.orders.pop_front() {
                    return Some(order);
                }
                if queue.closed {
                    return None;
                }
            }
            self.0.news.notified().await;
        }
    }

    pub(super) fn is_waited_for(&self) -> bool {
        self.0.queue().waiter.is_some()
    }

    /// Takes no more orders. Returns whoever waits for the end.
    pub(super) fn end(self) -> Option<OpId> {
        let mut queue = self.0.queue();
        queue.abandoned = true;
        queue.waiter.take()
    }

    /// Returns whether no more orders come; those that came must still be carried out.
    pub(super) fn is_closed(&self) -> bool {
        self.0.queue().closed
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue
            .lock()
            .expect("nothing panics while it holds the queue")
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.queue().closed = true;
        self.0.news.notify_one();
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.abandoned = true;
        queue.orders = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(byte: u8) -> Order {
        Order::Send(Outgoing {
            op: None,
            frame: vec![byte],
            over: None,
        })
    }

    #[tokio::test]
    async fn frames_come_in_order_and_the_end_comes_after_the_last() {
        let (sender, mut outbox) = outbox(2);
        assert!(sender.put(frame(1)) && sender.put(frame(2)));
        assert!(!sender.put(frame(3)), "no place");
        assert!(!outbox.is_closed());
        drop(sender);
        assert!(outbox.is_closed());
        assert_eq!(outbox.next().await, Some(frame(1)));
        assert_eq!(outbox.next().await, Some(frame(2)));
        assert_eq!(outbox.next().await, None);
    }

    #[tokio::test]
    async fn who_waits_hears_of_a_frame_and_of_the_end() {
        let (sender, mut outbox) = outbox(2);
        let waits = tokio::spawn(async move { (outbox.next().await, outbox.next().await) });
        tokio::task::yield_now().await;
        assert!(sender.put(frame(1)));
        tokio::task::yield_now().await;
        drop(sender);
        assert_eq!(waits.await.unwrap(), (Some(frame(1)), None));
    }

    #[test]
    fn nothing_is_put_in_when_nobody_takes_any_more() {
        let (sender, outbox) = outbox(2);
        assert!(!sender.is_abandoned());
        drop(outbox);
        assert!(sender.is_abandoned());
        assert!(!sender.put(frame(1)));
    }
}
