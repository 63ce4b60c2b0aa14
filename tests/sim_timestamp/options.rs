//! The options of a run, drawn from its seed.

use kit::simulator::random::{Purpose, Stream};

/// How much goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing goes wrong.
    None,
    /// One thing at a time, with time to recover between.
    OneAtATime,
    /// Anything at any time.
    Storm,
    /// A master loses its place and does not learn of it, while users ask all servers.
    Plot,
}

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    /// Whether there is one server with a file, and no ensemble.
    pub is_standalone: bool,
    pub servers: usize,
    /// How many of the servers are originals.
    pub originals: usize,
    /// How many servers the ensemble has.
    pub peers: usize,
    pub tick_ms: u64,
    /// The length of a session, as granted.
    pub session_ms: u64,
    pub window_ms: u64,
    pub clock_jump_max_ms: u64,
    /// How far an original stores ahead.
    pub original_advance_ms: u64,
    pub drift_ppm_max: i64,
    pub skew_ms_max: i64,
    /// Whether wall clocks are set by an hour.
    pub has_clock_steps: bool,
    /// Whether a person deletes the master's node by hand.
    pub has_deletions: bool,
    /// Whether a person writes the bound by hand, above its value.
    pub has_foreign_bounds: bool,
    /// Whether a person deletes the bound, and an operator makes it anew later.
    pub has_lost_bounds: bool,
    /// Whether there is no cluster when the first server comes.
    pub is_fresh: bool,
    /// Whether a request without a connection waits for one. Otherwise it is lost at once.
    pub asks_wait: bool,
    pub latency_ns: (u64, u64),
    /// How long the news of a change of the master's node may take in the server.
    pub watch_delay_ms: u64,
    /// How long a write takes in the ensemble.
    pub quorum_ns: (u64, u64),
    pub lost_reply_percent: u64,
    pub range_max: u64,
    pub operations: usize,
    pub safety_ms: u64,
    pub trouble: Trouble,
}

impl Options {
    pub fn draw(seed: u64) -> Self {
        let draw = &mut Stream::new(seed, Purpose::Options);
        let is_standalone = draw.chance(20);
        let servers = if is_standalone { 1 } else { draw.pick(&[1, 2, 2, 3, 3, 4]) };
        let trouble = match draw.range(0, 9) {
            0 => Trouble::None,
            1..4 => Trouble::OneAtATime,
            4..7 => Trouble::Storm,
            _ if servers > 1 => Trouble::Plot,
            _ => Trouble::OneAtATime,
        };
        let tick_ms = draw.pick(&[500, 1_000, 2_000]);
        let has_originals = !is_standalone && servers > 1 && draw.chance(20);
        // An original that was deposed by hand goes on writing bounds, and then nothing is safe.
        let has_deletions = !is_standalone && !has_originals && draw.chance(25);
        let has_ensemble_alone = !is_standalone && !has_originals;
        // Here servers are far apart in time, and learn of changes late. This shows which server
        // compares before it writes.
        let is_apart = has_deletions && trouble == Trouble::Plot;
        Self {
            seed,
            is_standalone,
            servers,
            originals: if has_originals { draw.range(1, servers as u64 - 1) as usize } else { 0 },
            peers: draw.pick(&[1, 3, 3, 3, 5]),
            tick_ms,
            session_ms: draw.pick(&[3_000, 3_000, 6_000]).clamp(2 * tick_ms, 20 * tick_ms),
            window_ms: if is_apart { 300 } else { draw.pick(&[300, 3_000, 3_000, 10_000]) },
            clock_jump_max_ms: draw.pick(&[1_000, 10_000]),
            original_advance_ms: draw.pick(&[2_000, 100_000]),
            drift_ppm_max: draw.pick(&[0, 50, 500]),
            skew_ms_max: if is_apart { 2_000 } else { draw.pick(&[0, 100, 2_000]) },
            has_clock_steps: draw.chance(if is_standalone { 60 } else { 30 }),
            has_deletions,
            has_foreign_bounds: has_ensemble_alone && draw.chance(30),
            has_lost_bounds: has_ensemble_alone && draw.chance(30),
            is_fresh: has_ensemble_alone && draw.chance(10),
            asks_wait: draw.chance(50),
            latency_ns: if draw.chance(25) { (1_000_000, 20_000_000) } else { (50_000, 1_000_000) },
            watch_delay_ms: if is_apart { 1_000 } else { draw.pick(&[1, 20, 1_000]) },
            quorum_ns: if draw.chance(25) { (5_000_000, 40_000_000) } else { (200_000, 5_000_000) },
            lost_reply_percent: draw.pick(&[0, 0, 10]),
            range_max: draw.pick(&[1, 1_000, 262_144]),
            operations: draw.range(3, 25) as usize,
            safety_ms: draw.range(20_000, 60_000),
            trouble,
        }
    }

    /// Returns the time between two pings of the ensemble's leader.
    pub fn ping_ms(&self) -> u64 {
        self.tick_ms / 2
    }
}
