//! The ring against glommio 0.9, the reference runtime (docs/design/ring.md): the same tiny HTTP
//! answer, the same load, the server on one core, the load on another, rounds of both by turns. The
//! figure is CPU time per request (user + system) of the server's thread, which noise hardly
//! touches.
//!
//! Run: `cargo bench --bench runtimes`, or with `CHRONOS_BENCH_QUICK=1` in about 3 s.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use chronos::ring::{
    Completion, Listener, Ring, RingConfig, SocketId, Wait, Waker, available_cores, now,
    pin_to_core, raise_open_files_limit,
};
use futures_lite::{AsyncReadExt, AsyncWriteExt};

/// Connections x pipelining, as in the table of docs/design/ring.md.
const LOADS: [(usize, usize); 2] = [(64, 1), (64, 16)];
/// The answer to every complete request.
const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nLocation: /timers/0123456789abcdef-2-0123456789abcdef\r\n\
    Content-Length: 0\r\n\r\n";
/// Bytes that both servers read from a connection at once.
const READ_BYTES: usize = 16 << 10;
/// Longest silence in ms of a server under load before the bench gives up.
const SILENCE_MS_MAX: u64 = 5_000;

/// A POST of about 300 bytes, of which 200 are body.
fn request() -> Vec<u8> {
    let body = format!(
        "{{\"timing\":{{\"interval\":300,\"repeat-for\":300}},\"callback\":{{\"http\":\
         {{\"uri\":\"http://127.0.0.1:9000/call/0123456789\",\"opaque\":\"{}\"}}}}}}",
        "x".repeat(80)
    );
    let head =
        "POST /timers HTTP/1.1\r\nHost: 127.0.0.1:7253\r\nContent-Type: application/json\r\n";
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Counts the complete requests in `bytes`. Returns the count and the bytes that they take.
fn count_requests(bytes: &[u8]) -> (usize, usize) {
    let (mut count, mut begin) = (0, 0);
    while let Some(length) = request_length(&bytes[begin..]) {
        count += 1;
        begin += length;
    }
    (count, begin)
}

/// Returns the length of the request with which `bytes` begin, if the request is complete.
fn request_length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    // `Content-Length` is the last header of this bench's requests.
    let last = bytes[..head - 4].rsplit(|&byte| byte == b'\n').next()?;
    let digits = last.strip_prefix(b"Content-Length: ").expect("this bench sends it last");
    let body = digits.iter().fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
    (bytes.len() >= head + body).then_some(head + body)
}

/// Bytes of a connection that are no whole request yet.
#[derive(Default)]
struct Partial(Vec<u8>);

impl Partial {
    /// Takes bytes that arrived. Returns how many requests they complete.
    fn feed(&mut self, bytes: &[u8]) -> usize {
        if self.0.is_empty() {
            let (count, used) = count_requests(bytes);
            self.0.extend_from_slice(&bytes[used..]);
            return count;
        }
        self.0.extend_from_slice(bytes);
        let (count, used) = count_requests(&self.0);
        self.0.drain(..used);
        count
    }
}

/// A server on a thread of its own.
struct Server {
    name: &'static str,
    address: SocketAddr,
    /// `/proc/self/task/<id>/schedstat` of the server's thread.
    accounting: std::path::PathBuf,
    /// The count of io_uring_enter calls, if the server can tell it.
    enters: Option<Arc<AtomicU64>>,
    stop: Box<dyn FnOnce()>,
}

/// What a server tells when it is ready.
struct Ready {
    address: SocketAddr,
    accounting: std::path::PathBuf,
    waker: Option<Waker>,
}

/// Returns the calling thread's accounting file.
fn accounting() -> std::path::PathBuf {
    let thread = std::fs::read_link("/proc/thread-self").expect("proc is mounted");
    std::path::Path::new("/proc").join(thread).join("schedstat")
}

impl Server {
    /// Returns the nanoseconds that the server's thread has run so far. They are exact while it
    /// sleeps.
    fn cpu_ns(&self) -> u64 {
        let text = std::fs::read_to_string(&self.accounting).expect("the server runs");
        let first = text.split_whitespace().next().expect("schedstat has three numbers");
        first.parse().expect("they are numbers")
    }

    fn enters(&self) -> Option<u64> {
        self.enters.as_ref().map(|enters| enters.load(Ordering::Relaxed))
    }
}

/// One client of the ring's server.
#[derive(Default)]
struct Client {
    partial: Partial,
    /// Answers owed to the client: gathered while a send is in flight, and over one turn.
    owed: usize,
    is_sending: bool,
}

fn start_ring(core: usize) -> Server {
    let (tell, told) = mpsc::channel();
    let enters = Arc::new(AtomicU64::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let (published, over) = (enters.clone(), is_over.clone());
    let thread = std::thread::spawn(move || {
        pin_to_core(core).expect("the core is available");
        let mut ring = Ring::new(&RingConfig::default()).expect("Linux 6.1 with io_uring");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener::bind(any, 1024).expect("a free port exists");
        let address = listener.local_address();
        ring.listen(listener);
        let waker = Some(ring.waker());
        tell.send(Ready { address, accounting: accounting(), waker }).expect("it is awaited");
        serve_on_ring(&mut ring, &published, &over);
    });
    let ready = told.recv().expect("the ring starts");
    let waker = ready.waker.expect("a ring has one");
    let stop = Box::new(move || {
        is_over.store(true, Ordering::Relaxed);
        waker.wake();
        thread.join().expect("the ring ends well");
    });
    let Ready { address, accounting, .. } = ready;
    Server { name: "ring", address, accounting, enters: Some(enters), stop }
}

fn serve_on_ring(ring: &mut Ring, enters: &AtomicU64, is_over: &AtomicBool) {
    let mut clients: Vec<Client> = Vec::new();
    let mut pool: Vec<Vec<u8>> = Vec::new();
    let mut completions = Vec::new();
    let mut touched: Vec<SocketId> = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        ring.turn(Wait::Event, &mut completions).expect("a turn does not fail");
        for completion in completions.drain(..) {
            match completion {
                Completion::Accepted { socket, .. } => {
                    let place = socket.index as usize;
                    clients.resize_with(clients.len().max(place + 1), Client::default);
                    clients[place] = Client::default();
                    ring.receive(socket);
                }
                Completion::Received { socket, bytes, .. } => {
                    let client = &mut clients[socket.index as usize];
                    client.owed += client.partial.feed(ring.bytes_mut(&bytes));
                    touched.push(socket);
                }
                Completion::Sent { socket, buffer, .. } => {
                    clients[socket.index as usize].is_sending = false;
                    pool.push(buffer);
                    touched.push(socket);
                }
                Completion::Ended { socket, .. } => ring.close(socket),
                _ => {}
            }
        }
        for socket in touched.drain(..) {
            let client = &mut clients[socket.index as usize];
            if client.owed > 0 && !client.is_sending {
                let mut buffer = pool.pop().unwrap_or_default();
                for _ in 0..std::mem::take(&mut client.owed) {
                    buffer.extend_from_slice(ANSWER);
                }
                client.is_sending = true;
                ring.send(socket, buffer);
            }
        }
        enters.store(ring.enters(), Ordering::Relaxed);
    }
}

fn start_glommio(core: usize) -> Result<Server, String> {
    use glommio::{LocalExecutorBuilder, Placement, net::TcpListener};
    let (tell, told) = mpsc::channel();
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    let executor = LocalExecutorBuilder::new(Placement::Fixed(core))
        .name("glommio")
        .spawn(move || async move {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port exists");
            let address = listener.local_addr().expect("it is bound");
            tell.send(Ready { address, accounting: accounting(), waker: None })
                .expect("it is awaited");
            while let Ok(stream) = listener.accept().await {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                glommio::spawn_local(serve_on_glommio(stream)).detach();
            }
        })
        .map_err(|error| error.to_string())?;
    let ready = told.recv().map_err(|_| "its executor ended before it listened".to_owned())?;
    let address = ready.address;
    let stop = Box::new(move || {
        is_over.store(true, Ordering::Relaxed);
        let _last = std::net::TcpStream::connect(address);
        let _ = executor.join();
    });
    Ok(Server { name: "glommio 0.9", address, accounting: ready.accounting, enters: None, stop })
}

async fn serve_on_glommio(mut stream: glommio::net::TcpStream) {
    stream.set_nodelay(true).expect("TCP has NODELAY");
    let mut bytes = vec![0; READ_BYTES];
    let mut partial = Partial::default();
    let mut answers = Vec::new();
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        answers.clear();
        for _ in 0..partial.feed(&bytes[..count]) {
            answers.extend_from_slice(ANSWER);
        }
        if stream.write_all(&answers).await.is_err() {
            return;
        }
    }
}

/// Closed-loop load: each connection sends `pipelining` requests at once and waits for their
/// answers.
struct Load {
    ring: Ring,
    connections: Vec<Connection>,
    batch: Vec<u8>,
    pipelining: usize,
}

struct Connection {
    socket: SocketId,
    /// Bytes of answers that are still to come.
    missing: usize,
    spare: Vec<u8>,
}

impl Load {
    fn connect(address: SocketAddr, connections: usize, pipelining: usize) -> Load {
        let mut ring = Ring::new(&RingConfig::default()).expect("Linux 6.1 with io_uring");
        let connect = |owner| ring.connect(address, owner).expect("files may be opened");
        let sockets: Vec<_> = (0..connections as u64).map(connect).collect();
        let connection = |socket| Connection { socket, missing: 0, spare: Vec::new() };
        let connections: Vec<_> = sockets.into_iter().map(connection).collect();
        let batch = request().repeat(pipelining);
        let mut load = Load { ring, connections, batch, pipelining };
        let mut waiting = load.connections.len();
        let mut completions = Vec::new();
        while waiting > 0 {
            load.turn(&mut completions);
            for completion in completions.drain(..) {
                if let Completion::Connected { socket, result, .. } = completion {
                    result.expect("the server listens");
                    load.ring.receive(socket);
                    waiting -= 1;
                }
            }
        }
        load
    }

    fn turn(&mut self, completions: &mut Vec<Completion>) {
        let give_up = now().mono.plus_ms(SILENCE_MS_MAX);
        self.ring.turn(Wait::Until(give_up), completions).expect("a turn does not fail");
        assert!(now().mono < give_up, "the server has fallen silent");
    }

    /// Loads for `duration` and waits for the last answers. Returns how many requests were
    /// answered.
    fn run(&mut self, duration: Duration) -> u64 {
        let end = Instant::now() + duration;
        let mut batches = 0;
        let mut is_over = false;
        let mut busy = self.connections.len();
        for place in 0..busy {
            self.send(place);
        }
        let mut completions = Vec::new();
        // A connection is busy until both its send and its answers are complete.
        while busy > 0 {
            self.turn(&mut completions);
            is_over |= Instant::now() >= end;
            for completion in completions.drain(..) {
                let place = match completion {
                    Completion::Received { owner, bytes, .. } => {
                        let missing = &mut self.connections[owner as usize].missing;
                        *missing = missing.checked_sub(bytes.len()).expect("one answer each");
                        owner as usize
                    }
                    Completion::Sent { owner, buffer, result, .. } => {
                        result.expect("the server reads");
                        self.connections[owner as usize].spare = buffer;
                        owner as usize
                    }
                    other => panic!("not expected under load: {other:?}"),
                };
                let connection = &self.connections[place];
                // An empty vector without an allocation marks a send in flight.
                if connection.missing > 0 || connection.spare.capacity() == 0 {
                    continue;
                }
                batches += 1;
                if is_over {
                    busy -= 1;
                } else {
                    self.send(place);
                }
            }
        }
        batches * self.pipelining as u64
    }

    fn send(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        let mut buffer = std::mem::take(&mut connection.spare);
        buffer.extend_from_slice(&self.batch);
        connection.missing = self.pipelining * ANSWER.len();
        self.ring.send(connection.socket, buffer);
    }
}

/// The figures of one round.
#[derive(Clone, Copy)]
struct Sample {
    cpu_ns_per_request: f64,
    enters_per_request: Option<f64>,
    requests_per_second: f64,
}

fn measure(server: &Server, load: &mut Load, duration: Duration) -> Sample {
    let (cpu_before, enters_before) = (server.cpu_ns(), server.enters());
    let begun = Instant::now();
    let requests = load.run(duration) as f64;
    let seconds = begun.elapsed().as_secs_f64();
    // The server falls asleep when it has nothing to do. Only then its accounting is complete.
    std::thread::sleep(Duration::from_millis(5));
    let enters = server.enters().zip(enters_before).map(|(after, before)| after - before);
    Sample {
        cpu_ns_per_request: (server.cpu_ns() - cpu_before) as f64 / requests,
        enters_per_request: enters.map(|enters| enters as f64 / requests),
        requests_per_second: requests / seconds,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print_row(load: (usize, usize), name: &str, samples: &[Sample]) -> f64 {
    let cpu = median(samples.iter().map(|sample| sample.cpu_ns_per_request).collect());
    let rate = median(samples.iter().map(|sample| sample.requests_per_second).collect());
    let enters: Option<Vec<f64>> = samples.iter().map(|sample| sample.enters_per_request).collect();
    let enters = enters.map_or("-".to_owned(), |enters| format!("{:.3}", median(enters)));
    println!(
        "{:>4} x {:<3} {name:<12} {cpu:>10.0} ns CPU/request {enters:>8} enters/request \
         {:>8.0} k/s",
        load.0,
        load.1,
        rate / 1e3
    );
    cpu
}

fn main() {
    let is_quick = std::env::var("CHRONOS_BENCH_QUICK").is_ok_and(|value| value != "0");
    let (rounds, duration) = if is_quick { (3, 100) } else { (7, 500) };
    let duration = Duration::from_millis(duration);
    raise_open_files_limit();
    let cores = available_cores().expect("the mask can be read");
    let (server_core, load_core) = (cores[0], *cores.last().expect("there is one"));
    if cores.len() < 2 {
        println!("ONE CORE ONLY: server and load share it, so the figures are not comparable.");
    }
    let mut servers = vec![start_ring(server_core)];
    match start_glommio(server_core) {
        Ok(server) => servers.push(server),
        Err(error) => println!(
            "GLOMMIO COULD NOT START, ITS ROWS ARE MISSING: {error}. It pins memory: \
             raise `ulimit -l`."
        ),
    }
    pin_to_core(load_core).expect("the core is available");
    for shape in LOADS {
        let connect = |server: &Server| Load::connect(server.address, shape.0, shape.1);
        let mut loads: Vec<Load> = servers.iter().map(connect).collect();
        let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); servers.len()];
        for round in 0..=rounds {
            for (place, server) in servers.iter().enumerate() {
                let sample = measure(server, &mut loads[place], duration);
                // Round 0 warms up.
                if round > 0 {
                    samples[place].push(sample);
                }
            }
        }
        let rows = servers.iter().zip(&samples);
        let cpu: Vec<f64> =
            rows.map(|(server, samples)| print_row(shape, server.name, samples)).collect();
        if let [ring, glommio] = cpu[..] {
            println!("{:>4} x {:<3} glommio / ring = {:.2}", shape.0, shape.1, glommio / ring);
        }
    }
    for server in servers {
        (server.stop)();
    }
}
