//! HTTP/1.1 as the daemon and its exporter serve it: one request a connection, whose head is short and comes soon.

use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;

/// The longest head of a request, in bytes: hyper keeps a buffer of that size for each waiting caller.
const MAX_HEAD: usize = 8192;
/// From the accept to the end of the request's head.
const HEAD_LIMIT: Duration = Duration::from_secs(5);

/// Returns what serves a connection.
pub(crate) fn http1() -> http1::Builder {
    let mut http1 = http1::Builder::new();
    http1
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(MAX_HEAD)
        .keep_alive(false);
    http1
}
