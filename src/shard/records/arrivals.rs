//! Records that began while somebody goes through all records: he has passed their slots already.

use crate::base::ids::Slot;

/// Most arrivals that are kept. A walk that misses more begins again.
const ARRIVALS_MAX: usize = 16_384;

/// The slots of records that began, as long as somebody wants to know.
#[derive(Debug, Default)]
pub struct Arrivals {
    is_watched: bool,
    has_more: bool,
    slots: Vec<Slot>,
}

impl Arrivals {
    /// Says whether arrivals are wanted from now on.
    pub fn watch(&mut self, is_watched: bool) {
        if self.is_watched != is_watched {
            *self = Self { is_watched, ..Self::default() };
        }
    }

    /// Takes note of a record that has just been put into its slot.
    #[inline]
    pub(super) fn note(&mut self, slot: Slot) {
        if self.is_watched {
            self.keep(slot);
        }
    }

    #[cold]
    fn keep(&mut self, slot: Slot) {
        if self.slots.len() < ARRIVALS_MAX {
            self.slots.push(slot);
        } else {
            self.has_more = true;
        }
    }

    /// The records that began since the last call. `Err`: they were too many.
    pub fn take(&mut self) -> Result<Vec<Slot>, ()> {
        let slots = std::mem::take(&mut self.slots);
        if std::mem::take(&mut self.has_more) { Err(()) } else { Ok(slots) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_kept_while_they_are_wanted() {
        let mut arrivals = Arrivals::default();
        arrivals.note(Slot(1));
        assert_eq!(arrivals.take(), Ok(vec![]));
        arrivals.watch(true);
        (2..4).for_each(|slot| arrivals.note(Slot(slot)));
        arrivals.watch(true);
        assert_eq!(arrivals.take(), Ok(vec![Slot(2), Slot(3)]));
        (0..ARRIVALS_MAX as u32).for_each(|slot| arrivals.note(Slot(slot)));
        assert_eq!(arrivals.take().map(|slots| slots.len()), Ok(ARRIVALS_MAX));
        (0..=ARRIVALS_MAX as u32).for_each(|slot| arrivals.note(Slot(slot)));
        assert_eq!(arrivals.take(), Err(()));
        arrivals.note(Slot(9));
        assert_eq!(arrivals.take(), Ok(vec![Slot(9)]));
        arrivals.note(Slot(9));
        arrivals.watch(false);
        assert_eq!(arrivals.take(), Ok(vec![]));
    }
}
