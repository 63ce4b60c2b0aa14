//! The callback server: writes down what comes, and refuses the first attempt at some pops.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::history::{Pop, Recorder};

/// Paths that end so have their first attempt at every pop refused.
pub const FAILS_FIRST: &str = "/fails-first";

/// A callback server on a free port of 127.0.0.1, with a thread per connection.
pub struct Sink {
    pub address: SocketAddr,
}

impl Sink {
    pub fn start(recorder: Arc<Recorder>) -> Sink {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let refused = Arc::new(Mutex::new(HashSet::new()));
        // The threads end with the process: nothing waits for them.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (recorder, refused) = (recorder.clone(), refused.clone());
                thread::spawn(move || serve(stream, &recorder, &refused));
            }
        });
        Sink { address }
    }
}

fn serve(
    mut stream: TcpStream,
    recorder: &Recorder,
    refused: &Mutex<HashSet<(usize, usize, u64)>>,
) {
    // Nodes that were killed leave connections without an end.
    let _ = stream.set_read_timeout(Some(Duration::from_secs(300)));
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::new();
    while let Some((head, body)) = read_request(&mut stream, &mut buffer) {
        let at = recorder.clock.now();
        let Some((timer, write, fails_first, sequence)) = parse(&head) else {
            recorder.with(|history| history.troubles.push((at, format!("callback: {head:?}"))));
            return;
        };
        let is_refused = fails_first
            && refused.lock().expect("no thread panics with it").insert((timer, write, sequence));
        let status = if is_refused { 503 } else { 200 };
        let is_whole = body == opaque(timer, write).as_bytes();
        let pop = Pop { timer, write, sequence, at, status, is_whole };
        recorder.with(|history| history.pops.push(pop));
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// The opaque text of a write.
pub fn opaque(timer: usize, write: usize) -> String {
    format!("timer {timer} write {write}")
}

/// The path of a write's callbacks.
pub fn path(timer: usize, write: usize, fails_first: bool) -> String {
    format!("/{timer}/{write}{}", if fails_first { FAILS_FIRST } else { "" })
}

/// Timer, write, whether its first attempt fails, and sequence number of a callback's head.
fn parse(head: &str) -> Option<(usize, usize, bool, u64)> {
    let path = head.strip_prefix("POST ")?.split(' ').next()?;
    let plain = path.strip_suffix(FAILS_FIRST);
    let (timer, write) = plain.unwrap_or(path).strip_prefix('/')?.split_once('/')?;
    let sequence = header(head, "X-Sequence-Number")?;
    Some((timer.parse().ok()?, write.parse().ok()?, plain.is_some(), sequence))
}

fn header(head: &str, name: &str) -> Option<u64> {
    let lines = head.split("\r\n").filter_map(|line| line.split_once(": "));
    let value = lines.filter(|line| line.0.eq_ignore_ascii_case(name)).map(|line| line.1).next()?;
    value.parse().ok()
}

/// The next callback; `None` at the end of the connection.
fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let head_bytes = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        fill(stream, buffer)?;
    };
    let head = String::from_utf8(buffer.drain(..head_bytes).collect()).ok()?;
    let length = header(&head, "Content-Length")? as usize;
    while buffer.len() < length {
        fill(stream, buffer)?;
    }
    Some((head, buffer.drain(..length).collect()))
}

fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut bytes = [0; 16 << 10];
    let count = stream.read(&mut bytes).ok().filter(|&count| count > 0)?;
    buffer.extend_from_slice(&bytes[..count]);
    Some(())
}
