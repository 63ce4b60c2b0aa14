//! The dialler's half of how a connection between two nodes begins: what the dialler says, how it
//! reads the answers, and whom it believes. Bytes only: the driver owns the socket.

// May panic: indices 1.
// Why it does not: found 1.

use crate::core::peers::handshake::{
    Answered, Asked, NoAnswer, Protocol, parse_answer, write_request,
};
use crate::core::peers::hello::Hello;
use crate::core::peers::secret::{Claim, Guard, Meeting, Offer, Role, Word};

/// A connection that has been dialled and is not upgraded yet.
#[derive(Debug)]
pub struct Greeting {
    protocol: Protocol,
    guard: Guard,
    /// What this end says of itself.
    own: Hello,
    /// The name of the node or site that was dialled.
    meant: String,
    /// This end's nonce, drawn for this connection.
    nonce: Word,
    /// The other end's nonce, once the other end has told it.
    challenge: Option<Word>,
    answer: Vec<u8>,
}

/// What the driver is to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Receive more bytes.
    Wait,
    /// Call [`Greeting::write`] and send what it appends.
    Say,
    /// The greeting ended with this answer, which is never [`Answered::Challenged`].
    Ended(Answered),
    /// The bytes are no HTTP, or an answer without sense. Close the connection.
    Broken,
}

impl Greeting {
    /// A greeting in which nothing has been said. `nonce` must be drawn for this connection.
    pub fn new(protocol: Protocol, guard: &Guard, own: Hello, meant: &str, nonce: Word) -> Self {
        Self {
            protocol,
            guard: guard.clone(),
            own,
            meant: meant.to_owned(),
            nonce,
            challenge: None,
            answer: Vec::new(),
        }
    }

    /// Appends the request to send: what this end says of itself and, once it was challenged, the
    /// proof.
    pub fn write(&self, host: &str, out: &mut Vec<u8>) {
        let proof = || {
            let claim = self.claim(Role::Dials, &self.own)?;
            Some(self.guard.secrets.as_ref()?.prove(&claim))
        };
        let nonce = self.guard.secrets.as_ref().map(|_| self.nonce);
        let offer = Offer { nonce, proof: proof() };
        let asked = Asked { protocol: self.protocol, hello: self.own.clone(), offer };
        write_request(out, host, &asked);
    }

    /// Takes bytes of the other end.
    pub fn received(&mut self, bytes: &[u8]) -> Step {
        self.answer.extend_from_slice(bytes);
        let answered = match parse_answer(&self.answer, self.protocol) {
            Ok(None) => return Step::Wait,
            Ok(Some(answered)) => answered,
            Err(NoAnswer) => return Step::Broken,
        };
        match answered {
            Answered::Challenged { nonce, head_bytes } => {
                let is_answerable = self.guard.secrets.is_some() && self.challenge.is_none();
                if !is_answerable {
                    return Step::Ended(Answered::Unproven);
                }
                if self.answer.len() > head_bytes {
                    return Step::Broken;
                }
                self.answer.clear();
                self.challenge = Some(nonce);
                Step::Say
            }
            Answered::Upgraded { ref hello, proof, .. } if !self.believes(hello, proof) => {
                Step::Ended(Answered::Unproven)
            }
            // The internal HTTP API proves nothing.
            Answered::Original if self.guard.is_required() => Step::Ended(Answered::Unproven),
            answered => Step::Ended(answered),
        }
    }

    /// The protocol that the dialler asks for.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The bytes that came behind the head of the last answer.
    pub fn rest(&self, head_bytes: usize) -> &[u8] {
        &self.answer[head_bytes..]
    }

    /// Returns whether this end may talk with the end that accepted. An offered proof counts even
    /// where none is required.
    fn believes(&self, hello: &Hello, proof: Option<Word>) -> bool {
        let (Some(secrets), Some(claim)) = (&self.guard.secrets, self.claim(Role::Answers, hello))
        else {
            return !self.guard.is_required();
        };
        proof.is_some_and(|proof| secrets.accept(&claim, &proof))
    }

    fn claim<'c>(&'c self, role: Role, hello: &'c Hello) -> Option<Claim<'c>> {
        let meeting = Meeting {
            protocol: self.protocol.name(),
            dialler_nonce: self.nonce,
            acceptor_nonce: self.challenge?,
            dialler: &self.own.name,
            meant: &self.meant,
        };
        Some(Claim { role, meeting, hello })
    }
}
