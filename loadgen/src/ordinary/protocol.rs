//! What the ordinary client says to each kind of server, and where a reply ends.

use std::io::Write;
use std::net::SocketAddr;

use anyhow::{Result, bail};

use crate::frames::parse_head;
use crate::request::{Template, TimerShape};

/// Timers are due in this many seconds: none comes due while a run lasts.
const DELAY_S: u64 = 100_000;
/// The body of a job elsewhere, as long as what a timer carries here: a URI of 42 bytes and 40
/// bytes of opaque data.
const BODY: &[u8; 82] =
    b"http://127.0.0.1:9999/calls/0000000000/pop call-leg-9f3c/terminating;sequence=0042";
/// Longest head of a reply.
const LINE_BYTES_MAX: usize = 1 << 10;

/// A protocol in which every request gets one reply, in order.
pub trait Protocol: Sync {
    /// Appends the request with this number.
    fn append(&self, number: u64, out: &mut Vec<u8>);

    /// The length of the reply at the front of `bytes`; `None`: it is not there whole. Error: the
    /// server refuses, or speaks another protocol.
    fn reply_bytes(&self, bytes: &[u8]) -> Result<Option<usize>>;
}

/// `POST /timers` over HTTP.
pub struct Http(Template);

impl Http {
    /// Timers for a callback server that is never called.
    pub fn post(target: SocketAddr) -> Self {
        Self(Template::post(&TimerShape {
            target,
            callback: SocketAddr::from(([127, 0, 0, 1], 9_999)),
            interval_ms: Some(DELAY_S * 1_000),
            pops_each: 1,
            opaque_bytes: 40,
            headers: 0,
            replication_factor: 1,
            ralf: false,
            token: None,
        }))
    }
}

impl Protocol for Http {
    fn append(&self, number: u64, out: &mut Vec<u8>) {
        self.0.append(number, None, out);
    }

    fn reply_bytes(&self, bytes: &[u8]) -> Result<Option<usize>> {
        let Some(head) = parse_head(bytes)? else { return Ok(None) };
        if head.status() != Some(200) {
            bail!("answered {}", String::from_utf8_lossy(head.line));
        }
        let length = head.head_bytes + head.body_bytes;
        Ok((bytes.len() >= length).then_some(length))
    }
}

/// `put` of beanstalkd: a delayed job.
pub struct Beanstalkd;

impl Protocol for Beanstalkd {
    fn append(&self, _number: u64, out: &mut Vec<u8>) {
        write!(out, "put 0 {DELAY_S} 60 {}\r\n", BODY.len()).expect("memory takes it");
        out.extend_from_slice(BODY);
        out.extend_from_slice(b"\r\n");
    }

    fn reply_bytes(&self, bytes: &[u8]) -> Result<Option<usize>> {
        reply_line(bytes, b"INSERTED ")
    }
}

/// Redis: the body under a key, and the key in a sorted set by its due time, as delayed queues over
/// Redis do it.
pub struct Redis;

impl Protocol for Redis {
    fn append(&self, number: u64, out: &mut Vec<u8>) {
        let key = format!("timer:{number:010}");
        let due = DELAY_S * 1_000 + number;
        let mut command = |words: [&[u8]; 3], last: &[u8]| {
            let words = words.into_iter().chain([last]).filter(|word| !word.is_empty());
            let words: Vec<&[u8]> = words.collect();
            write!(out, "*{}\r\n", words.len()).expect("memory takes it");
            for word in words {
                write!(out, "${}\r\n", word.len()).expect("memory takes it");
                out.extend_from_slice(word);
                out.extend_from_slice(b"\r\n");
            }
        };
        command([b"SET", key.as_bytes(), b""], BODY);
        command([b"ZADD", b"timers", due.to_string().as_bytes()], key.as_bytes());
    }

    fn reply_bytes(&self, bytes: &[u8]) -> Result<Option<usize>> {
        let Some(first) = reply_line(bytes, b"+OK")? else { return Ok(None) };
        let second = reply_line(&bytes[first..], b":1")?;
        Ok(second.map(|second| first + second))
    }
}

/// The length of a line that begins with `wanted`.
fn reply_line(bytes: &[u8], wanted: &[u8]) -> Result<Option<usize>> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        anyhow::ensure!(bytes.len() < LINE_BYTES_MAX, "a reply without an end of line");
        return Ok(None);
    };
    if !bytes.starts_with(wanted) {
        bail!("replied {:?}", String::from_utf8_lossy(&bytes[..end]));
    }
    Ok(Some(end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every prefix of two replies gives as many replies as it has whole ones.
    fn cut_anywhere(protocol: &dyn Protocol, reply: &[u8]) {
        let twice = [reply, reply].concat();
        for end in 0..=twice.len() {
            let whole = protocol.reply_bytes(&twice[..end]).unwrap();
            assert_eq!(whole, (end >= reply.len()).then_some(reply.len()), "{end}");
        }
    }

    #[test]
    fn replies_end_where_they_end() {
        let http = Http::post("127.0.0.1:1".parse().unwrap());
        cut_anywhere(&http, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
        cut_anywhere(&Beanstalkd, b"INSERTED 12\r\n");
        cut_anywhere(&Redis, b"+OK\r\n:1\r\n");
    }

    #[test]
    fn refusals_are_errors() {
        let http = Http::post("127.0.0.1:1".parse().unwrap());
        let error =
            http.reply_bytes(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n").unwrap_err();
        assert!(error.to_string().contains("503"), "{error}");
        assert!(Beanstalkd.reply_bytes(b"OUT_OF_MEMORY\r\n").is_err());
        assert!(Redis.reply_bytes(b"-OOM command not allowed\r\n:1\r\n").is_err());
    }

    #[test]
    fn a_create_of_redis_is_two_commands() {
        let mut out = Vec::new();
        Redis.append(7, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with("*3\r\n$3\r\nSET\r\n$16\r\ntimer:0000000007\r\n$82\r\n"),
            "{text}"
        );
        let second =
            "*4\r\n$4\r\nZADD\r\n$6\r\ntimers\r\n$9\r\n100000007\r\n$16\r\ntimer:0000000007\r\n";
        assert!(text.ends_with(second), "{text}");
    }
}
