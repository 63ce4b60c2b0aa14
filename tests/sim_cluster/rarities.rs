//! Faults that most seeds do without, each with an option and a random stream of its own: adding
//! one changes no seed that has not drawn it.

use super::options::{Options, Trouble};
use super::random::{Purpose, Stream};
use super::story_plan::{Death, Fault};

const MS: u64 = 1_000_000;

/// Seeds in a hundred that have one of them.
const PERCENT: u64 = 4;
/// The same of seeds in which nodes join or leave.
const PERCENT_OF_CHANGES: u64 = 25;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rarity {
    /// A node keeps, or starts again with, the files of before a change.
    OldFiles = 1,
}

impl Rarity {
    const ALL: [Self; 1] = [Self::OldFiles];
}

/// Those of a run.
#[derive(Clone, Debug, Default)]
pub struct Rarities {
    pub kinds: Vec<Rarity>,
    /// Nothing else goes wrong.
    pub alone: bool,
}

impl Rarities {
    pub fn draw(seed: u64, trouble: Trouble, has_operator: bool) -> Self {
        let is_drawn = |kind: &Rarity| {
            let percent = match kind {
                Rarity::OldFiles if has_operator => PERCENT_OF_CHANGES,
                Rarity::OldFiles => 0,
            };
            Stream::keyed(seed, Purpose::Rarities, *kind as u64).chance(percent)
        };
        if trouble == Trouble::Plot {
            return Self::default();
        }
        let kinds = Rarity::ALL.into_iter().filter(is_drawn).collect();
        let alone = Stream::keyed(seed, Purpose::Rarities, 0).chance(60);
        Self { kinds, alone }
    }

    pub fn has(&self, name: &str) -> bool {
        self.kinds.iter().any(|kind| format!("{kind:?}") == name)
    }
}

/// Adds the rare faults of a run.
pub fn rare_faults(options: &Options, made: &mut Vec<(u64, Fault)>) {
    for kind in &options.rarities.kinds {
        // Another key than that of the option.
        let draw = &mut Stream::keyed(options.seed, Purpose::Rarities, 100 + *kind as u64);
        match kind {
            Rarity::OldFiles => old_files(draw, options, made),
        }
    }
}

/// Around each change: one of the nodes is told nothing, or starts again with what was.
fn old_files(draw: &mut Stream, options: &Options, made: &mut Vec<(u64, Fault)>) {
    let changes = made.iter().filter(|(_, fault)| matches!(fault, Fault::Change { .. }));
    let changes: Vec<u64> = changes.map(|(at_ns, _)| *at_ns).collect();
    for change_ns in changes {
        let node = draw.range(0, options.nodes as u64 - 1) as usize;
        let ms = draw.pick(&[700, 3_000, 9_000, 25_000]);
        if draw.chance(40) {
            let at_ns = change_ns.saturating_sub(draw.range(0, 3_000) * MS);
            made.push((at_ns, Fault::MissFiles { node, ms }));
            continue;
        }
        let at_ns = change_ns + draw.range(100, 35_000) * MS;
        let for_ms = draw.pick(&[50, 700, 5_000]);
        let kill = Fault::Kill { node, for_ms, how: Death::Process };
        made.push((
            at_ns,
            Fault::OldFiles { node, back: draw.range(1, 3) as usize, ms: ms + for_ms },
        ));
        made.push((at_ns, kill));
    }
}
