//! What a journal says of one timer, or of itself. Entries of timers are the messages that nodes
//! send each other (`wire::peer_message`): a whole timer or tombstone, and how far a timer is. So
//! one rule merges what a peer tells and what the disk tells.
//!
//! ```text
//! timer, tombstone, progress   as in wire::peer_message: copy (kinds 2, 34), standing (kind 1)
//! forgotten  kind u8 = 65, id u64
//! head       kind u8 = 66, format u16, shard u16, shards u16, oldest u64, blocks of the
//!            segment u32, blocks written of the previous one u32, name's length v, name
//! state      kind u8 = 67, oldest u64, complete since u64, count v, each node u32
//! ```
//!
//! Numbers are little-endian; numbers marked `v` are LEB128 in their shortest form.

// May panic: assertions 1, indices 1.
// Why it does not: found 1, configured 1.

use crate::base::ids::{NodeHash, TimerId};
use crate::base::time::WallMs;
use crate::wire::leb128::{read_leb128, write_leb128};
use crate::wire::peer_message::{PeerMessage, Standing, TimerCopy, decode_message};

use super::SegmentNumber;

const FORGOTTEN: u8 = 65;
const HEAD: u8 = 66;
const STATE: u8 = 67;
/// Longest name of a node, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Most peers of a node.
const OWED_MAX: u64 = 128;

/// One entry of a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry<'a> {
    /// A whole timer, or its tombstone. Its start is in ms of the monotonic clock of the page.
    Timer(TimerCopy<'a>),
    /// How many pops of a timer are done, and who acts next.
    Progress(Standing),
    /// The timer was handed over to other nodes: what stands before this entry does not count.
    Forgotten(TimerId),
    /// The first entry of every segment.
    Head(Head<'a>),
    /// What the shard knows of itself. A later one replaces an earlier one.
    State(State),
}

/// Whose journal a segment belongs to, and where it stands in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head<'a> {
    /// The format in which the segment is written.
    pub format: u16,
    /// The shard that wrote it.
    pub shard: u16,
    /// How many shards the node had. They decide which shard owns an id.
    pub shards: u16,
    /// The oldest segment that was needed.
    pub oldest: SegmentNumber,
    /// Blocks of the segment's file.
    pub blocks: u32,
    /// Blocks of the segment before that were written; 0: there was none, or a restart lies
    /// between.
    pub previous_blocks: u32,
    /// The node's name.
    pub name: &'a str,
}

/// What a shard knows of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// The oldest segment that is needed. Earlier ones may be gone.
    pub oldest: SegmentNumber,
    /// Since when everything that this shard acknowledged is in its memory, or was ended.
    pub complete_since: WallMs,
    /// Nodes that are known to have missed something.
    pub owed: Vec<NodeHash>,
}

/// The bytes are no entry. The text says why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("journal entry: {0}")]
pub struct EntryError(pub &'static str);

impl Entry<'_> {
    /// Appends the entry. Panics if a name is longer than [`NAME_BYTES_MAX`]. Cost: one copy of the
    /// content.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Entry::Timer(copy) => PeerMessage::Copy(*copy).encode(out),
            Entry::Progress(standing) => PeerMessage::Standing(*standing).encode(out),
            Entry::Forgotten(id) => {
                out.push(FORGOTTEN);
                out.extend_from_slice(&id.0.to_le_bytes());
            }
            Entry::Head(head) => {
                assert!(
                    head.name.len() <= NAME_BYTES_MAX,
                    "names are bounded by the configuration"
                );
                out.push(HEAD);
                out.extend_from_slice(&head.format.to_le_bytes());
                out.extend_from_slice(&head.shard.to_le_bytes());
                out.extend_from_slice(&head.shards.to_le_bytes());
                out.extend_from_slice(&head.oldest.0.to_le_bytes());
                out.extend_from_slice(&head.blocks.to_le_bytes());
                out.extend_from_slice(&head.previous_blocks.to_le_bytes());
                write_leb128(head.name.len() as u64, out);
                out.extend_from_slice(head.name.as_bytes());
            }
            Entry::State(state) => {
                out.push(STATE);
                out.extend_from_slice(&state.oldest.0.to_le_bytes());
                out.extend_from_slice(&state.complete_since.0.to_le_bytes());
                write_leb128(state.owed.len() as u64, out);
                for node in &state.owed {
                    out.extend_from_slice(&node.0.to_le_bytes());
                }
            }
        }
    }

    /// The timer that the entry is about; `None`: it is about the journal.
    pub fn id(&self) -> Option<TimerId> {
        match self {
            Entry::Timer(copy) => Some(copy.standing.id),
            Entry::Progress(standing) => Some(standing.id),
            Entry::Forgotten(id) => Some(*id),
            Entry::Head(_) | Entry::State(_) => None,
        }
    }
}

/// Takes one entry off the front of `input` and leaves the rest. Everything is checked that
/// `decode_message` checks, so an entry can be used as it is.
pub fn decode_entry<'a>(input: &mut &'a [u8]) -> Result<Entry<'a>, EntryError> {
    let kind = *input.first().ok_or(EntryError("cut off"))?;
    if !matches!(kind, FORGOTTEN | HEAD | STATE) {
        return match decode_message(input).map_err(|error| EntryError(error.0))? {
            PeerMessage::Copy(copy) => Ok(Entry::Timer(copy)),
            PeerMessage::Standing(standing) => Ok(Entry::Progress(standing)),
            _ => Err(EntryError("a message that no journal has")),
        };
    }
    *input = &input[1..];
    match kind {
        FORGOTTEN => Ok(Entry::Forgotten(TimerId(u64::from_le_bytes(chunk(input)?)))),
        HEAD => head(input).map(Entry::Head),
        _ => state(input).map(Entry::State),
    }
}

fn head<'a>(input: &mut &'a [u8]) -> Result<Head<'a>, EntryError> {
    let format = u16::from_le_bytes(chunk(input)?);
    let shard = u16::from_le_bytes(chunk(input)?);
    let shards = u16::from_le_bytes(chunk(input)?);
    let oldest = SegmentNumber(u64::from_le_bytes(chunk(input)?));
    let blocks = u32::from_le_bytes(chunk(input)?);
    let previous_blocks = u32::from_le_bytes(chunk(input)?);
    let length = number(input)?;
    if length > NAME_BYTES_MAX as u64 {
        return Err(EntryError("a name that is too long"));
    }
    let (name, rest) = input.split_at_checked(length as usize).ok_or(EntryError("cut off"))?;
    *input = rest;
    let name = std::str::from_utf8(name).map_err(|_| EntryError("a name that is not text"))?;
    if shard >= shards {
        return Err(EntryError("a shard beyond the number of shards"));
    }
    Ok(Head { format, shard, shards, oldest, blocks, previous_blocks, name })
}

fn state(input: &mut &[u8]) -> Result<State, EntryError> {
    let oldest = SegmentNumber(u64::from_le_bytes(chunk(input)?));
    let complete_since = WallMs(u64::from_le_bytes(chunk(input)?));
    let count = number(input)?;
    if count > OWED_MAX {
        return Err(EntryError("more peers than a node can have"));
    }
    let owed = (0..count)
        .map(|_| chunk(input).map(|bytes| NodeHash(u32::from_le_bytes(bytes))))
        .collect::<Result<_, _>>()?;
    Ok(State { oldest, complete_since, owed })
}

fn number(input: &mut &[u8]) -> Result<u64, EntryError> {
    read_leb128(input).ok_or(EntryError("expected a LEB128 number in its shortest form"))
}

fn chunk<const N: usize>(input: &mut &[u8]) -> Result<[u8; N], EntryError> {
    let (chunk, rest) = input.split_first_chunk().ok_or(EntryError("cut off"))?;
    *input = rest;
    Ok(*chunk)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::base::ranked::{Replicas, Sites};
    use crate::wire::peer_message::CopyBody;

    /// Content without tags: target `/t`, and the opaque bytes.
    pub(crate) fn content(opaque: &[u8]) -> Vec<u8> {
        [&[2, 0, 0, 0, b'/', b't'], opaque].concat()
    }

    pub(crate) fn timer(id: u64, sequence: u64, content: Option<&[u8]>) -> TimerCopy<'_> {
        let replicas: Replicas = [NodeHash(7)].into_iter().collect();
        TimerCopy {
            standing: Standing {
                id: TimerId(id),
                version: 99 << 22,
                sequence,
                actives: 1,
                list_digest: replicas.digest(),
            },
            is_write: false,
            replicas,
            factor: 1,
            sites: Sites::new(),
            start_ms: 1_000,
            interval_ms: 5_000,
            repeat_for_ms: 50_000,
            body: content.map(|content| CopyBody { authority: "10.0.0.1:80", content }),
        }
    }

    #[test]
    fn every_entry_survives_the_round_trip_and_no_part_of_it_is_one() {
        let content = content(b"opaque");
        let entries = [
            Entry::Timer(timer(1, 0, Some(&content))),
            Entry::Timer(timer(2, 3, None)),
            Entry::Progress(timer(1, 4, None).standing),
            Entry::Forgotten(TimerId(u64::MAX)),
            Entry::Head(Head {
                format: 1,
                shard: 3,
                shards: 4,
                oldest: SegmentNumber(17),
                blocks: 16_384,
                previous_blocks: 16_384,
                name: "10.0.0.1:7253",
            }),
            Entry::State(State {
                oldest: SegmentNumber(u64::MAX),
                complete_since: WallMs(1_700_000_000_000),
                owed: vec![NodeHash(1), NodeHash(u32::MAX)],
            }),
        ];
        let mut all = Vec::new();
        for entry in &entries {
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            for end in 0..bytes.len() {
                assert!(decode_entry(&mut &bytes[..end]).is_err(), "{entry:?} cut at {end}");
            }
            all.extend_from_slice(&bytes);
        }
        let mut rest = &all[..];
        for entry in &entries {
            assert_eq!(decode_entry(&mut rest).as_ref(), Ok(entry));
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn what_no_journal_has_is_refused() {
        let mut fetch = Vec::new();
        PeerMessage::Fetch(TimerId(1)).encode(&mut fetch);
        assert_eq!(decode_entry(&mut &fetch[..]), Err(EntryError("a message that no journal has")));
        assert!(decode_entry(&mut &[0_u8; 40][..]).is_err());
        let head = [66, 1, 0, 4, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            decode_entry(&mut &head[..]),
            Err(EntryError("a shard beyond the number of shards"))
        );
        let state = [&[67; 17][..], &[200, 1]].concat();
        assert_eq!(
            decode_entry(&mut &state[..]),
            Err(EntryError("more peers than a node can have"))
        );
    }
}
