//! A tiny timer service for tests, on plain threads. It shows faults on purpose, which the load
//! generator must find.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::frames::parse_head;

/// The fault that one timer in ten shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No fault.
    None,
    /// The callback is sent at once.
    Early,
    /// The callback is never sent.
    Lost,
    /// The callback is sent twice.
    Doubled,
    /// The callback is sent again where it was not taken.
    Retried,
    /// The request is answered with 503.
    Refused,
    /// The request is not answered, and the connection is closed.
    Closed,
}

/// Starts the service and returns its address. The service runs as long as the test process.
pub fn start(fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let numbers = Arc::new(AtomicU64::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let numbers = Arc::clone(&numbers);
            std::thread::spawn(move || serve(stream, fault, &numbers));
        }
    });
    address
}

fn serve(mut stream: TcpStream, fault: Fault, numbers: &AtomicU64) {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        bytes.extend_from_slice(&piece[..count]);
        while let Ok(Some(head)) = parse_head(&bytes) {
            let length = head.head_bytes + head.body_bytes;
            let Some(body) = bytes.get(head.head_bytes..length) else { break };
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            let faulty = number % 10 == 3;
            let fault = if faulty { fault } else { Fault::None };
            let answer = match fault {
                Fault::Closed => return,
                Fault::Refused => "HTTP/1.1 503 Full\r\nContent-Length: 4\r\n\r\nfull".to_owned(),
                _ => format!(
                    "HTTP/1.1 200 OK\r\nLocation: /timers/{number:016x}-1-0000000000000001\r\n\
                     Content-Length: 0\r\n\r\n"
                ),
            };
            if let (Ok(timer), true) = (serde_json::from_slice(body), fault != Fault::Refused) {
                std::thread::spawn(move || pop(&timer, fault));
            }
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
            bytes.drain(..length);
        }
    }
}

fn pop(timer: &serde_json::Value, fault: Fault) {
    let seconds = timer["timing"]["interval"].as_f64().expect("an interval");
    let pops = timer["timing"]["repeat-for"].as_f64().expect("a repeat-for") / seconds;
    let uri = timer["callback"]["http"]["uri"].as_str().expect("a uri");
    let (host, path) =
        uri.strip_prefix("http://").and_then(|uri| uri.split_once('/')).expect("an http uri");
    for sequence in 1..=pops.round() as u64 {
        if fault != Fault::Early {
            std::thread::sleep(Duration::from_secs_f64(seconds));
        }
        let times = match fault {
            Fault::Lost => 0,
            Fault::Doubled | Fault::Retried => 2,
            _ => 1,
        };
        for attempt in 1..=times {
            let Ok(mut stream) = TcpStream::connect(host) else { return };
            let request = format!(
                "POST /{path} HTTP/1.1\r\nHost: {host}\r\nX-Sequence-Number: {sequence}\r\n\
                 X-Attempt: {attempt}\r\nContent-Length: 2\r\n\r\nhi"
            );
            let _ = stream.write_all(request.as_bytes());
            // Waits for the answer, so that the sink has read the request before the connection
            // closes.
            let _ = stream.read(&mut [0; 256]);
        }
    }
}
