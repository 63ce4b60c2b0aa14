//! The callback receiver of the demo. It takes every POST and passes it on with the time of its
//! arrival.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Most pops that the receiver holds while the terminal is slow. The demo has 7 pops.
const POPS_WAITING_MAX: usize = 1_024;

/// A callback as the receiver sees it.
#[derive(Debug)]
pub(super) struct Pop {
    pub(super) at: Instant,
    pub(super) name: String,
    pub(super) sequence: Option<u64>,
    pub(super) opaque: String,
}

/// Opens the receiver. Returns its address, the pops that it gets, and the future that serves it.
pub(super) async fn receive()
-> io::Result<(SocketAddr, mpsc::Receiver<Pop>, impl Future<Output = ()> + use<>)> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let address = listener.local_addr()?;
    let (sender, pops) = mpsc::channel(POPS_WAITING_MAX);
    let router = axum::Router::new().fallback(accept_pop).with_state(sender);
    let serving = async move {
        // The server ends only when it is dropped. It retries a failed accept.
        let _ = axum::serve(listener, router).await;
    };
    Ok((address, pops, serving))
}

/// Takes one callback. Reads the time before anything else.
async fn accept_pop(
    State(sender): State<mpsc::Sender<Pop>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) {
    let at = Instant::now();
    let sequence = headers.get("x-sequence-number").and_then(|value| value.to_str().ok());
    let pop = Pop {
        at,
        name: uri.path().trim_start_matches('/').to_string(),
        sequence: sequence.and_then(|digits| digits.parse().ok()),
        opaque: String::from_utf8_lossy(&body).into_owned(),
    };
    // An error means that the demo has ended.
    let _ = sender.send(pop).await;
}
