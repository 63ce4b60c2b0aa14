//! Tokens of clients: who may ask for what. The file has no token, only the SHA-256 of each, so
//! that who reads the file cannot use it.
//!
//! ```text
//! # name    role    SHA-256 of the token                                              limits
//! billing   client  9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  timers=1000
//! ```
//!
//! A client sends its token with each request: `Authorization: Bearer chr_...` (RFC 6750).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::base::quota::{Quota, Quotas, TokenLimits, is_token_name};
use crate::core::peers::secret::Word;
use crate::wire::request_head::Method;
use crate::wire::timer_path::TimerPath;

/// Most tokens of a file.
pub const TOKENS_MAX: usize = 4_096;
/// Most bytes of a file: all tokens with the longest names, and comments.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Two lines of a name are valid at a time: the present token and the next one.
const TOKENS_PER_NAME_MAX: usize = 2;

/// What a token is good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Reads timers.
    Reader,
    /// Reads, creates, replaces and deletes timers, and asks for timestamps.
    Client,
    /// All that a client may, and orders to the node.
    Operator,
}

impl Role {
    /// The words of the file.
    pub const WORDS: [(&'static str, Role); 3] =
        [("reader", Role::Reader), ("client", Role::Client), ("operator", Role::Operator)];

    /// Whether the role may ask for this.
    pub fn may(self, method: Method, path: &TimerPath) -> bool {
        match self {
            Role::Client | Role::Operator => true,
            Role::Reader => match path {
                TimerPath::Timer(_)
                | TimerPath::Named
                | TimerPath::Collection
                | TimerPath::Count
                | TimerPath::DeadLetters
                | TimerPath::DeadLetter(_)
                | TimerPath::Jobs
                | TimerPath::Job(_) => {
                    matches!(method, Method::Get | Method::Head)
                }
                TimerPath::Bulk
                | TimerPath::Timestamps
                | TimerPath::References
                | TimerPath::Replays
                | TimerPath::Replay(_)
                | TimerPath::Action(..)
                | TimerPath::NamedAction(_) => false,
                TimerPath::Ping | TimerPath::Compare(_) | TimerPath::Unknown => true,
            },
        }
    }
}

/// Writes the word of the file.
impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Role::WORDS.iter().find(|(_, role)| role == self).map(|(word, _)| *word);
        f.write_str(word.unwrap_or("?"))
    }
}

/// What is wrong with a file of tokens.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokensError {
    /// A line is none of a token.
    #[error(
        "line {line}: expected a name (letters, digits, '-', '_', '.'), a role (reader, client or \
         operator), the 64 hexadecimal digits of a SHA-256, and limits if there are any \
         (timers=N, creates_per_s=N, connections=N); `chronos token new` makes one"
    )]
    Line {
        /// The number of the line, counted from 1.
        line: usize,
    },
    /// A name has too many tokens.
    #[error(
        "line {line}: expected at most two tokens of one name, the present one and the next one; \
         take out the one that nobody uses any more"
    )]
    ThirdOfName {
        /// The number of the line, counted from 1.
        line: usize,
    },
    /// The two tokens of a name have different limits.
    #[error("line {line}: expected the limits of the other line of this name:{limits}")]
    OtherLimits {
        /// The number of the line, counted from 1.
        line: usize,
        /// The limits of the line before, as words with a space before each.
        limits: String,
    },
    /// The same token stands in the file twice.
    #[error("line {line}: expected each token once, found one again; take one of the lines out")]
    Twice {
        /// The number of the line, counted from 1.
        line: usize,
    },
    /// There are too many tokens.
    #[error("expected at most {TOKENS_MAX} tokens, found more")]
    TooMany,
    /// There is no token.
    #[error("expected one token a line, found none; make one with `chronos token new`")]
    Empty,
    /// The file is too long.
    #[error("expected at most {FILE_BYTES_MAX} bytes, found more; is it the right file?")]
    TooLong,
}

/// One line of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Token {
    name: String,
    role: Role,
    digest: [u8; 32],
    limits: TokenLimits,
}

/// What a token is good for, and what its name may use.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The name of the token.
    pub name: Arc<str>,
    /// The role.
    pub role: Role,
    /// The quota of the name; `None`: it has no limits.
    pub quota: Option<Arc<Quota>>,
}

/// The tokens that are valid. Never empty.
#[derive(Clone)]
pub struct Tokens {
    lines: Vec<Token>,
    grants: HashMap<[u8; 32], Grant>,
    quotas: Arc<Quotas>,
}

/// Compares what the files say, and not what the tokens use.
impl PartialEq for Tokens {
    fn eq(&self, other: &Self) -> bool {
        self.lines == other.lines
    }
}

impl Eq for Tokens {}

/// Shows how many there are.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.lines.len())
    }
}

impl Tokens {
    /// Reads the bytes of a file. Empty lines and lines that begin with `#` are left out. Accepts
    /// any bytes without panicking.
    pub fn parse(text: &[u8]) -> Result<Self, TokensError> {
        if text.len() > FILE_BYTES_MAX {
            return Err(TokensError::TooLong);
        }
        let mut tokens: Vec<Token> = Vec::new();
        for (line, bytes) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let bytes = bytes.trim_ascii();
            if bytes.is_empty() || bytes.starts_with(b"#") {
                continue;
            }
            let token = parse_line(bytes).ok_or(TokensError::Line { line })?;
            if tokens.iter().any(|other| other.digest == token.digest) {
                return Err(TokensError::Twice { line });
            }
            let mut of_name = tokens.iter().filter(|other| other.name == token.name);
            if let Some(other) = of_name.next() {
                if of_name.count() + 2 > TOKENS_PER_NAME_MAX {
                    return Err(TokensError::ThirdOfName { line });
                }
                if other.limits != token.limits {
                    let limits = match other.limits.is_none() {
                        true => " none".to_owned(),
                        false => other.limits.to_string(),
                    };
                    return Err(TokensError::OtherLimits { line, limits });
                }
            }
            if tokens.len() == TOKENS_MAX {
                return Err(TokensError::TooMany);
            }
            tokens.push(token);
        }
        if tokens.is_empty() { Err(TokensError::Empty) } else { Ok(Self::of(tokens, None)) }
    }

    fn of(lines: Vec<Token>, former: Option<&Quotas>) -> Self {
        let mut quotas = Quotas::new();
        for line in lines.iter().filter(|line| !line.limits.is_none()) {
            let quota = Quota::new(&line.name, line.limits);
            let former = former.and_then(|former| former.get(&*line.name));
            let quota = former.map_or_else(|| quota.clone(), |former| quota.going_on_from(former));
            quotas.entry(line.name.as_str().into()).or_insert_with(|| Arc::new(quota));
        }
        let grant = |line: &Token| {
            let quota = quotas.get(&*line.name).cloned();
            (line.digest, Grant { name: line.name.as_str().into(), role: line.role, quota })
        };
        let grants = lines.iter().map(grant).collect();
        Self { grants, lines, quotas: Arc::new(quotas) }
    }

    /// The same tokens, with what the names use already that had limits before.
    pub fn going_on_from(&self, former: &Tokens) -> Self {
        Self::of(self.lines.clone(), Some(&former.quotas))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lines.len()
    }

    /// The quotas of the names that have limits.
    pub fn quotas(&self) -> &Arc<Quotas> {
        &self.quotas
    }

    /// The limits of the lines of a name; `None`: no line has the name.
    pub fn limits_of(&self, name: &str) -> Option<TokenLimits> {
        self.lines.iter().find(|line| line.name == name).map(|line| line.limits)
    }

    /// What a token is good for. Cost: a SHA-256 of the token, and a look-up.
    ///
    /// The time that the look-up takes tells nothing useful. It compares hashes of tokens, and a
    /// hash says nothing of a token of 32 unpredictable bytes. Nobody can choose tokens whose hash
    /// comes ever nearer to one in the table. The table orders them by a key of this process.
    pub fn grant_of(&self, token: &[u8]) -> Option<&Grant> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        self.grants.get(&digest)
    }

    /// The role of a token.
    pub fn role_of(&self, token: &[u8]) -> Option<Role> {
        self.grant_of(token).map(|grant| grant.role)
    }
}

fn parse_line(line: &[u8]) -> Option<Token> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (name, role, digest) = (words.next()?, words.next()?, words.next()?);
    let role = Role::WORDS.iter().find(|(word, _)| *word == role)?.1;
    let digest = Word::parse(digest)?.0;
    let mut limits = TokenLimits::default();
    words.try_for_each(|word| limits.read(word))?;
    is_token_name(name.as_bytes()).then(|| Token { name: name.to_owned(), role, digest, limits })
}

/// The line of the file for a new token without limits. [`TokenLimits`] writes those behind it.
pub fn line_of(name: &str, role: Role, token: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    format!("{name} {role} {}", Word(digest))
}

/// The token in the value of an `Authorization` header. The word `Bearer` may have letters of any
/// case (RFC 9110 section 11.1).
pub fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"Bearer ") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::timer_path::parse_path;

    const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    #[test]
    fn a_file_has_a_token_a_line() {
        let text =
            format!("# ours\n\n billing\tclient {HELLO} \r\nops operator {}\n", "0".repeat(64));
        let tokens = Tokens::parse(text.as_bytes()).expect("a good file");
        assert_eq!(tokens.count(), 2);
        assert_eq!(tokens.role_of(b"hello"), Some(Role::Client));
        assert_eq!((tokens.role_of(b"Hello"), tokens.role_of(b"")), (None, None));
        assert_eq!(format!("{tokens:?}"), "2 tokens", "nothing of them is shown");
        assert_eq!(line_of("billing", Role::Client, "hello"), format!("billing client {HELLO}"));
        assert!(tokens.quotas().is_empty());
    }

    #[test]
    fn both_tokens_of_a_name_share_its_limits() {
        let of = |digit: char, limits: &str| {
            format!("billing client {}{limits}\n", digit.to_string().repeat(64))
        };
        let hello = |limits: &str| format!("billing client {HELLO} {limits}\n");
        let (both, other) = (" connections=2  timers=5", " timers=5 connections=2");
        let text = of('1', other) + &hello(both);
        let tokens = Tokens::parse(text.as_bytes()).expect("a good file");
        let quota = tokens.grant_of(b"hello").and_then(|grant| grant.quota.clone());
        let quota = quota.expect("it has limits");
        assert_eq!((&*quota.name, quota.limits.timers), ("billing", Some(5)));
        assert_eq!((tokens.quotas().len(), tokens.limits_of("b")), (1, None));
        assert_eq!(tokens.limits_of("billing"), Some(quota.limits));
        for other in ["", " timers=6 connections=2", " timers=5"] {
            let text = of('1', other) + &hello(both);
            let error = Tokens::parse(text.as_bytes()).expect_err("they differ").to_string();
            let limits = if other.is_empty() { " none" } else { other };
            assert!(error.starts_with("line 2: ") && error.ends_with(limits), "{error}");
        }
        for wrong in ["timers", "timers=0", "timers=1 timers=1", "creates_per_s=1000001", "x=1"] {
            let wrong = Tokens::parse(hello(wrong).as_bytes());
            assert_eq!(wrong, Err(TokensError::Line { line: 1 }));
        }

        quota.add_timers(3);
        let read = Tokens::parse(hello("timers=3").as_bytes()).expect("a good file");
        assert_ne!(read, tokens);
        let read = read.going_on_from(&tokens);
        assert!(read.quotas()["billing"].has_all_timers() && !quota.has_all_timers());
    }

    #[test]
    fn lines_that_are_none_are_told_with_their_number() {
        let line = |text: String| Tokens::parse(format!("# a\n{text}").as_bytes());
        for text in [
            format!("billing {HELLO}"),
            format!("billing admin {HELLO}"),
            format!("billing client {}", &HELLO[1..]),
            format!("billing client {HELLO} more"),
            format!("bill/ing client {HELLO}"),
            format!("{} client {HELLO}", "x".repeat(65)),
            format!("b\u{e9} client {HELLO}"),
            "\u{0}".to_owned(),
        ] {
            assert_eq!(line(text), Err(TokensError::Line { line: 2 }));
        }
        assert_eq!(Tokens::parse(b"\xff client"), Err(TokensError::Line { line: 1 }));
        let of =
            |name: &str, digit: char| format!("{name} client {}\n", digit.to_string().repeat(64));
        let twice = of("a", '1') + &of("b", '1');
        assert_eq!(Tokens::parse(twice.as_bytes()), Err(TokensError::Twice { line: 2 }));
        let two = of("a", '1') + &of("a", '2');
        assert!(Tokens::parse(two.as_bytes()).is_ok(), "so that a token can be replaced");
        let three = two + &of("a", '3');
        assert_eq!(Tokens::parse(three.as_bytes()), Err(TokensError::ThirdOfName { line: 3 }));
        for empty in ["", "# only words\n"] {
            assert_eq!(Tokens::parse(empty.as_bytes()), Err(TokensError::Empty));
        }
        let long = vec![b'#'; FILE_BYTES_MAX + 1];
        assert_eq!(Tokens::parse(&long), Err(TokensError::TooLong));
    }

    #[test]
    fn the_scheme_is_bearer() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic abc", None),
            ("abc", None),
            ("", None),
        ] {
            assert_eq!(bearer(value.as_bytes()), token.map(str::as_bytes), "{value}");
        }
    }

    #[test]
    fn readers_read() {
        let may = |role: Role, method, path: &str| role.may(method, &parse_path(path));
        let timer = "/timers/687ebc01f9400001-2";
        for method in [Method::Get, Method::Head] {
            assert!(may(Role::Reader, method, timer));
        }
        for (method, path) in [
            (Method::Post, "/timers"),
            (Method::Put, timer),
            (Method::Delete, timer),
            (Method::Other, timer),
            (Method::Post, "/timestamps"),
            (Method::Delete, "/timers/references"),
        ] {
            assert!(!may(Role::Reader, method, path), "{method:?} {path}");
            assert!(may(Role::Client, method, path) && may(Role::Operator, method, path));
        }
    }
}
