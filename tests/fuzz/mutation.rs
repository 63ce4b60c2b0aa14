//! Inputs for the targets: seeds, changed at random. The same seed number makes the same inputs on
//! every machine.

use kit::random::Random;

/// Longest input made: beyond it a change only shortens.
const INPUT_BYTES_MAX: usize = 2_048;
/// Changes to one input at most.
const CHANGES_MAX: usize = 6;
/// Accepted inputs that are kept to be changed further, beside the seeds.
const KEPT_MAX: usize = 64;
/// Bytes that mean something to one parser or another, or lie at an edge.
const EDGE_BYTES: &[u8] = b"\0\t\n\r \"#%&'*+,-./019:;=?@AFZ[\\]_afz{|}~\x7f\x80\xff";

/// Makes the inputs of one target.
pub struct Mutator {
    random: Random,
    seeds: Vec<Vec<u8>>,
    kept: Vec<Vec<u8>>,
    tokens: &'static [&'static [u8]],
}

impl Mutator {
    /// Begins with `seeds`; `tokens` are words of the format, put in whole.
    pub fn new(number: u64, seeds: Vec<Vec<u8>>, tokens: &'static [&'static [u8]]) -> Self {
        assert!(!seeds.is_empty() && !tokens.is_empty(), "there is something to change");
        Self { random: Random::new(number), seeds, kept: Vec::new(), tokens }
    }

    /// The next input.
    pub fn input(&mut self) -> Vec<u8> {
        let mut input = self.base();
        for _ in 0..=self.random.below(CHANGES_MAX) {
            self.change(&mut input);
            input.truncate(INPUT_BYTES_MAX);
        }
        input
    }

    /// Keeps an input that was accepted, so that changes add up.
    pub fn keep(&mut self, input: Vec<u8>) {
        if self.kept.len() < KEPT_MAX {
            self.kept.push(input);
        } else {
            let place = self.random.below(KEPT_MAX);
            self.kept[place] = input;
        }
    }

    fn base(&mut self) -> Vec<u8> {
        let from_kept = !self.kept.is_empty() && self.random.below(2) == 0;
        self.random.of(if from_kept { &self.kept } else { &self.seeds }).clone()
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.random.below(input.len() + 1);
        let run = 1 + self.random.below(8);
        let behind = (at + run).min(input.len());
        match self.random.below(9) {
            0 if at < input.len() => input[at] ^= 1 << self.random.below(8),
            1 if at < input.len() => input[at] = *self.random.of(EDGE_BYTES),
            2 => input.insert(at, *self.random.of(EDGE_BYTES)),
            3 => drop(input.drain(at..behind)),
            4 => drop(input.splice(at..at, self.random.of(self.tokens).iter().copied())),
            5 => drop(input.splice(at..behind, self.random.of(self.tokens).iter().copied())),
            6 => {
                let piece = input[at..behind].repeat(1 + self.random.below(40));
                input.splice(at..at, piece);
            }
            7 => {
                let other = self.base();
                let from = self.random.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ if self.random.below(16) == 0 => input.truncate(at),
            _ => {
                let byte = self.random.next() as u8;
                input.insert(at, byte);
            }
        }
    }
}
