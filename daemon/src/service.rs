//! The service manager, if there is one: what it is told, and the watchdog that the loop feeds.

use std::env;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{debug, warn};

/// Reports that callers are served from now on. Waits until the manager accepts the message, because it would end a daemon that
/// it has not heard from.
pub(crate) fn ready() {
    if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
        warn!(%error, "cannot notify the service manager");
    }
}

/// Reports that the daemon begins to stop. A manager that does not listen misses it.
pub(crate) fn stopping() {
    if let Err(error) = tell(NotifyState::Stopping) {
        warn!(%error, "cannot notify the service manager");
    }
}

/// Feeds the watchdog. A manager whose socket is full is behind with its own work, and will read what already waits there first.
pub(crate) fn feed() {
    if let Err(error) = tell(NotifyState::Watchdog) {
        debug!(%error, "cannot feed the watchdog");
    }
}

/// Tells the manager something without waiting for it.
fn tell(state: NotifyState<'_>) -> io::Result<()> {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect(path)?;
    socket.send(state.to_string().as_bytes()).map(drop)
}

/// The manager's watchdog, which kills and restarts a daemon whose loop does not feed it in time.
#[derive(Debug)]
pub(crate) struct Watchdog(Interval);

impl Watchdog {
    /// Returns the watchdog, if the manager keeps one for this process (`WatchdogSec=`). Must be called inside the
    /// runtime.
    pub(crate) fn enabled() -> Option<Self> {
        let limit = sd_notify::watchdog_enabled().filter(|limit| *limit > Duration::ZERO)?;
        debug!(?limit, "watchdog");
        // Half its time, as sd_watchdog_enabled(3) recommends.
        let mut interval = interval(limit / 2);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Some(Self(interval))
    }

    /// Waits until the watchdog wants to be fed.
    pub(crate) async fn hungry(&mut self) {
        self.0.tick().await;
    }
}
