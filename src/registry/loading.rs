//! Loads and unloads models, one at a time, so that each finds the memory that was counted for it.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::error::LoadError;
use super::shared::{Parts, Shared};
use super::table::State;
use crate::engine::Engine;
use crate::telemetry::metrics;

/// Loads the model `place`, which its row says already, and makes room for it if need be.
pub async fn load(shared: Arc<Shared>, place: usize) {
    let _one_at_a_time = shared.loading.lock().await;
    let name = shared.names.name(place).to_owned();
    let begun = Instant::now();
    let (loaded, outcome) = match attempt(&shared, place).await {
        Ok(engine) => (Ok(engine), "loaded"),
        Err(error @ (LoadError::NoRoom(_) | LoadError::TooLarge(_))) => (Err(error), "no_room"),
        Err(error @ LoadError::Failed(_)) => (Err(error), "failed"),
    };
    let label = || vec![metrics::model(&name)];
    let ended = vec![metrics::model(&name), metrics::label("outcome", outcome)];
    metrics::MODEL_LOADS.with_owned(ended).increment(1);
    let now = Instant::now();
    let mut models = shared.models();
    let state = match loaded {
        Ok(engine) => {
            let device = &engine.model().device;
            tracing::info!(model = name, device, seconds = begun.elapsed().as_secs_f64(), "model loaded");
            metrics::MODEL_LOADED.with_owned(label()).set(1.0);
            let default = &shared.default;
            models.infos[place] = Some(engine.model().clone());
            models.parts[place] = Some(Parts {
                transcriber: default.transcriber().with_engine(engine.clone()),
                live: default.live().with_engine(engine),
            });
            State::Loaded { uses: 0, idle_since: now }
        }
        Err(LoadError::NoRoom(reason)) => {
            tracing::error!(model = name, reason, never = false, "there is no memory for a model");
            State::NoRoom { at: now }
        }
        Err(LoadError::TooLarge(reason)) => {
            tracing::error!(model = name, reason, never = true, "there is no memory for a model");
            State::TooLarge
        }
        Err(LoadError::Failed(reason)) => {
            tracing::error!(model = name, reason, "a model cannot be loaded; the others are served");
            State::Failed { at: now }
        }
    };
    models.table.settle(place, state, now);
    drop(models);
    shared.changes.send_replace(());
}

/// Loads the model; unloads others that are idle, one by one, while there is no room for it.
async fn attempt(shared: &Arc<Shared>, place: usize) -> Result<Engine, LoadError> {
    let Some(loader) = &shared.loader else { return Err(LoadError::Failed("there is no loader".into())) };
    loop {
        let beside = shared.models().table.beside(place);
        let error = match loader.load(place, beside).await {
            Err(error @ LoadError::NoRoom(_)) => error,
            result => return result,
        };
        let idle = shared.models().table.makes_room(Instant::now());
        let Some(idle) = idle else { return Err(error) };
        unload(shared, idle, "room").await;
    }
}

/// Unloads `place` unless it is in use, and waits until its memory is free. The lock on loading is held.
async fn unload(shared: &Arc<Shared>, place: usize, reason: &'static str) {
    let parts = {
        let mut models = shared.models();
        if !models.table.unload(place) {
            return;
        }
        models.parts[place].take()
    };
    let Some(parts) = parts else { return };
    let name = shared.names.name(place);
    let ended = parts.transcriber.engine().ended();
    drop(parts);
    if let Err(error) = tokio::task::spawn_blocking(move || ended.wait()).await {
        tracing::error!(%error, "waiting for a model's end failed");
    }
    let label = || vec![metrics::model(name)];
    for gauge in [&metrics::MODEL_LOADED, &metrics::MODEL_SLOTS_ACTIVE, &metrics::MODEL_QUEUE_WINDOWS] {
        gauge.with_owned(label()).set(0.0);
    }
    let unloaded = vec![metrics::model(name), metrics::label("reason", reason)];
    metrics::MODEL_UNLOADS.with_owned(unloaded).increment(1);
    tracing::info!(model = name, reason, "model unloaded");
}

/// See [`super::Registry::unload_idle`].
pub async fn unload_idle(shared: &Arc<Shared>) {
    let Some(limit) = shared.config.idle else { return std::future::pending().await };
    let mut changes = shared.changes.subscribe();
    loop {
        let now = Instant::now();
        let (expired, again) = {
            let models = shared.models();
            (models.table.expired(limit, now), models.table.look_again(limit, now))
        };
        if let Some(place) = expired {
            let _one_at_a_time = shared.loading.lock().await;
            // It may have been used meanwhile.
            if shared.models().table.expired(limit, Instant::now()) == Some(place) {
                unload(shared, place, "idle").await;
            }
            continue;
        }
        let look_again = async {
            match again {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = look_again => {}
            // A model was loaded. The sender lives in `shared`.
            _ = changes.changed() => {}
        }
    }
}
