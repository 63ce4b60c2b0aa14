//! The two servers that are compared: the cores of a node, and the ring alone.

use std::net::SocketAddr;

use anyhow::{Context, Result, anyhow};
use chronos::base::time::MonoNs;
use chronos::node::settings::{NodeSettings, TimestampSettings};
use chronos::ring::{Completion, Listener, Ring, RingConfig, SocketId, Wait, now, pin_to_core};
use chronos::timestamp::Timestamp;
use chronos::timestamp::clock::ClockLine;
use chronos::timestamp::oracle::Terms;
use chronos::wire::thrift::{
    Form, GET_TIMESTAMPS, Method, Request, write_get_timestamps, write_value,
};

use super::client::SEQID;

const BACKLOG: u32 = 4096;
/// For how many milliseconds the node may hand out timestamps: longer than any run.
const TERM_MS: u64 = 48 * 3_600_000;

/// Serves with the node's data plane on one core, until the process ends.
pub fn serve_node(listen: SocketAddr, core: usize) -> Result<()> {
    let settings = NodeSettings {
        cores: Some(vec![core]),
        serves_timers: false,
        timestamp: Some(TimestampSettings { listen: Some(listen), ..TimestampSettings::default() }),
        ..NodeSettings::default()
    };
    let node = chronos::node::start(&settings)?;
    let at = now();
    let clock = ClockLine {
        wall_offset_ns: at.wall.0 * 1_000_000 - at.mono.0,
        ahead_ns: 0,
        ahead_at: MonoNs(0),
    };
    let terms = Terms {
        until: at.mono.plus_ms(TERM_MS),
        bound: Timestamp::of_unix_ms(at.wall.0 + TERM_MS),
        clock,
    };
    node.oracle.as_ref().context("timestamps are on")?.begin(Timestamp(0), &terms);
    println!("node at {listen}");
    node.join().map_err(|failure| anyhow!(failure))
}

/// One connection of the bare ring.
#[derive(Debug, Default)]
struct Slot {
    socket: Option<SocketId>,
    /// Bytes that have arrived of an incomplete request.
    begun_bytes: usize,
    /// How many requests wait for their reply.
    owed: usize,
    spare: Vec<u8>,
    sending: bool,
    touched: bool,
}

/// Serves with the bare ring until the process ends. The ring counts bytes. For each full length of
/// a request it sends a reply in which the value alone changes, with one send per connection and
/// turn.
pub fn serve_echo(listen: SocketAddr, core: usize) -> Result<()> {
    pin_to_core(core).with_context(|| format!("cannot run on core {core}"))?;
    chronos::ring::set_timer_slack_ns(1).context("cannot set the timer slack")?;
    let mut ring = Ring::new(&RingConfig::default()).context("cannot make the server's ring")?;
    ring.listen(Listener::bind(listen, BACKLOG)?);
    println!("ring at {listen}");
    let mut request = Vec::new();
    write_get_timestamps(&mut request, SEQID, 1);
    let method = Method::GetTimestamps { range: None };
    let asked = Request { method, name: GET_TIMESTAMPS, seqid: SEQID, is_oneway: false };
    let mut reply = Vec::new();
    write_value(&mut reply, Form::Strict, &asked, 0);
    let value_at = reply.len() - 9;
    let (mut slots, mut touched): (Vec<Slot>, Vec<usize>) = Default::default();
    let (mut completions, mut value) = (Vec::new(), 0_u64);
    loop {
        ring.turn(Wait::Event, &mut completions)?;
        for completion in completions.drain(..) {
            let place = match completion {
                Completion::Accepted { socket, .. } => {
                    ring.set_owner(socket, slots.len() as u64);
                    ring.receive(socket);
                    slots.push(Slot { socket: Some(socket), ..Slot::default() });
                    continue;
                }
                Completion::Received { owner, bytes, .. } => {
                    let slot = &mut slots[owner as usize];
                    let bytes = slot.begun_bytes + bytes.len();
                    slot.owed += bytes / request.len();
                    slot.begun_bytes = bytes % request.len();
                    owner as usize
                }
                Completion::Sent { owner, buffer, .. } => {
                    let slot = &mut slots[owner as usize];
                    (slot.spare, slot.sending) = (buffer, false);
                    owner as usize
                }
                Completion::Ended { owner, socket, .. } => {
                    slots[owner as usize].socket = None;
                    ring.close(socket);
                    continue;
                }
                _ => continue,
            };
            if !std::mem::replace(&mut slots[place].touched, true) {
                touched.push(place);
            }
        }
        for place in touched.drain(..) {
            let slot = &mut slots[place];
            slot.touched = false;
            let Some(socket) = slot.socket.filter(|_| !slot.sending && slot.owed > 0) else {
                continue;
            };
            let mut out = std::mem::take(&mut slot.spare);
            for _ in 0..std::mem::take(&mut slot.owed) {
                // The step is larger than any range, so that values increase as they must.
                value += 1 << 18;
                reply[value_at..value_at + 8].copy_from_slice(&value.to_be_bytes());
                out.extend_from_slice(&reply);
            }
            slot.sending = true;
            ring.send(socket, out);
        }
    }
}
