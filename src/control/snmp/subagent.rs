//! The session with the machine's SNMP daemon. Without a daemon nothing happens but a look at its
//! socket; a daemon that comes back is found again.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::agentx::{HEADER_BYTES, Header, Heard, open, register};

/// Pause between two tries to reach the daemon.
const AGAIN: Duration = Duration::from_secs(2);
/// Time for the daemon to answer, and to take an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers the daemon's questions with `remaining`, as long as the runtime lives.
pub(crate) async fn serve(socket: String, remaining: Arc<AtomicU32>) {
    let mut told = String::new();
    loop {
        let failure = match UnixStream::connect(Path::new(&socket)).await {
            // No daemon is there, or none that has subagents.
            Err(_) => String::new(),
            Ok(stream) => session(stream, &remaining, &socket).await.to_string(),
        };
        if !failure.is_empty() && failure != told {
            warn!("the SNMP daemon at {socket}: {failure}; tried again every {AGAIN:?}");
            told = failure;
        }
        sleep(AGAIN).await;
    }
}

/// One session. Returns why it ended.
async fn session(mut stream: UnixStream, remaining: &AtomicU32, socket: &str) -> io::Error {
    let begun = timeout(PATIENCE, begin(&mut stream)).await;
    if let Err(error) = begun.unwrap_or_else(|_| Err(io::Error::other("it does not answer"))) {
        return error;
    }
    info!("the SNMP daemon at {socket} is told how much of a resynchronisation is left");
    loop {
        let heard = match hear(&mut stream, remaining).await {
            Ok(heard) => heard,
            Err(error) => return error,
        };
        match heard {
            Heard::Question(answer) => {
                let sent = timeout(PATIENCE, stream.write_all(&answer)).await;
                if let Err(error) = sent.unwrap_or_else(|error| Err(error.into())) {
                    return error;
                }
            }
            Heard::Close => return io::Error::other("it has ended the session"),
            Heard::Answer(..) | Heard::Nothing => {}
        }
    }
}

/// Opens a session and registers.
async fn begin(stream: &mut UnixStream) -> io::Result<()> {
    let session = ask(stream, &open()).await?;
    ask(stream, &register(session)).await.map(|_| ())
}

/// Sends a request. Returns the session of its answer.
async fn ask(stream: &mut UnixStream, request: &[u8]) -> io::Result<u32> {
    stream.write_all(request).await?;
    match hear(stream, &AtomicU32::new(0)).await? {
        Heard::Answer(session, 0) => Ok(session),
        Heard::Answer(_, error) => Err(io::Error::other(format!("it refuses with error {error}"))),
        _ => Err(io::Error::other("it answers something else")),
    }
}

async fn hear(stream: &mut UnixStream, remaining: &AtomicU32) -> io::Result<Heard> {
    let malformed = |_| io::Error::other("it sends what is no AgentX");
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await?;
    let header = Header::read(&header).map_err(malformed)?;
    let mut payload = vec![0; header.payload_bytes];
    timeout(PATIENCE, stream.read_exact(&mut payload)).await??;
    header.hear(&payload, remaining.load(Relaxed)).map_err(malformed)
}
