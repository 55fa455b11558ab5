//! A machine: its devices and the admission to them, which the engines of several models share.

use std::sync::{Arc, Mutex, PoisonError};

use super::config::Config;
use super::device::Device;
use super::load::Load;
use super::model::ModelId;
use crate::share::Tenants;

/// Cheap to clone: clones are one. See [`super::Engine::start_on`].
#[derive(Clone)]
pub struct Machine(Arc<Shared>);

struct Shared {
    config: Config,
    load: Load,
    devices: Mutex<Vec<Arc<Device>>>,
}

impl Machine {
    pub fn new(config: &Config) -> Self {
        let shared = Shared { config: config.clone(), load: Load::new(config), devices: Mutex::default() };
        Self(Arc::new(shared))
    }

    /// Shares it between the organisations that `tenants` counts; by default it serves one.
    pub fn share_between(&self, tenants: Tenants) {
        self.0.load.share_between(tenants);
    }

    pub(super) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(super) fn load(&self, model: ModelId) -> Arc<Load> {
        Arc::new(self.0.load.of(model))
    }

    /// The first `count` devices.
    pub(super) fn devices(&self, count: usize) -> Vec<Arc<Device>> {
        let mut devices = self.0.devices.lock().unwrap_or_else(PoisonError::into_inner);
        while devices.len() < count {
            devices.push(Arc::default());
        }
        devices[..count].to_vec()
    }
}
