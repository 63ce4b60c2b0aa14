//! What one round over a cluster found.

/// What one round found.
#[derive(Debug, Default)]
pub struct Round {
    /// Name, unit and value of each figure.
    pub values: Vec<(String, &'static str, f64)>,
    /// What was lost, doubled, early or refused.
    pub problems: Vec<String>,
}

impl Round {
    /// Takes one figure in.
    pub fn add(&mut self, name: impl Into<String>, unit: &'static str, value: f64) {
        self.values.push((name.into(), unit, value));
    }
}
