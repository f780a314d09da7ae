//! What the exporter answers: bodies and headers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use data_encoding::BASE64;
use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use crate::cli::client::ClientError;
use crate::metrics::CONTENT_TYPE;

/// The page, with its style and its script inside.
const PAGE: &str = include_str!("page.html");

/// The end of OpenMetrics text.
const END: &[u8] = b"# EOF\n";

/// The body of an answer.
pub(super) enum Answer {
    Whole(Full<Bytes>),
    /// Events as they happen.
    Events(mpsc::Receiver<Bytes>),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(cx),
            Self::Events(events) => events
                .poll_recv(cx)
                .map(|next| next.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

/// Returns the policy of the page: nothing is loaded from elsewhere, and injected code does not run.
pub(super) fn policy() -> HeaderValue {
    let hash = |tag: &str| {
        let open = format!("<{tag}>");
        let close = format!("</{tag}>");
        let inner = PAGE
            .split_once(&open)
            .and_then(|(_, rest)| rest.split_once(&close))
            .expect("the page has it")
            .0;
        format!("'sha256-{}'", BASE64.encode(&Sha256::digest(inner)))
    };
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        hash("script"),
        hash("style"),
    );
    HeaderValue::from_str(&policy).expect("ASCII")
}

/// Answers with the page.
pub(super) fn page(policy: HeaderValue) -> Response<Answer> {
    let mut response = said(StatusCode::OK, "text/html; charset=utf-8", PAGE);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

/// Answers a scrape with the daemon's metrics, if it answered, and with whether it did.
pub(super) fn metrics(asked: &Result<Vec<u8>, ClientError>) -> Response<Answer> {
    let up = u8::from(asked.is_ok());
    let text = asked.as_deref().unwrap_or_default();
    let text = text.strip_suffix(END).unwrap_or(text);
    let own = format!(
        "# HELP leasehold_up Whether the daemon answered.\n# TYPE leasehold_up gauge\nleasehold_up {up}\n"
    );
    said(
        StatusCode::OK,
        CONTENT_TYPE,
        [text, own.as_bytes(), END].concat(),
    )
}

pub(super) fn events(events: mpsc::Receiver<Bytes>) -> Response<Answer> {
    with_headers(StatusCode::OK, "text/event-stream", Answer::Events(events))
}

pub(super) fn json(status: StatusCode, body: Vec<u8>) -> Response<Answer> {
    said(status, "application/json", body)
}

/// Answers with one sentence.
pub(super) fn sentence(status: StatusCode, error: &str) -> Response<Answer> {
    json(
        status,
        serde_json::json!({ "error": error }).to_string().into(),
    )
}

fn said(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Answer> {
    with_headers(status, kind, Answer::Whole(Full::new(body.into())))
}

fn with_headers(status: StatusCode, kind: &'static str, body: Answer) -> Response<Answer> {
    const ALWAYS: [(HeaderName, &str); 4] = [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    ALWAYS
        .into_iter()
        .for_each(|(name, value)| _ = headers.insert(name, HeaderValue::from_static(value)));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_nothing_from_elsewhere() {
        for tag in ["style", "script"] {
            assert_eq!(PAGE.matches(&format!("<{tag}")).count(), 1, "{tag}");
        }
        for foreign in [
            "http://",
            "https://",
            "src=",
            "@import",
            "url(",
            "cookie",
            "localStorage",
            "innerHTML",
            " style=",
        ] {
            assert!(!PAGE.contains(foreign), "{foreign}");
        }
        let policy = policy();
        assert!(
            policy
                .to_str()
                .unwrap()
                .starts_with("default-src 'none'; script-src 'sha256-"),
            "{policy:?}"
        );
    }

    #[test]
    fn a_scrape_says_whether_the_daemon_answered() {
        let text = |asked| match metrics(&asked).into_body() {
            Answer::Whole(mut body) => {
                let mut cx = Context::from_waker(std::task::Waker::noop());
                let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut cx) else {
                    panic!()
                };
                String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
            }
            Answer::Events(_) => panic!(),
        };
        let up = text(Ok(b"leasehold_x 1\n# EOF\n".to_vec()));
        assert!(
            up.starts_with("leasehold_x 1\n# HELP leasehold_up ")
                && up.ends_with("\nleasehold_up 1\n# EOF\n"),
            "{up}"
        );
        let down = text(Err(ClientError::NoDaemon("/s".into())));
        assert!(
            down.starts_with("# HELP leasehold_up ") && down.ends_with("\nleasehold_up 0\n# EOF\n"),
            "{down}"
        );
    }
}
