//! How many jobs run on a node at a time, over all of its cores. Each place is one atomic word, so
//! no core waits for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::ids::mix;

/// Jobs that run on a node at a time.
pub const JOBS_RUNNING_MAX: usize = 16;
/// Jobs of one token's name among them; those of operators without a token count together.
pub const JOBS_OF_ONE_MAX: usize = 4;

/// The places for jobs that run. 0: nobody has the place. Else a digest of the name whose job has.
#[derive(Debug, Default)]
pub struct JobPlaces([AtomicU64; JOBS_RUNNING_MAX]);

/// Why there is no place for another job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoJobPlace {
    /// As many jobs run as may on a node.
    OnNode,
    /// As many jobs of this name run as may.
    OfName,
}

/// A place that a job has, until this is dropped.
#[derive(Debug)]
pub struct JobPlace {
    places: Arc<JobPlaces>,
    at: usize,
}

impl JobPlaces {
    /// Takes a place for a job of a name.
    pub fn take(self: &Arc<Self>, name: &str) -> Result<JobPlace, NoJobPlace> {
        let digest = digest(name);
        if self.taken_by(digest) >= JOBS_OF_ONE_MAX {
            return Err(NoJobPlace::OfName);
        }
        let is_taken =
            |place: &AtomicU64| place.compare_exchange(0, digest, SeqCst, SeqCst).is_ok();
        let at = self.0.iter().position(is_taken).ok_or(NoJobPlace::OnNode)?;
        let place = JobPlace { places: Arc::clone(self), at };
        // Two cores may have looked at the same time.
        if self.taken_by(digest) > JOBS_OF_ONE_MAX { Err(NoJobPlace::OfName) } else { Ok(place) }
    }

    fn taken_by(&self, digest: u64) -> usize {
        self.0.iter().filter(|place| place.load(SeqCst) == digest).count()
    }
}

impl Drop for JobPlace {
    fn drop(&mut self) {
        if let Some(place) = self.places.0.get(self.at) {
            place.store(0, SeqCst);
        }
    }
}

/// A digest of a name, never 0.
pub fn digest(name: &str) -> u64 {
    name.bytes().fold(1, |digest, byte| mix(digest ^ u64::from(byte))).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_few_places_and_a_node_some_more() {
        let places = Arc::new(JobPlaces::default());
        let mut taken: Vec<_> = (0..JOBS_OF_ONE_MAX).map(|_| places.take("a").unwrap()).collect();
        assert_eq!(places.take("a").unwrap_err(), NoJobPlace::OfName);
        for number in JOBS_OF_ONE_MAX..JOBS_RUNNING_MAX {
            taken.push(places.take(&format!("b{number}")).unwrap());
        }
        assert_eq!(places.take("c").unwrap_err(), NoJobPlace::OnNode);
        taken.remove(0);
        let again = places.take("a").unwrap();
        assert_eq!(places.take("a").unwrap_err(), NoJobPlace::OfName);
        drop((taken, again));
        assert!(places.take("").is_ok());
        assert_eq!(places.taken_by(0), JOBS_RUNNING_MAX, "none is taken any more");
    }
}
