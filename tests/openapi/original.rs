//! A stand-in for a node of the original service, as far as members look at it: it knows no
//! Upgrade, serves no timers, and takes copies (docs/compat/timer-service.md §5).

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;

use kit::http::read_message;
use kit::ports::listen;

/// Listens at `address` until the process ends.
pub fn start(address: SocketAddr) {
    let listener = listen(address);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(stream));
        }
    });
}

fn serve(mut stream: TcpStream) {
    let mut buffer = Vec::new();
    while let Ok(message) = read_message(&mut stream, &mut buffer) {
        let (status, body) = match message.head.split(['?', ' ']).collect::<Vec<_>>()[..] {
            ["GET", "/ping", ..] => ("200 OK", "OK"),
            ["GET", "/timers", ..] => ("200 OK", "{\"Timers\":[]}"),
            ["PUT", ..] => ("200 OK", ""),
            _ => ("404 Not Found", ""),
        };
        let length = body.len();
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
        // An error means that the node has closed.
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
