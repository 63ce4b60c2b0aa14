//! A callback server that remembers what came.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::client::find;

/// One callback as it came.
#[derive(Clone, Debug)]
pub struct Pop {
    /// From the request line.
    pub path: String,
    /// `X-Sequence-Number`.
    pub sequence: u64,
    /// The opaque data.
    pub body: String,
    /// When its last byte was read.
    pub at: Instant,
    /// What it was answered.
    pub status: u16,
}

#[derive(Default)]
struct Seen {
    pops: Mutex<Vec<Pop>>,
}

/// A callback server on a free port of 127.0.0.1, with a thread per connection.
pub struct Sink {
    /// Where it listens.
    pub address: SocketAddr,
    seen: Arc<Seen>,
}

impl Sink {
    /// A server that answers 200.
    pub fn ok() -> Sink {
        Sink::start(|_| 200)
    }

    /// A server that answers with the status that `react` returns; it gets the callbacks of the
    /// same path that came before.
    pub fn start(react: impl Fn(usize) -> u16 + Send + Sync + 'static) -> Sink {
        Sink::on("127.0.0.1:0".parse().expect("an address"), react)
    }

    /// The same at a given address.
    pub fn on(address: SocketAddr, react: impl Fn(usize) -> u16 + Send + Sync + 'static) -> Sink {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let seen = Arc::new(Seen::default());
        let (all, react) = (seen.clone(), Arc::new(react));
        // The threads end with the process: nothing waits for them.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, react) = (all.clone(), react.clone());
                thread::spawn(move || serve(stream, &seen, &*react));
            }
        });
        Sink { address, seen }
    }

    /// The URI of a path here.
    pub fn uri(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What has come so far.
    pub fn pops(&self) -> Vec<Pop> {
        self.seen.pops.lock().expect("nobody panics with it").clone()
    }

    /// What has come so far, by path, in the order in which it came.
    pub fn by_path(&self) -> HashMap<String, Vec<Pop>> {
        let mut paths: HashMap<String, Vec<Pop>> = HashMap::new();
        self.pops()
            .into_iter()
            .for_each(|pop| paths.entry(pop.path.clone()).or_default().push(pop));
        paths
    }
}

fn serve(mut stream: TcpStream, seen: &Seen, react: &dyn Fn(usize) -> u16) {
    // A node that was frozen or killed leaves connections without an end.
    let _ = stream.set_read_timeout(Some(Duration::from_secs(120)));
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::new();
    while let Some(mut pop) = read_pop(&mut stream, &mut buffer) {
        let mut pops = seen.pops.lock().expect("nobody panics with it");
        pop.status = react(pops.iter().filter(|one| one.path == pop.path).count());
        let answer = format!("HTTP/1.1 {} X\r\nContent-Length: 0\r\n\r\n", pop.status);
        pops.push(pop);
        drop(pops);
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// The next callback; `None` at the end of the connection.
fn read_pop(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Pop> {
    let head_bytes = loop {
        if let Some(end) = find(buffer, b"\r\n\r\n") {
            break end + 4;
        }
        fill(stream, buffer)?;
    };
    let head = String::from_utf8(buffer.drain(..head_bytes).collect()).expect("heads are ASCII");
    let path = head.split(' ').nth(1).expect("a request line").to_owned();
    let header = |name: &str| {
        let lines = head.split("\r\n").filter_map(|line| line.split_once(": "));
        let value =
            lines.filter(|line| line.0.eq_ignore_ascii_case(name)).map(|line| line.1).next();
        value.unwrap_or_else(|| panic!("no {name} in {head}")).parse::<u64>().expect("a number")
    };
    let (length, sequence) = (header("Content-Length") as usize, header("X-Sequence-Number"));
    while buffer.len() < length {
        fill(stream, buffer)?;
    }
    let body = String::from_utf8(buffer.drain(..length).collect()).expect("text was sent");
    Some(Pop { path, sequence, body, at: Instant::now(), status: 0 })
}

fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut bytes = [0; 16 << 10];
    let count = stream.read(&mut bytes).ok().filter(|&count| count > 0)?;
    buffer.extend_from_slice(&bytes[..count]);
    Some(())
}
