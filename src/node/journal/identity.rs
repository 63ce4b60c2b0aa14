//! `node.toml`: whose data directory it is. A checksum covers the file, because a number of the
//! journal with one wrong digit would make every segment one of another journal.

use serde::{Deserialize, Serialize};

use crate::journal::JournalId;
use crate::journal::entry::NAME_BYTES_MAX;

/// The format of the directory and of `node.toml` that this release writes.
pub(super) const FORMAT: i64 = 1;

/// Whose data directory it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The node's name.
    pub node: String,
    /// The number of its journal.
    pub journal: JournalId,
}

/// Why a text is no identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NoIdentity {
    /// The text is written in a later format.
    Newer(i64),
    /// The text is damaged.
    Damaged(String),
}

#[derive(Serialize, Deserialize)]
struct Lines {
    format: i64,
    node: String,
    journal: String,
    crc32: String,
}

/// The text of `node.toml`.
pub(super) fn text_of(identity: &Identity) -> String {
    let lines = Lines {
        format: FORMAT,
        node: identity.node.clone(),
        journal: format!("{:016x}", identity.journal.0),
        crc32: checksum(identity),
    };
    toml::to_string(&lines).unwrap_or_default()
}

/// Reads the text of `node.toml`.
pub(super) fn identity_of(text: &[u8]) -> Result<Identity, NoIdentity> {
    let damaged = |why: &str| NoIdentity::Damaged(why.to_owned());
    let text = std::str::from_utf8(text).map_err(|_| damaged("it is not text"))?;
    let table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| damaged(error.message()))?;
    match table.get("format").and_then(toml::Value::as_integer) {
        Some(format) if format > FORMAT => return Err(NoIdentity::Newer(format)),
        Some(FORMAT) => {}
        _ => return Err(damaged("it tells no format")),
    }
    let lines: Lines = table.try_into().map_err(|e: toml::de::Error| damaged(e.message()))?;
    let journal = JournalId(u64::from_str_radix(&lines.journal, 16).unwrap_or(0));
    if journal.0 == 0 || lines.journal != format!("{:016x}", journal.0) {
        return Err(damaged("the journal's number is not 16 hex digits"));
    }
    if lines.node.is_empty() || lines.node.len() > NAME_BYTES_MAX {
        return Err(damaged("the node's name is empty or too long"));
    }
    let identity = Identity { node: lines.node, journal };
    if lines.crc32 == checksum(&identity) {
        Ok(identity)
    } else {
        Err(damaged("its checksum does not fit"))
    }
}

fn checksum(identity: &Identity) -> String {
    let Identity { node, journal } = identity;
    let covered = format!("{FORMAT}\n{node}\n{:016x}\n", journal.0);
    format!("{:08x}", crc32fast::hash(covered.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(node: &str) -> Identity {
        Identity { node: node.to_owned(), journal: JournalId(0x0123_4567_89ab_cdef) }
    }

    #[test]
    fn an_identity_is_read_as_it_was_written() {
        for node in ["10.0.0.1:7253", "[::1]:7253", "a\"b\\\n\u{e9}", "\u{1b}[31m"] {
            assert_eq!(identity_of(text_of(&identity(node)).as_bytes()), Ok(identity(node)));
        }
        assert_eq!(
            text_of(&identity("10.0.0.1:7253")),
            "format = 1\nnode = \"10.0.0.1:7253\"\njournal = \"0123456789abcdef\"\n\
             crc32 = \"07f809dc\"\n"
        );
    }

    #[test]
    fn no_flipped_bit_makes_another_identity() {
        let good = text_of(&identity("10.0.0.1:7253")).into_bytes();
        for bit in 0..good.len() * 8 {
            let mut flipped = good.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(found) = identity_of(&flipped) {
                // White space, or the case of nothing: the values are the same.
                assert_eq!(found, identity("10.0.0.1:7253"), "bit {bit}");
            }
        }
    }

    #[test]
    fn what_is_no_identity_says_why() {
        let damaged = |text: &str| match identity_of(text.as_bytes()) {
            Err(NoIdentity::Damaged(why)) => why,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(damaged(""), "it tells no format");
        assert_eq!(damaged("format = 0"), "it tells no format");
        assert!(damaged("format = 1").contains("node"));
        assert!(!damaged("format = ").is_empty());
        assert!(
            damaged("format = 1\nnode = 'a'\njournal = '+123456789abcdef'\ncrc32 = ''")
                .contains("16 hex digits")
        );
        assert_eq!(identity_of(b"\xff"), Err(NoIdentity::Damaged("it is not text".to_owned())));
        assert_eq!(identity_of(b"format = 2\nwhatever = 1"), Err(NoIdentity::Newer(2)));
    }
}
