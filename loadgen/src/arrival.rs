//! When requests should be sent.
//!
//! In an open loop the schedule goes on whatever the server does, and latency counts from the
//! intended time. So at 1 000 requests/s a stall of one second shows as a thousand late requests,
//! not as one.

use std::str::FromStr;

use crate::random::Random;

const SECOND_NS: u128 = 1_000_000_000;

/// How fast the client sends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rate {
    /// Closed loop: each connection always has its full pipeline in flight.
    Max,
    /// Open loop: so many requests per second on all connections together.
    PerSecond(f64),
}

impl FromStr for Rate {
    type Err = String;

    /// Reads `max`, or a number above 0 with an optional `k` or `M`: `2000`, `20k`, `1.5M`.
    fn from_str(text: &str) -> Result<Rate, String> {
        if text == "max" {
            return Ok(Rate::Max);
        }
        let (digits, factor) = match text.as_bytes().last() {
            Some(b'k') => (&text[..text.len() - 1], 1e3),
            Some(b'M') => (&text[..text.len() - 1], 1e6),
            _ => (text, 1.0),
        };
        match digits.parse::<f64>() {
            Ok(number) if number > 0.0 && number * factor <= 1e9 => {
                Ok(Rate::PerSecond(number * factor))
            }
            _ => Err(format!("expected `max` or a rate like 2000, 20k or 1.5M, found `{text}`")),
        }
    }
}

/// The intended send times of an open loop.
#[derive(Debug)]
pub struct Schedule {
    start_ns: u64,
    per_second: f64,
    index: u64,
    next_ns: u64,
    /// `Some`: Poisson arrivals; `None`: equal gaps.
    random: Option<Random>,
    /// Nanoseconds since the start of the Poisson process. The fraction is kept, so that rounding
    /// errors do not add up.
    elapsed_ns: f64,
    /// Arrivals are gathered at multiples of so many nanoseconds; 1 gathers none.
    burst_ns: u64,
}

impl Schedule {
    /// A schedule from `start_ns` on. `poisson_seed` draws exponential gaps instead of equal gaps.
    pub fn new(start_ns: u64, per_second: f64, poisson_seed: Option<u64>) -> Schedule {
        let random = poisson_seed.map(Random::new);
        Schedule {
            start_ns,
            per_second,
            index: 0,
            next_ns: start_ns,
            random,
            elapsed_ns: 0.0,
            burst_ns: 1,
        }
    }

    /// Gathers arrivals in bursts every `burst_ns`. The intended times themselves move to the next
    /// burst, so that one wake-up of the client serves several requests and none of them counts as
    /// late.
    pub fn in_bursts(self, burst_ns: u64) -> Schedule {
        Schedule { burst_ns: burst_ns.max(1), ..self }
    }

    /// The intended time of the next request, in nanoseconds of [`crate::clock`].
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Goes on to the following request, after the next request was sent or given up.
    pub fn advance(&mut self) {
        self.index += 1;
        let offset_ns = match &mut self.random {
            Some(random) => {
                self.elapsed_ns += random.exponential(1e9 / self.per_second);
                self.elapsed_ns as u64
            }
            None => {
                // At a whole rate the calculation uses whole numbers, so that the millionth request
                // is as exact as the first.
                let whole = self.per_second as u128;
                if whole as f64 == self.per_second {
                    (u128::from(self.index) * SECOND_NS / whole) as u64
                } else {
                    (self.index as f64 * 1e9 / self.per_second) as u64
                }
            }
        };
        self.next_ns = self.start_ns + offset_ns.next_multiple_of(self.burst_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_as_people_write_them() {
        assert_eq!("max".parse(), Ok(Rate::Max));
        assert_eq!("20k".parse(), Ok(Rate::PerSecond(20_000.0)));
        assert_eq!("1.5M".parse(), Ok(Rate::PerSecond(1_500_000.0)));
        for bad in ["", "k", "0", "-1", "fast", "NaN", "inf", "9999M"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn equal_gaps_do_not_drift() {
        let mut schedule = Schedule::new(1_000, 3.0, None);
        let times: Vec<u64> = (0..7)
            .map(|_| {
                let time = schedule.next_ns();
                schedule.advance();
                time - 1_000
            })
            .collect();
        assert_eq!(
            times,
            [
                0,
                333_333_333,
                666_666_666,
                1_000_000_000,
                1_333_333_333,
                1_666_666_666,
                2_000_000_000
            ]
        );
    }

    #[test]
    fn bursts_gather_arrivals_and_keep_the_rate() {
        let mut schedule = Schedule::new(5, 10_000.0, None).in_bursts(250_000);
        let times: Vec<u64> = (0..10_001)
            .map(|_| {
                let time = schedule.next_ns();
                schedule.advance();
                time - 5
            })
            .collect();
        assert_eq!(times[..5], [0, 250_000, 250_000, 500_000, 500_000]);
        assert_eq!(times[10_000], 1_000_000_000);
    }

    #[test]
    fn poisson_keeps_the_rate_and_the_seed() {
        let run = |seed| {
            let mut schedule = Schedule::new(0, 1000.0, Some(seed));
            (0..50_000).for_each(|_| schedule.advance());
            schedule.next_ns()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        // 50 s, with a standard deviation of sqrt(50 000) ms = 0.22 s.
        assert!((49_000_000_000..51_000_000_000).contains(&run(3)), "{}", run(3));
    }
}
