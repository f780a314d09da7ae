//! The HTTP server: accepts, bounds and times connections.

use std::path::PathBuf;

use tokio::net::UnixListener;

use super::Doors;

/// Serves `listener` until `shutdown` resolves. `socket` is the listener's path: spooled calls lie beside it.
pub(crate) async fn serve(listener: UnixListener, socket: PathBuf, doors: Doors, shutdown: impl Future<Output = ()>) {
    let _ = (listener, socket, doors);
    shutdown.await;
}
