//! One exchange: its sockets, from the order to open them until they are closed, in a task of its own.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::effect::{ExchangeId, OpId, Outcome};
use leasehold_core::link::{LinkCause, LinkView};
use leasehold_core::wire::frame::FrameMeta;
use nix::errno::Errno;
use socket2::Socket;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tracing::{debug, trace};

use super::opened::Opened;
use super::outbox::{Order, Outbox, Outgoing};
use super::packet::{PacketSocket, Receiver, Uplinks};
use super::pool::Pool;
use super::port::Port;
use super::ready::Ready;
use super::{Alarm, NetReport, Received, failed};

/// The name of an exchange's task, for messages about its end.
const TASK: &str = "the task of an exchange";
/// The most received frames that the driver has not taken yet. Further ones wait in the socket, and are lost when it is full.
const UNTAKEN: usize = 16;
/// The pause after which a frame is tried again that finds a queue full or the link down; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The last pause: the frame is lost after some 60 ms.
const LAST_PAUSE: Duration = Duration::from_millis(32);

/// The exchange's id, and what it works with.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) id: ExchangeId,
    pub(super) reports: UnboundedSender<NetReport>,
    /// What all exchanges receive into, one frame after the other.
    pub(super) into: Arc<Mutex<Receiver>>,
    pub(super) uplinks: Arc<Uplinks>,
    pub(super) pool: Pool,
}

impl Exchange {
    /// Waits for `places` for its sockets, has them opened, reports that they are open, and leaves them to a task that sends and
    /// receives until the exchange is closed, which happens when the sender of `outbox` is dropped.
    pub(super) async fn run<
        Opening: Future<Output = Result<Result<Opened, LinkCause>, LinkCause>>,
    >(
        self,
        op: OpId,
        places: impl Future<Output = Result<OwnedSemaphorePermit, AcquireError>>,
        open: impl FnOnce() -> Opening,
        mut outbox: Outbox,
    ) {
        let _alarm = Alarm::new(TASK, &self.reports);
        let opened = tokio::select! {
            biased;
            places = places => {
                let opened = open().await.flatten();
                opened.map(|mut opened| {
                    opened.packet.places = Some(places.expect("nobody closes it"));
                    opened
                })
            }
            // The exchange was closed while it waited for others to close. Nobody sends before it is open.
            _ = outbox.next() => Err(LinkCause::TimedOut),
        };
        let mut port = None;
        let opened = match opened {
            Ok(mut opened) => {
                port = opened.port.take();
                forwarding(port.as_deref(), &mut outbox)
                    .await
                    .and_then(|()| ready(opened))
            }
            Err(cause) => Err(cause),
        };
        let (outcome, sockets) = match opened {
            Ok(sockets) => (Ok(()), Some(sockets)),
            Err(cause) => (Err(cause), None),
        };
        debug!(exchange = self.id.0, ?outcome, "exchange opened");
        self.tell(NetReport::Done {
            op,
            outcome: Outcome::Opened(outcome),
        });
        let Some((packet, hold)) = sockets else {
            return self.end(port, outbox).await;
        };
        // In a task of its own, which may listen for a while: the future that opened the sockets takes more memory.
        tokio::spawn(self.serve(packet, hold, port, outbox));
    }

    /// Waits for a visit to a link and reports what was found, and whether sockets, for which there are `places`, were opened
    /// there. Leaves the sockets to a task that sends and receives.
    pub(super) async fn prepare(
        self,
        op: OpId,
        visit: impl Future<Output = Result<(LinkView, Option<Opened>), LinkCause>>,
        places: Option<OwnedSemaphorePermit>,
        outbox: Outbox,
    ) {
        let _alarm = Alarm::new(TASK, &self.reports);
        let (result, opened) = match visit.await {
            Ok((view, opened)) => (Ok(view), opened),
            Err(cause) => (Err(cause), None),
        };
        let sockets = opened.and_then(|mut opened| {
            opened.packet.places = places;
            ready(opened).ok()
        });
        let exchange = sockets.is_some().then_some(self.id);
        debug!(op = op.0, ?result, "link prepared");
        if exchange.is_some() {
            debug!(exchange = self.id.0, "exchange opened");
        }
        self.tell(NetReport::Done {
            op,
            outcome: Outcome::Prepared { result, exchange },
        });
        if let Some((packet, hold)) = sockets {
            tokio::spawn(self.serve(packet, hold, None, outbox));
        }
    }

    /// Sends and receives until the exchange is closed, or its socket fails.
    async fn serve(
        self,
        packet: Ready<PacketSocket>,
        _hold: Option<Socket>,
        port: Option<Box<Port>>,
        mut outbox: Outbox,
    ) {
        let _alarm = Alarm::new(TASK, &self.reports);
        if let Err(cause) = self.pump(&packet, &mut outbox).await
            && !outbox.is_closed()
        {
            debug!(exchange = self.id.0, %cause, "exchange broken");
            self.tell(NetReport::Broken {
                exchange: self.id,
                cause,
            });
        }
        debug!(exchange = self.id.0, "exchange closed");
        // Boxed, because it does not last.
        Box::pin(self.end(port, outbox)).await;
    }

    /// Ends the exchange, and tells whoever waits for the end. In that case the exchange's port is removed first; otherwise the
    /// port disappears by itself.
    async fn end(&self, port: Option<Box<Port>>, mut outbox: Outbox) {
        if let Some(port) = port {
            // A failed exchange must still be closed.
            while outbox.next().await.is_some() {}
            if outbox.is_waited_for() {
                let removed = self.pool.run(move |_| port.remove()).await;
                debug!(exchange = self.id.0, ?removed, "port removed");
            }
        }
        if let Some(op) = outbox.end() {
            self.tell(NetReport::Done {
                op,
                outcome: Outcome::Closed,
            });
        }
    }

    async fn pump(
        &self,
        packet: &Ready<PacketSocket>,
        outbox: &mut Outbox,
    ) -> Result<(), LinkCause> {
        let places = Arc::new(Semaphore::new(UNTAKEN));
        loop {
            tokio::select! {
                biased;
                next = outbox.next() => match next {
                    Some(Order::Send(frame)) => self.send(packet, frame).await?,
                    Some(Order::Hear(arp)) => packet.hear(arp)?,
                    None => return Ok(()),
                },
                got = receive(packet, &places, &self.into) => {
                    let (bytes, meta) = got.map_err(|error| packet.cause_of(&error))?;
                    // The exchange may be closed and only have a frame still to send.
                    if !outbox.is_closed() {
                        trace!(exchange = self.id.0, length = bytes.len(), ?meta, "frame received");
                        self.tell(NetReport::Frame { exchange: self.id, bytes, meta });
                    }
                }
            }
        }
    }

    /// Sends a frame, and tells whoever waits for the result.
    async fn send(
        &self,
        packet: &PacketSocket,
        Outgoing { op, frame, over }: Outgoing,
    ) -> Result<(), LinkCause> {
        let once = || match over.is_some_and(|link| self.uplinks.send(link, &frame)) {
            true => Ok(()),
            false => packet.send(&frame),
        };
        let (mut sent, mut pause) = (once(), FIRST_PAUSE);
        while sent.is_err_and(is_for_a_moment) && pause <= LAST_PAUSE {
            // Boxed, because it is rare: an exchange that only listens stays small.
            Box::pin(sleep(pause)).await;
            pause *= 2;
            sent = once();
        }
        match sent {
            Ok(()) => trace!(exchange = self.id.0, "frame sent"),
            Err(Errno::ENXIO | Errno::ENODEV) => return Err(packet.no_link()),
            Err(errno) => debug!(exchange = self.id.0, %errno, "frame not sent"),
        }
        match (op, sent.map_err(unsent)) {
            (Some(op), outcome) => self.tell(NetReport::Done {
                op,
                outcome: Outcome::Sent(outcome),
            }),
            (None, Err(cause)) => self.tell(NetReport::Unsent {
                exchange: self.id,
                cause,
            }),
            (None, Ok(())) => {}
        }
        Ok(())
    }

    fn tell(&self, event: NetReport) {
        // The driver may be gone.
        let _ = self.reports.send(event);
    }
}

/// The sockets of an exchange, registered with the loop.
type Sockets = (Ready<PacketSocket>, Option<Socket>);

/// Registers the sockets with the loop.
fn ready(
    Opened {
        packet,
        hold,
        port: _,
    }: Opened,
) -> Result<Sockets, LinkCause> {
    let packet = Ready::new(packet).map_err(|error| failed("wait for a packet socket", &error))?;
    Ok((packet, hold))
}

/// Returns whether a frame may be accepted a moment later: a queue is full, or the link is down.
fn is_for_a_moment(errno: Errno) -> bool {
    use Errno::{EAGAIN, EINTR, ENETDOWN, ENOBUFS, ENOMEM};
    matches!(errno, EAGAIN | EINTR | ENETDOWN | ENOBUFS | ENOMEM)
}

/// Says why a frame was not sent, however often it was tried.
fn unsent(errno: Errno) -> LinkCause {
    match errno {
        Errno::ENETDOWN => LinkCause::Down,
        errno => LinkCause::refused("send", io::Error::from(errno)),
    }
}

/// Waits until frames sent by a port get through, or until the exchange is closed.
async fn forwarding(port: Option<&Port>, outbox: &mut Outbox) -> Result<(), LinkCause> {
    let Some(port) = port else { return Ok(()) };
    tokio::select! {
        forwards = port.forwards() => forwards,
        // Nobody sends before it is open.
        _ = outbox.next() => Err(LinkCause::TimedOut),
    }
}

/// Waits for room for a frame, then for the frame.
///
/// May be dropped at any await: nothing is taken from the socket before the last.
async fn receive(
    packet: &Ready<PacketSocket>,
    places: &Arc<Semaphore>,
    into: &Mutex<Receiver>,
) -> io::Result<(Received, FrameMeta)> {
    let place = Arc::clone(places)
        .acquire_owned()
        .await
        .expect("nobody closes it");
    loop {
        let mut ready = packet.wait().await?;
        let received = packet.receive(&mut into.lock().expect("nothing panics while it receives"));
        match received {
            Ok((bytes, meta)) => {
                return Ok((
                    Received {
                        bytes,
                        _place: place,
                    },
                    meta,
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.is_over(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
