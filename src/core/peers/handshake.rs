//! How a connection between two nodes begins: an HTTP/1.1 Upgrade (RFC 9110 section 7.8) on the
//! clients' port, in which both ends say who they are.
//!
//! ```text
//! GET /peer HTTP/1.1                      HTTP/1.1 101 Switching Protocols
//! Host: <address dialled>                 Connection: Upgrade
//! Connection: Upgrade                     Upgrade: chronos-peer/1
//! Upgrade: chronos-peer/1                 X-Chronos-Name: ... and so on
//! X-Chronos-Name: 10.0.0.2:7253
//! X-Chronos-Instance: 2
//! X-Chronos-Incarnation: 0123456789abcdef
//! X-Chronos-View: 5030520784871784460
//! X-Chronos-Shard: 0
//! X-Chronos-Shards: 2
//! X-Chronos-Complete-Since: 1795200000000
//! X-Chronos-Site: site1
//! ```
//!
//! An Upgrade is refused with a `Reason` and one of these statuses:
//!
//! - 403: the dialler is no member. With `X-Chronos-Refused: address` it does not call from its
//!   address, with `X-Chronos-Refused: secret` it does not prove the secret, with `tls` it speaks
//!   no TLS, with `certificate` the certificate that it has shown does not have its name.
//! - 409: two processes have one name.
//! - 426: the dialler asks for another protocol.
//! - 503: there are too many connections, or a name is not resolved yet.
//!
//! The acceptor tells nothing before it has looked at the dialler's address. A node that does not
//! know this Upgrade answers 404 or the like, and is talked to over the internal HTTP API.
//!
//! A dialler with a secret adds `X-Chronos-Nonce`. An acceptor with a secret answers 401 with a
//! nonce of its own. Then the dialler repeats the request with `X-Chronos-Proof`, and the
//! acceptance carries the acceptor's proof ([`super::secret`]).
//!
//! Towards another site `Upgrade: chronos-site/1` opens the internal HTTP API on the connection.
//! Without a secret and without TLS nodes do not have this protocol and do not need it.
//!
//! Over TLS both ends have shown certificates before, and the name in the first hello must be in
//! the dialler's. The acceptor's is checked against the name that was dialled.

// May panic: expectations 7.
// Why it does not: memory 7.

use std::fmt::Write;
use std::mem::MaybeUninit;

use httparse::{Header, Request, Response, Status};

use crate::base::limits::HEADERS_MAX;
use crate::base::time::WallMs;

use crate::core::gate::SiteNode;
use crate::core::peers::hello::{Hello, HelloRefusal};
use crate::core::peers::secret::{Offer, Word};
use crate::wire::text::Text;

/// The path of the Upgrade.
pub const PATH: &str = "/peer";
/// Most bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Most bytes of a node's name: a host name has at most 253, a port 6.
const NAME_BYTES_MAX: usize = 260;

/// The protocol after an Upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Frames, between the nodes of a site.
    Frames,
    /// The internal HTTP API, between sites.
    Site,
}

impl Protocol {
    /// The name and version in the header `Upgrade`. The version of frames is that of
    /// `wire::peer_frame`.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Frames => "chronos-peer/1",
            Protocol::Site => "chronos-site/1",
        }
    }
}

/// An Upgrade that a dialler asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The protocol to speak after the Upgrade.
    pub protocol: Protocol,
    /// What the dialler says of itself.
    pub hello: Hello,
    /// The dialler's nonce and proof.
    pub offer: Offer,
}

impl Asked {
    /// Which node of another site the dialler says it is. `None`: it does not tell its site.
    pub fn site_node(&self) -> Option<SiteNode> {
        let site = self.hello.site.clone()?;
        Some(SiteNode { site, name: self.hello.name.clone() })
    }
}

/// Appends the request of an Upgrade.
pub fn write_request(out: &mut Vec<u8>, host: &str, asked: &Asked) {
    write!(Text(out), "GET {PATH} HTTP/1.1\r\nHost: {host}\r\n").expect("memory does not fail");
    if let Some(nonce) = asked.offer.nonce {
        write!(Text(out), "X-Chronos-Nonce: {nonce}\r\n").expect("memory does not fail");
    }
    write_headers(out, asked.protocol, &asked.hello, asked.offer.proof);
}

/// Appends the answer that accepts an Upgrade.
pub fn write_acceptance(out: &mut Vec<u8>, protocol: Protocol, hello: &Hello, proof: Option<Word>) {
    out.extend_from_slice(b"HTTP/1.1 101 Switching Protocols\r\n");
    write_headers(out, protocol, hello, proof);
}

/// Appends the answer that asks for a proof.
pub fn write_challenge(out: &mut Vec<u8>, nonce: Word) {
    write!(
        Text(out),
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: chronos-secret\r\n\
         X-Chronos-Nonce: {nonce}\r\nContent-Length: 0\r\n\r\n"
    )
    .expect("memory does not fail");
}

fn write_headers(out: &mut Vec<u8>, protocol: Protocol, hello: &Hello, proof: Option<Word>) {
    if let Some(proof) = proof {
        write!(Text(out), "X-Chronos-Proof: {proof}\r\n").expect("memory does not fail");
    }
    write!(
        Text(out),
        "Connection: Upgrade\r\nUpgrade: {}\r\nX-Chronos-Name: {}\r\n\
         X-Chronos-Instance: {}\r\nX-Chronos-Incarnation: {:016x}\r\nX-Chronos-View: {}\r\n\
         X-Chronos-Shard: {}\r\nX-Chronos-Shards: {}\r\n",
        protocol.name(),
        hello.name,
        hello.instance,
        hello.incarnation,
        hello.view_id,
        hello.shard,
        hello.shards
    )
    .expect("memory does not fail");
    if let Some(since) = hello.complete_since {
        write!(Text(out), "X-Chronos-Complete-Since: {}\r\n", since.0).expect("as above");
    }
    if let Some(site) = &hello.site {
        write!(Text(out), "X-Chronos-Site: {site}\r\n").expect("as above");
    }
    out.extend_from_slice(b"\r\n");
}

/// Reads a whole request head for [`PATH`]. `Err` is the status and reason to refuse the request
/// with.
pub fn parse_request(head: &[u8]) -> Result<Asked, (u16, &'static str)> {
    let mut places = [const { MaybeUninit::<Header<'_>>::uninit() }; HEADERS_MAX];
    let mut request = Request::new(&mut []);
    // The parser of requests tolerates empty lines before a request line.
    match request.parse_with_uninit_headers(head.trim_ascii_start(), &mut places) {
        Ok(Status::Complete(_)) => asked_of(request.headers),
        _ => Err((400, "expected a request head")),
    }
}

/// The header line of an answer that refuses a node which does not prove that it knows the secret.
pub const UNPROVEN_HEADER: &str = "X-Chronos-Refused: secret\r\n";

/// Returns the status for a refused hello, and a header line or nothing.
pub fn refusal_of(refusal: &HelloRefusal) -> (u16, &'static str) {
    match refusal {
        HelloRefusal::NoSite(_) => (403, ""),
        HelloRefusal::Stranger(..) => (403, "X-Chronos-Refused: stranger\r\n"),
        HelloRefusal::Elsewhere(_) => (403, "X-Chronos-Refused: address\r\n"),
        HelloRefusal::Unproven(_) => (403, UNPROVEN_HEADER),
        HelloRefusal::Plain => (403, "X-Chronos-Refused: tls\r\n"),
        HelloRefusal::Misnamed(_) => (403, "X-Chronos-Refused: certificate\r\n"),
        HelloRefusal::NoSecret => (426, ""),
        HelloRefusal::Twins(_) => (409, ""),
        HelloRefusal::Unresolved | HelloRefusal::TooMany => (503, ""),
    }
}

/// How the node that was dialled answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The node speaks the protocol asked for from here on.
    Upgraded {
        /// What the node says of itself.
        hello: Hello,
        /// The proof that the node knows the secret.
        proof: Option<Word>,
        /// Bytes of the answer's head.
        head_bytes: usize,
    },
    /// The node asks for a proof.
    Challenged {
        /// The node's nonce.
        nonce: Word,
        /// Bytes of the answer's head.
        head_bytes: usize,
    },
    /// One of the two ends does not prove that it knows the secret.
    Unproven,
    /// The node takes only peers over TLS, or not the certificate that this one has shown.
    Uncertified,
    /// The node does not know the Upgrade: an original node.
    Original,
    /// The node refused.
    Refused,
    /// The node cannot decide yet, or cannot take a connection at present.
    Busy,
    /// The node does not take this process for the node that this process says it is: another
    /// process is that node, this process calls from another address, or the lists have no such
    /// node.
    Disowned,
}

/// The bytes are no HTTP, or an answer without sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAnswer;

/// Reads the answer to an Upgrade. `Ok(None)`: more bytes are needed.
pub fn parse_answer(bytes: &[u8], protocol: Protocol) -> Result<Option<Answered>, NoAnswer> {
    let mut places = [const { MaybeUninit::<Header<'_>>::uninit() }; HEADERS_MAX];
    let mut response = Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let head_bytes =
        match config.parse_response_with_uninit_headers(&mut response, bytes, &mut places) {
            Ok(Status::Complete(head_bytes)) => head_bytes,
            Ok(Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
            _ => return Err(NoAnswer),
        };
    match response.code {
        Some(101) => match asked_of(response.headers) {
            Ok(Asked { protocol: told, hello, offer }) if told == protocol => {
                Ok(Some(Answered::Upgraded { hello, proof: offer.proof, head_bytes }))
            }
            _ => Err(NoAnswer),
        },
        Some(401) => Ok(Some(match word_of(response.headers, "X-Chronos-Nonce") {
            Ok(Some(nonce)) => Answered::Challenged { nonce, head_bytes },
            _ => Answered::Refused,
        })),
        // A later version of this service that no longer speaks this protocol answers 426.
        Some(400 | 404 | 405 | 426 | 501) => Ok(Some(Answered::Original)),
        Some(409) => Ok(Some(Answered::Disowned)),
        Some(403) => Ok(Some(match value_of(response.headers, "X-Chronos-Refused") {
            Some("address" | "stranger") => Answered::Disowned,
            Some("secret") => Answered::Unproven,
            Some("certificate" | "tls") => Answered::Uncertified,
            _ => Answered::Refused,
        })),
        Some(503) => Ok(Some(Answered::Busy)),
        Some(_) => Ok(Some(Answered::Refused)),
        None => Err(NoAnswer),
    }
}

fn value_of<'h>(headers: &[Header<'h>], name: &str) -> Option<&'h str> {
    let found = headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
    std::str::from_utf8(found.value).ok().map(str::trim)
}

/// The value of a header that is a nonce or a proof. `Err`: the value is neither, or there are
/// several.
fn word_of(headers: &[Header<'_>], name: &str) -> Result<Option<Word>, ()> {
    let mut found = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
    let Some(header) = found.next() else { return Ok(None) };
    let text = std::str::from_utf8(header.value).map_err(|_| ())?;
    let word = Word::parse(text.trim()).filter(|_| found.next().is_none());
    word.map(Some).ok_or(())
}

fn asked_of(headers: &[Header<'_>]) -> Result<Asked, (u16, &'static str)> {
    let value_of = |name: &str| value_of(headers, name);
    let upgrades = value_of("Connection").is_some_and(|list| {
        list.split(',').any(|item| item.trim().eq_ignore_ascii_case("upgrade"))
    });
    let asked = value_of("Upgrade").filter(|_| upgrades);
    let known = [Protocol::Frames, Protocol::Site];
    let Some(protocol) = known.into_iter().find(|known| asked == Some(known.name())) else {
        return Err((426, "expected Connection: Upgrade and Upgrade: chronos-peer/1"));
    };
    let is_name = |name: &&str| {
        (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic())
    };
    let name = value_of("X-Chronos-Name").filter(is_name);
    let number = |name| value_of(name)?.parse().ok();
    let hello = || {
        Some(Hello {
            name: name?.to_owned(),
            instance: value_of("X-Chronos-Instance")?.parse().ok()?,
            incarnation: u64::from_str_radix(value_of("X-Chronos-Incarnation")?, 16).ok()?,
            view_id: value_of("X-Chronos-View")?.parse().ok()?,
            shard: number("X-Chronos-Shard")?,
            shards: number("X-Chronos-Shards")?,
            // Releases before this header do not tell.
            complete_since: match value_of("X-Chronos-Complete-Since") {
                Some(since) => Some(WallMs(since.parse().ok()?)),
                None => None,
            },
            // Nor do they tell their site.
            site: value_of("X-Chronos-Site").filter(is_name).map(str::to_owned),
        })
    };
    let reason = "expected X-Chronos-Name, -Instance, -Incarnation, -View, -Shard, -Shards";
    let hello = hello().ok_or((400, reason))?;
    let word_of = |name| {
        let reason = "X-Chronos-Nonce, X-Chronos-Proof: expected 64 hexadecimal digits, once";
        word_of(headers, name).map_err(|()| (400, reason))
    };
    let offer = Offer { nonce: word_of("X-Chronos-Nonce")?, proof: word_of("X-Chronos-Proof")? };
    Ok(Asked { protocol, hello, offer })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            name: "10.0.0.2:7253".into(),
            instance: 513,
            incarnation: 0x0123_4567_89ab_cdef,
            view_id: 5_030_520_784_871_784_460,
            shard: 3,
            shards: 4,
            complete_since: Some(WallMs(1_795_200_000_000)),
            site: Some("site1".into()),
        }
    }

    fn parse_frames(bytes: &[u8]) -> Result<Option<Answered>, NoAnswer> {
        parse_answer(bytes, Protocol::Frames)
    }

    fn asked() -> Asked {
        Asked { protocol: Protocol::Frames, hello: hello(), offer: Offer::default() }
    }

    #[test]
    fn both_ends_read_what_the_other_says() {
        let mut request = Vec::new();
        write_request(&mut request, "10.0.0.3:7253", &asked());
        assert_eq!(parse_request(&request), Ok(asked()));
        let mut answer = Vec::new();
        write_acceptance(&mut answer, Protocol::Frames, &hello(), None);
        let head_bytes = answer.len();
        for end in 0..head_bytes {
            assert_eq!(parse_frames(&answer[..end]), Ok(None), "{end} bytes");
        }
        answer.extend_from_slice(b"frames");
        let upgraded = Answered::Upgraded { hello: hello(), proof: None, head_bytes };
        assert_eq!(parse_frames(&answer), Ok(Some(upgraded)));
        assert_eq!(parse_answer(&answer, Protocol::Site), Err(NoAnswer), "it was not asked for");
    }

    #[test]
    fn other_answers_tell_what_is_there() {
        let read = |line: &str| parse_frames(format!("HTTP/1.1 {line}\r\n\r\n").as_bytes());
        for original in ["404 Not Found", "400 Bad Request", "405 No", "426 Upgrade Required"] {
            assert_eq!(read(original), Ok(Some(Answered::Original)), "{original}");
        }
        for refused in ["403 Forbidden", "200 OK", "302 Found"] {
            assert_eq!(read(refused), Ok(Some(Answered::Refused)), "{refused}");
        }
        let refusals = [
            (HelloRefusal::Twins("10.0.0.2:7253".into()), Answered::Disowned),
            (HelloRefusal::Elsewhere("from there".into()), Answered::Disowned),
            (HelloRefusal::Stranger("a".into(), "b".into()), Answered::Disowned),
            (HelloRefusal::Unproven("no proof"), Answered::Unproven),
            (HelloRefusal::NoSite("no site".into()), Answered::Refused),
            (HelloRefusal::NoSecret, Answered::Original),
            (HelloRefusal::Unresolved, Answered::Busy),
            (HelloRefusal::TooMany, Answered::Busy),
        ];
        for (refusal, answered) in refusals {
            let (status, header) = refusal_of(&refusal);
            let line = format!("{status} No\r\n{}", header.trim_end());
            assert_eq!(read(line.trim_end()), Ok(Some(answered)), "{refusal}");
        }
        assert_eq!(read("101 Switching Protocols"), Err(NoAnswer), "without saying who it is");
        assert_eq!(parse_frames(b"\x16\x03\x01"), Err(NoAnswer));
        assert_eq!(parse_frames(&vec![b'H'; HEAD_BYTES_MAX]), Err(NoAnswer));
    }

    #[test]
    fn a_request_is_refused_with_what_it_lacks() {
        let mut whole = Vec::new();
        write_request(&mut whole, "h", &asked());
        let whole = String::from_utf8(whole).expect("text");
        let refused = |text: &str| parse_request(text.as_bytes()).map_err(|(status, _)| status);
        assert_eq!(refused(&whole.replace("chronos-peer/1", "chronos-peer/2")), Err(426));
        assert_eq!(refused(&whole.replace("Connection: Upgrade", "Connection: close")), Err(426));
        for (is, becomes) in [
            ("X-Chronos-Name: 10.0.0.2:7253", "X-Chronos-Name: "),
            ("X-Chronos-Name: 10.0.0.2:7253", "X-Chronos-Name: two words"),
            ("X-Chronos-Instance: 513", "X-Chronos-Instance: 65536"),
            ("0123456789abcdef", "0123456789abcdefg"),
            ("X-Chronos-View: 5", "X-Chronos-View: -5"),
            ("X-Chronos-Shards: 4", "X-Shards: 4"),
            ("Complete-Since: 1795200000000", "Complete-Since: yesterday"),
        ] {
            assert!(whole.contains(is), "{is}");
            assert_eq!(refused(&whole.replace(is, becomes)), Err(400), "{becomes}");
        }
        let long = format!("X-Chronos-Name: {}", "n".repeat(NAME_BYTES_MAX + 1));
        assert_eq!(refused(&whole.replace("X-Chronos-Name: 10.0.0.2:7253", &long)), Err(400));
    }

    #[test]
    fn nonces_and_proofs_travel_with_what_they_prove() {
        let (one, other) = (Word([0xa5; 32]), Word([0x0f; 32]));
        let offer = Offer { nonce: Some(one), proof: Some(other) };
        let asked = Asked { protocol: Protocol::Site, offer, ..asked() };
        let mut request = Vec::new();
        write_request(&mut request, "h", &asked);
        assert_eq!(parse_request(&request), Ok(asked));
        let mut answer = Vec::new();
        write_acceptance(&mut answer, Protocol::Site, &hello(), Some(one));
        let upgraded =
            Answered::Upgraded { hello: hello(), proof: Some(one), head_bytes: answer.len() };
        assert_eq!(parse_answer(&answer, Protocol::Site), Ok(Some(upgraded)));
        let mut challenge = Vec::new();
        write_challenge(&mut challenge, other);
        let head_bytes = challenge.len();
        let challenged = Answered::Challenged { nonce: other, head_bytes };
        assert_eq!(parse_frames(&challenge), Ok(Some(challenged)));
        assert_eq!(parse_frames(&challenge[..head_bytes - 1]), Ok(None));
    }

    #[test]
    fn a_nonce_is_64_digits_once_or_nothing() {
        let (digits, mut whole) = ("a5".repeat(32), Vec::new());
        let offer = Offer { nonce: Some(Word([0xa5; 32])), proof: None };
        write_request(&mut whole, "h", &Asked { offer, ..asked() });
        let whole = String::from_utf8(whole).expect("text");
        let with = |text: &str| whole.replace(&digits, text);
        let upper = parse_request(with(&digits.to_uppercase()).as_bytes());
        assert_eq!(upper.map(|asked| asked.offer), Ok(offer));
        let long = "a5".repeat(100_000);
        let twice = format!("{digits}\r\nX-Chronos-Nonce: {digits}");
        for bad in ["", &digits[1..], &digits[2..], &format!("{digits}0"), &long, &twice] {
            let refused = parse_request(with(bad).as_bytes()).map_err(|(status, _)| status);
            assert_eq!(refused, Err(400), "{bad:.80}");
        }
        for bad in ["+5", "g5", " 5", "\u{e9}"] {
            let bad = with(&digits.replacen("a5", bad, 1));
            let refused = parse_request(bad.as_bytes()).map_err(|(status, _)| status);
            assert_eq!(refused, Err(400), "{bad}");
        }
        let mut challenge = Vec::new();
        write_challenge(&mut challenge, Word([0xa5; 32]));
        let challenge = String::from_utf8(challenge).expect("text");
        for bad in ["", &digits[1..], &twice] {
            let answered = parse_frames(challenge.replace(&digits, bad).as_bytes());
            assert_eq!(answered, Ok(Some(Answered::Refused)), "{bad}");
        }
    }
}
