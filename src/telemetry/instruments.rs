//! Counters, gauges and histograms: what a metric is made of.

use metrics::{Label, Unit};

pub type Labels<'a> = &'a [(&'static str, &'static str)];

/// A counter. Handles made before [`start`](super::metrics::start) never count.
pub struct Counter(pub(super) About);
/// A value that rises and falls. Handles made before [`start`](super::metrics::start) never count.
pub struct Gauge(pub(super) About);
/// A distribution in buckets. Handles made before [`start`](super::metrics::start) never count.
pub struct Histogram(pub(super) About, pub(super) &'static [f64]);

pub(super) struct About {
    pub name: &'static str,
    pub unit: Unit,
    pub help: &'static str,
}

pub(super) const fn counter(name: &'static str, unit: Unit, help: &'static str) -> Counter {
    Counter(About { name, unit, help })
}

pub(super) const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> Gauge {
    Gauge(About { name, unit, help })
}

pub(super) const fn seconds(name: &'static str, help: &'static str, buckets: &'static [f64]) -> Histogram {
    Histogram(About { name, unit: Unit::Seconds, help }, buckets)
}

impl Counter {
    pub fn with(&self, with: Labels) -> metrics::Counter {
        metrics::counter!(self.0.name, labels(with))
    }

    /// With labels that are made at run time.
    pub fn with_owned(&self, with: Vec<Label>) -> metrics::Counter {
        metrics::counter!(self.0.name, with)
    }
}

impl Gauge {
    pub fn with(&self, with: Labels) -> metrics::Gauge {
        metrics::gauge!(self.0.name, labels(with))
    }

    /// With labels that are made at run time.
    pub fn with_owned(&self, with: Vec<Label>) -> metrics::Gauge {
        metrics::gauge!(self.0.name, with)
    }
}

impl Histogram {
    pub fn with(&self, with: Labels) -> metrics::Histogram {
        metrics::histogram!(self.0.name, labels(with))
    }

    /// With labels that are made at run time.
    pub fn with_owned(&self, with: Vec<Label>) -> metrics::Histogram {
        metrics::histogram!(self.0.name, with)
    }
}

fn labels(labels: Labels) -> Vec<Label> {
    labels.iter().map(|&(name, value)| Label::from_static_parts(name, value)).collect()
}
