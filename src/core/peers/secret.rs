//! The secret that the nodes of a cluster share, and how the two ends of a connection prove to each
//! other that they know it. Bytes only: no file, no socket, no dice; nonces come in as arguments.
//!
//! ```text
//! dialler                                             acceptor
//!    |  its hello, its nonce                              |
//!    |--------------------------------------------------->|
//!    |                       401, the acceptor's nonce    |
//!    |<---------------------------------------------------|
//!    |  its hello, its nonce, HMAC(secret, "dials", ...)  |
//!    |--------------------------------------------------->|
//!    |     101, its hello, HMAC(secret, "answers", ...)   |
//!    |<---------------------------------------------------|
//! ```
//!
//! A proof is an HMAC-SHA256 (RFC 2104, FIPS 180-4) over the [`Role`] of the end that makes it, the
//! protocol, both nonces, the dialler's name, the name that the dialler meant, and all that the end
//! says of itself. Every field stands behind its length. So a proof is worth nothing
//!
//! - on another connection, because of the nonces
//! - at another node, because of the name meant
//! - in the other direction, because of the role
//! - beside other words, because of the fields.

// May panic: expectations 1, indices 3.
// Why it does not: found 2, configured 1, compiled 1.

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::core::peers::hello::Hello;

/// Fewest bytes of a secret: as many as `openssl rand -hex 16` writes.
pub const SECRET_BYTES_MIN: usize = 32;
/// Most bytes of a secret.
pub const SECRET_BYTES_MAX: usize = 1_024;
/// Most secrets at one time: the present one, the former one and the next one, with room.
pub const SECRETS_MAX: usize = 16;
/// Most bytes of the file: all secrets at their longest, and as much for comments.
pub const FILE_BYTES_MAX: usize = 2 * SECRETS_MAX * SECRET_BYTES_MAX;
/// Bytes of a nonce and of a proof.
const WORD_BYTES: usize = 32;
/// Tells these proofs from anything else that is made with the same secret.
const LABEL: &[u8] = b"chronos peer proof 1";

/// 32 bytes that are written as 64 hexadecimal digits: a nonce or a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub [u8; WORD_BYTES]);

impl Word {
    /// Reads exactly 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * WORD_BYTES {
            return None;
        }
        let mut bytes = [0; WORD_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let value = |digit: u8| char::from(digit).to_digit(16);
            *byte = (value(pair[0])? << 4 | value(pair[1])?) as u8;
        }
        Some(Self(bytes))
    }
}

/// Writes the 64 digits.
impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What is wrong with the text of a secret file. The text of the error never shows a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// A line has too few or too many bytes for a secret.
    #[error(
        "line {line}: expected a secret of {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes, found \
         {bytes} bytes; make one with `openssl rand -base64 32`"
    )]
    Length {
        /// The number of the line, counted from 1.
        line: usize,
        /// The bytes of the line without the space around it.
        bytes: usize,
    },
    /// The file has no secret.
    #[error("expected one secret a line, found none; make one with `openssl rand -base64 32`")]
    Empty,
    /// The file has more than [`SECRETS_MAX`] secrets.
    #[error("expected at most {SECRETS_MAX} secrets, found more; take out those no longer used")]
    TooMany,
    /// The file has more than [`FILE_BYTES_MAX`] bytes.
    #[error("expected at most {FILE_BYTES_MAX} bytes, found more; is it the right file?")]
    TooLong,
}

/// The secrets that a node knows. The node proves with the first one and accepts all. Never empty.
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets(Vec<Box<[u8]>>);

/// Shows how many secrets there are, and nothing of them.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

impl Secrets {
    /// Reads the bytes of a secret file: one secret a line. Empty lines and lines that begin with
    /// `#` are left out. Accepts any bytes without panicking.
    pub fn parse(text: &[u8]) -> Result<Self, SecretError> {
        if text.len() > FILE_BYTES_MAX {
            return Err(SecretError::TooLong);
        }
        let mut secrets = Vec::new();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let secret = line.trim_ascii();
            if secret.is_empty() || secret.starts_with(b"#") {
                continue;
            }
            if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()) {
                return Err(SecretError::Length { line: index + 1, bytes: secret.len() });
            }
            if secrets.len() == SECRETS_MAX {
                return Err(SecretError::TooMany);
            }
            secrets.push(secret.into());
        }
        if secrets.is_empty() { Err(SecretError::Empty) } else { Ok(Self(secrets)) }
    }

    /// How many secrets there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the proof of a claim, made with the first secret.
    pub fn prove(&self, claim: &Claim<'_>) -> Word {
        proof_with(&self.0[0], claim)
    }

    /// Returns the secret with which a proof was made. Takes the same time for each wrong proof.
    fn proven(&self, claim: &Claim<'_>, proof: &Word) -> Option<&[u8]> {
        let is_made_with = |secret: &[u8]| mac_of(secret, claim).verify_slice(&proof.0).is_ok();
        self.0.iter().map(|secret| &secret[..]).find(|secret| is_made_with(secret))
    }

    /// Returns whether a proof was made with one of the secrets.
    pub fn accept(&self, claim: &Claim<'_>, proof: &Word) -> bool {
        self.proven(claim, proof).is_some()
    }
}

/// Which end of a connection makes a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that dials.
    Dials,
    /// The end that accepts.
    Answers,
}

/// What both ends of a connection know of it, once both nonces are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting<'m> {
    /// The protocol that is asked for.
    pub protocol: &'m str,
    /// The nonce that the dialler drew.
    pub dialler_nonce: Word,
    /// The nonce that the acceptor drew.
    pub acceptor_nonce: Word,
    /// The name of the node that dials.
    pub dialler: &'m str,
    /// The name of the node or site that the dialler means.
    pub meant: &'m str,
}

/// What a proof is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim<'m> {
    /// The end that makes the proof.
    pub role: Role,
    /// The connection of the proof.
    pub meeting: Meeting<'m>,
    /// What the end that makes the proof says of itself.
    pub hello: &'m Hello,
}

fn proof_with(secret: &[u8], claim: &Claim<'_>) -> Word {
    Word(mac_of(secret, claim).finalize().into_bytes().into())
}

fn mac_of(secret: &[u8], claim: &Claim<'_>) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key may have any length");
    let mut add = |field: &[u8]| {
        mac.update(&(field.len() as u64).to_le_bytes());
        mac.update(field);
    };
    let Claim { role, meeting, hello } = claim;
    add(LABEL);
    add(match role {
        Role::Dials => b"dials",
        Role::Answers => b"answers",
    });
    add(meeting.protocol.as_bytes());
    add(&meeting.dialler_nonce.0);
    add(&meeting.acceptor_nonce.0);
    add(meeting.dialler.as_bytes());
    add(meeting.meant.as_bytes());
    add(hello.name.as_bytes());
    add(&hello.instance.to_le_bytes());
    add(&hello.incarnation.to_le_bytes());
    add(&hello.view_id.to_le_bytes());
    add(&hello.shard.to_le_bytes());
    add(&hello.shards.to_le_bytes());
    mac
}

/// What a node asks of the other end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// The secrets that the node knows. `None`: it proves nothing and asks for no proof.
    pub secrets: Option<Arc<Secrets>>,
    /// Whether the node also takes diallers that offer no proof. Without secrets it takes them
    /// anyway.
    pub accepts_unproven: bool,
}

/// What a dialler says first, or in answer to a challenge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The dialler's nonce, if the dialler knows a secret.
    pub nonce: Option<Word>,
    /// The dialler's proof, if the dialler was challenged.
    pub proof: Option<Word>,
}

/// What an acceptor does with an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofVerdict {
    /// Accept: nothing was proven, and nothing need be.
    Unproven,
    /// Accept: the dialler knows a secret. The word is the acceptor's proof, made with the same
    /// secret.
    Proven(Word),
    /// Ask the dialler for a proof.
    Challenge,
    /// Refuse the dialler, for this reason.
    Refused(&'static str),
}

/// Why a dialler that offers no proof is refused.
pub const NO_SECRET: &str = "this cluster has a secret, and this node offers no proof that it \
    knows the secret: give it the same cluster.secret_file as the others have, or let those set \
    cluster.secret_required = false until it has";
/// Why a dialler with a wrong proof is refused.
pub const WRONG_SECRET: &str = "the proof of the cluster's secret is wrong: the first line of the \
    dialling node's cluster.secret_file must be a line of this node's";
/// Why a request to the internal API is refused.
pub const CLOSED: &str = "the internal API is closed: this cluster has a secret \
    (cluster.secret_file), which is not proven in it. Nodes of the original service cannot be \
    members beside it; set cluster.secret_required = false where they are to be";
/// Why a dialler is refused whose proof answers no challenge, or that begins again.
const NO_CHALLENGE: &str = "the proof of the cluster's secret answers no challenge of this \
    connection: a connection is challenged once";

impl Guard {
    /// Returns whether the other end must prove that it knows a secret.
    pub fn is_required(&self) -> bool {
        self.secrets.is_some() && !self.accepts_unproven
    }

    /// Judges a dialler's offer. `challenge` is this connection's nonce, if the dialler was
    /// challenged. `meant` is the name of this end, `own` what this end says of itself.
    pub fn judge(
        &self,
        (protocol, meant, own): (&str, &str, &Hello),
        hello: &Hello,
        offer: Offer,
        challenge: Option<Word>,
    ) -> ProofVerdict {
        let Some(secrets) = &self.secrets else { return ProofVerdict::Unproven };
        let Some(dialler_nonce) = offer.nonce else {
            let may_pass = self.accepts_unproven && offer.proof.is_none() && challenge.is_none();
            return if may_pass {
                ProofVerdict::Unproven
            } else {
                ProofVerdict::Refused(NO_SECRET)
            };
        };
        match (offer.proof, challenge) {
            (None, None) => ProofVerdict::Challenge,
            (Some(proof), Some(acceptor_nonce)) => {
                let dialler = &hello.name;
                let meeting = Meeting { protocol, dialler_nonce, acceptor_nonce, dialler, meant };
                let theirs = Claim { role: Role::Dials, meeting: meeting.clone(), hello };
                let ours = Claim { role: Role::Answers, meeting, hello: own };
                match secrets.proven(&theirs, &proof) {
                    Some(secret) => ProofVerdict::Proven(proof_with(secret, &ours)),
                    None => ProofVerdict::Refused(WRONG_SECRET),
                }
            }
            _ => ProofVerdict::Refused(NO_CHALLENGE),
        }
    }
}
