//! The time that a step takes, learned from its size, and how many windows of each flow fit into one.

/// Weight that the past keeps with each measurement.
pub const MEMORY: f64 = 0.99;
/// With fewer steps, nothing is known.
const MIN_STEPS: f64 = 8.0;
/// The variance of the sizes of steps that is needed to estimate the slope.
const MIN_SPREAD: f64 = 0.5;

/// The time of a step, `fixed + each · windows`: least squares over steps, newer ones weighing more.
#[derive(Default)]
pub struct StepCost {
    count: f64,
    windows: f64,
    squared: f64,
    seconds: f64,
    product: f64,
}

impl StepCost {
    pub fn learn(&mut self, windows: f64, seconds: f64) {
        self.count = self.count * MEMORY + 1.0;
        self.windows = self.windows * MEMORY + windows;
        self.squared = self.squared * MEMORY + windows * windows;
        self.seconds = self.seconds * MEMORY + seconds;
        self.product = self.product * MEMORY + windows * seconds;
    }

    /// The fixed part, and the part for each window, in seconds. The fixed part is 0 until steps of several sizes are known.
    fn line(&self) -> Option<(f64, f64)> {
        if self.count < MIN_STEPS || self.seconds <= 0.0 {
            return None;
        }
        let (mean, mean_seconds) = (self.windows / self.count, self.seconds / self.count);
        let variance = self.squared / self.count - mean * mean;
        let each = if variance < MIN_SPREAD {
            mean_seconds / mean
        } else {
            ((self.product / self.count - mean * mean_seconds) / variance).clamp(0.0, mean_seconds / mean)
        };
        Some((mean_seconds - each * mean, each))
    }

    /// How many windows a step may hold without making a flow of `smallest` windows wait longer than if `flows` of
    /// that size took turns; `None` if there is no bound.
    pub fn windows_within(&self, flows: usize, smallest: usize) -> Option<usize> {
        let (fixed, each) = self.line()?;
        let limit = flows as f64 * (fixed + each * smallest as f64);
        (each > 0.0).then(|| (((limit - fixed) / each) as usize).max(flows))
    }
}

/// The most windows that one flow gets in a step of `most`, if flows of these `sizes` share it so that the smallest get
/// all that they ask for (max-min fairness); at least 1.
pub fn level(mut sizes: Vec<usize>, most: usize) -> usize {
    sizes.sort_unstable();
    let mut left = most;
    for (index, size) in sizes.iter().enumerate() {
        let quota = left / (sizes.len() - index);
        if *size > quota {
            return quota.max(1);
        }
        left -= size;
    }
    sizes.last().copied().unwrap_or(1)
}
