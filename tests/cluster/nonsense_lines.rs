//! The connections of the member that says nonsense. It sends messages over connections that it
//! dials. It gets messages and answers them over connections that it accepts.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use chronos::wire::leb128::{read_leb128, write_leb128};
use chronos::wire::peer_frame::{Frame, FrameKind, parse_frame};
use chronos::wire::peer_message::decode_message;
use kit::client::request;
use kit::http::find;
use kit::random::Random;

use super::hostile_peer::{Claim, upgrade};
use super::nonsense_peer::{Liar, SPARED, id_of};

/// Pause of a connection between two frames, because other stories share the machine.
const PAUSE: Duration = Duration::from_millis(8);
/// Pause before a node that did not accept is dialled again.
const DIAL_AGAIN: Duration = Duration::from_millis(20);
/// Bodies of an original's API, for connections on which the peer says that it is an original.
const BODIES: [&str; 6] = [
    "",
    "{}",
    "{\"Timers\":[]}",
    "{\"Timers\":[{\"TimerID\":18446744073709551615,\"OldReplicas\":[],\"Timer\":{}}]}",
    "[[[[",
    "{\"timing\":{\"start-time-delta\":-9223372036854775808,\"interval\":18446744073709551615}}",
];

/// Dials this node again and again until the end, and sends it messages.
pub fn tell(liar: &Arc<Liar>, claim: Claim, from: SocketAddr, to: SocketAddr, seed: u64) {
    let liar = liar.clone();
    thread::spawn(move || {
        let mut random = Random::new(seed);
        while !liar.is_over.load(SeqCst) {
            match upgrade(from, to, &headers(&claim, &mut random)) {
                Ok((stream, answer)) if answer.status == 101 => {
                    liar.connections.fetch_add(1, SeqCst);
                    // An error means that the node closed, which it may.
                    let _ = tell_over(&liar, stream, &mut random);
                }
                _ => thread::sleep(DIAL_AGAIN),
            }
        }
    });
}

/// Sends this node, until the end, requests of the internal HTTP API: to hold timers, to forget
/// them, to say which it holds.
pub fn ask(liar: &Arc<Liar>, names: Vec<String>, to: SocketAddr, seed: u64) {
    let liar = liar.clone();
    thread::spawn(move || {
        let mut random = Random::new(seed);
        while !liar.is_over.load(SeqCst) {
            let (method, path, body) = liar.request(&mut random, &names);
            if request(to, method, &path, &body).is_ok() {
                liar.requests.fetch_add(1, SeqCst);
            }
            thread::sleep(4 * PAUSE);
        }
    });
}

/// Returns the headers of the peer. Seldom they name another process, or a process of many cores.
fn headers(claim: &Claim, random: &mut Random) -> String {
    let incarnation = if random.one_in(16) { random.next() } else { claim.incarnation };
    let view = random.pick(&[1, 0, u64::MAX]);
    let shard = random.pick(&[0, 1, u16::MAX]);
    let shards = random.pick(&[1, 0, 2, u16::MAX]);
    format!(
        "Connection: Upgrade\r\nUpgrade: chronos-peer/1\r\nX-Chronos-Name: {}\r\n\
         X-Chronos-Instance: {}\r\nX-Chronos-Incarnation: {incarnation:016x}\r\n\
         X-Chronos-View: {view}\r\nX-Chronos-Shard: {shard}\r\nX-Chronos-Shards: {shards}\r\n",
        claim.name, claim.instance
    )
}

/// Sends frames over one connection, until it breaks or the die says so.
fn tell_over(liar: &Liar, mut stream: TcpStream, random: &mut Random) -> std::io::Result<()> {
    let mut number = random.pick(&[0, 0, 0, 0, 0, 0, 0, 1, u32::MAX]);
    let mut answered = vec![0; 64 << 10];
    stream.set_read_timeout(Some(PAUSE))?;
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    while !liar.is_over.load(SeqCst) && !random.one_in(500) {
        let count = random.pick(&[0, 1, 1, 1, 2, 5, 20]);
        let mut body = Vec::new();
        for _ in 0..count {
            let message = liar.message(random);
            write_leb128(message.len() as u64, &mut body);
            body.extend_from_slice(&message);
        }
        let first = if random.one_in(1_000) { random.next() as u32 } else { number };
        stream.write_all(&liar.frame(random, FrameKind::Messages, (first, count), &body))?;
        liar.messages.fetch_add(count.into(), SeqCst);
        number = number.wrapping_add(count.into());
        match stream.read(&mut answered) {
            Ok(0) => return Ok(()),
            Ok(_) => thread::sleep(PAUSE),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Accepts connections at this address until the end, and answers them.
pub fn listen(liar: &Arc<Liar>, claim: Claim, at: SocketAddr, seed: u64) {
    let (liar, listener) = (liar.clone(), kit::ports::listen(at));
    thread::spawn(move || {
        let mut random = Random::new(seed);
        for stream in listener.incoming().map_while(Result::ok) {
            if liar.is_over.load(SeqCst) {
                return;
            }
            let (liar, claim, seed) = (liar.clone(), claim.clone(), random.next());
            thread::spawn(move || answer(&liar, &claim, stream, &mut Random::new(seed)));
        }
    });
}

/// Answers one connection: mostly as a member, seldom as an original, seldom with a refusal.
fn answer(
    liar: &Liar,
    claim: &Claim,
    mut stream: TcpStream,
    random: &mut Random,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let mut bytes = Vec::new();
    read_head(&mut stream, &mut bytes)?;
    match random.below(32) {
        0 => {
            let refusals = ["403 No", "409 No", "503 No", "200 OK", "101 What", "999 X"];
            write!(stream, "HTTP/1.1 {}\r\nContent-Length: 0\r\n\r\n", random.pick(&refusals))
        }
        1 | 2 => {
            write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?;
            answer_as_original(liar, stream, bytes, random)
        }
        _ => {
            let headers = headers(claim, random);
            write!(stream, "HTTP/1.1 101 Switching Protocols\r\n{headers}\r\n")?;
            liar.connections.fetch_add(1, SeqCst);
            answer_frames(liar, stream, bytes, random)
        }
    }
}

fn read_head(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    let end = loop {
        if let Some(end) = find(bytes, b"\r\n\r\n") {
            break end + 4;
        }
        read_more(stream, bytes)?;
    };
    bytes.drain(..end);
    Ok(())
}

fn read_more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    let mut piece = [0; 16 << 10];
    match stream.read(&mut piece)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        count => {
            bytes.extend_from_slice(&piece[..count]);
            Ok(())
        }
    }
}

/// Sends results for each frame of messages, mostly as many as the frame asks for.
fn answer_frames(
    liar: &Liar,
    mut stream: TcpStream,
    mut bytes: Vec<u8>,
    random: &mut Random,
) -> std::io::Result<()> {
    let mut number = 0_u32;
    while !liar.is_over.load(SeqCst) && !random.one_in(300) {
        while let Ok(Some((frame, frame_bytes))) = parse_frame(&bytes) {
            hear(liar, random, &frame);
            let asked = frame.count;
            let count = match random.below(2_000) {
                0..10 => asked.saturating_add(1),
                10..20 => 0,
                20 => u16::MAX,
                _ => asked,
            };
            let (mut body, mut held) = (Vec::new(), 0);
            (0..count).for_each(|_| liar.result(random, &mut held, &mut body));
            if held > 0 {
                write_leb128(held, &mut body);
            }
            let first = if random.one_in(500) { random.next() as u32 } else { number };
            stream.write_all(&liar.frame(random, FrameKind::Results, (first, count), &body))?;
            liar.results.fetch_add(count.into(), SeqCst);
            number = number.wrapping_add(asked.into());
            bytes.drain(..frame_bytes);
        }
        read_more(&mut stream, &mut bytes)?;
    }
    Ok(())
}

/// Keeps the messages of a frame.
fn hear(liar: &Liar, random: &mut Random, frame: &Frame<'_>) {
    let mut body = frame.body;
    while let Some(length) = read_leb128(&mut body) {
        let (message, rest) = body.split_at(length as usize);
        body = rest;
        match decode_message(&mut &message[..]) {
            Ok(decoded) if SPARED.contains(&id_of(&decoded).0) => {}
            Ok(_) => liar.hear(random, message),
            Err(error) => liar.wonder(&format!("{error}: {message:02x?}")),
        }
    }
}

/// Answers any request as an original's API might.
fn answer_as_original(
    liar: &Liar,
    mut stream: TcpStream,
    mut bytes: Vec<u8>,
    random: &mut Random,
) -> std::io::Result<()> {
    while !liar.is_over.load(SeqCst) && !random.one_in(50) {
        read_head(&mut stream, &mut bytes)?;
        // The body of a request is read with the next head, if at all. It ends nothing here.
        let (status, body) =
            (random.pick(&[200, 200, 202, 206, 404, 503, 999]), random.pick(&BODIES));
        let length = body.len();
        write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}")?;
    }
    Ok(())
}
