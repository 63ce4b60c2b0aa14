//! The figures and problems of one round over a cluster.

/// The figures and problems of one round, in the order in which they were found.
#[derive(Debug, Default)]
pub struct Round {
    /// Name, unit and value of each figure.
    pub values: Vec<(String, &'static str, f64)>,
    /// What was lost, doubled, early or refused, one text each.
    pub problems: Vec<String>,
}

impl Round {
    /// Adds one figure.
    pub fn add(&mut self, name: impl Into<String>, unit: &'static str, value: f64) {
        self.values.push((name.into(), unit, value));
    }
}
