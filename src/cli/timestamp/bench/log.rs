//! Sums up logs of the original's benchmark, as the original's summing tool does, without that
//! tool's faults. That tool divides by zero where no failover was logged, and counts every line
//! that it does not know as a sample of nothing. Here such lines are skipped and counted. Means are
//! over lines, that is over clients and intervals, as in the original.

use std::io::BufRead;

use serde_json::{Value, json};

/// The text beside a value that went back. The original's benchmark ends with it.
const FATAL: &str = "Fatal error to get a lower timestamp";

/// The numbers of one kind that a log has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Numbers {
    pub count: u64,
    sum: f64,
    least: f64,
    most: f64,
}

impl Numbers {
    fn add(&mut self, number: f64) {
        self.least = if self.count == 0 { number } else { self.least.min(number) };
        self.most = if self.count == 0 { number } else { self.most.max(number) };
        self.count += 1;
        self.sum += number;
    }

    /// Returns the mean; `None` if there are no numbers.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    fn document(&self) -> Value {
        let some = (self.count > 0).then_some(());
        json!({
            "count": self.count, "mean": self.mean(), "least": some.map(|()| self.least),
            "most": some.map(|()| self.most),
        })
    }

    fn told(&self, unit: &str) -> String {
        match self.mean() {
            Some(mean) => format!(
                "{mean} (of {}, least {:.3}{unit}, most {:.3}{unit})",
                self.count, self.least, self.most
            ),
            None => "none".into(),
        }
    }
}

/// The totals of a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LogSummary {
    /// Seconds from the first error to the next answer, for each failover of each client.
    pub failover_s: Numbers,
    /// Calls per second of one client in one interval.
    pub qps: Numbers,
    /// Mean latency of one client in one interval.
    pub latency_ms: Numbers,
    /// How many values were not above the value before.
    pub breaches: u64,
    /// How many lines say nothing of all this.
    pub skipped: u64,
}

impl LogSummary {
    /// Reads a log to its end. Errors are those of the reader.
    pub(super) fn read(input: &mut impl BufRead) -> std::io::Result<Self> {
        let mut summary = Self::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            if input.read_until(b'\n', &mut line)? == 0 {
                return Ok(summary);
            }
            summary.add(&String::from_utf8_lossy(&line));
        }
    }

    fn add(&mut self, line: &str) {
        if line.contains(FATAL) {
            self.breaches += 1;
        } else if let Some(seconds) = number_after(line, "failover time is ") {
            self.failover_s.add(seconds);
        } else if let Some(qps) = number_after(line, "qps: ") {
            self.qps.add(qps);
            // An interval without a call has no latency.
            if let Some(ms) = number_after(line, "latency: ") {
                self.latency_ms.add(ms);
            }
        } else {
            self.skipped += 1;
        }
    }

    /// Returns the three lines of the original's tool, with more behind them, and the lines that
    /// the original's tool lacks.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "Average failover time: {}\nAverage qps: {}\nAverage latency: {}\n",
            self.failover_s.told(" s"),
            self.qps.told(""),
            self.latency_ms.told(" ms")
        );
        if self.breaches > 0 {
            text += &format!("Order violated: {} times\n", self.breaches);
        }
        text + &format!("Skipped lines: {}\n", self.skipped)
    }

    /// Returns the totals as JSON.
    pub(super) fn document(&self) -> Value {
        json!({
            "failover_s": self.failover_s.document(),
            "qps_per_client": self.qps.document(),
            "latency_ms": self.latency_ms.document(),
            "order_violations": self.breaches,
            "skipped_lines": self.skipped,
        })
    }
}

/// Returns the number that follows `label`: plain digits, as Java writes them, also with an
/// exponent.
fn number_after(line: &str, label: &str) -> Option<f64> {
    let (_, after) = line.split_once(label)?;
    let is_part = |c: char| c.is_ascii_digit() || ".+-E".contains(c);
    let end = after.find(|c| !is_part(c)).unwrap_or(after.len());
    let number: f64 = after[..end].parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> LogSummary {
        LogSummary::read(&mut text.as_bytes()).expect("memory")
    }

    const QPS: &str = "2014-03-11 15:39:19,123 INFO Total 10.003, in 10.003 seconds, qps: \
                       10043.38698390483, latency: 0.09955805064500717ms";
    const AFTER: &str = "After 2014-03-11 15:39:09, the total failover time is 3.05 seconds";

    #[test]
    fn lines_of_the_original_are_summed() {
        let summary = read(&format!("{QPS}\n{AFTER}\n{}\n", QPS.replace("10043", "30043")));
        assert_eq!(summary.failover_s.mean(), Some(3.05));
        assert_eq!(summary.qps.count, 2);
        assert!((summary.qps.mean().expect("two") - 20_043.387).abs() < 0.001);
        assert_eq!((summary.skipped, summary.breaches), (0, 0));
        let text = summary.text();
        assert!(text.starts_with("Average failover time: 3.05 (of 1, "), "{text}");
        assert!(text.contains("\nAverage latency: 0.0995"), "{text}");
    }

    #[test]
    fn what_broke_the_original_tool_does_not_break_this() {
        let empty = read("");
        assert_eq!(empty.text().lines().next(), Some("Average failover time: none"));
        assert_eq!(empty.document()["qps_per_client"]["mean"], Value::Null);
        let mixed = read(&format!(
            "starting\n\n{QPS}\nTotal 20, in 10 seconds, qps: 0.0, latency: NaNms\nqps: \n\
             After lunch\nqps: Infinity, latency: 1ms\nqps: 1.2E4, latency: 1.0E-1ms"
        ));
        assert_eq!((mixed.qps.count, mixed.latency_ms.count, mixed.skipped), (3, 2, 5));
        assert_eq!(mixed.qps.most, 12_000.0);
        let bytes = LogSummary::read(&mut &b"\xff\xfe\x00"[..]).expect("memory");
        assert_eq!(bytes.skipped, 1);
        let fatal = read("ERROR Fatal error to get a lower timestamp 3(expected > 4)\n");
        assert_eq!(fatal.breaches, 1);
        assert!(fatal.text().contains("Order violated: 1 times"));
    }
}
