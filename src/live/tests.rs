//! Who may open a stream while others are late.

use std::convert::Infallible;

use super::*;
use crate::engine::{Attempt, EncodeRequest, Hypothesis, SlotId, SpeechModel, StepOutcome, Timings};

/// Recognises nothing: here no audio comes.
struct Idle(ModelInfo);

impl SpeechModel for Idle {
    fn info(&self) -> &ModelInfo {
        &self.0
    }

    fn encode(&mut self, _: &[EncodeRequest]) -> Result<(), engine::Error> {
        Ok(())
    }

    fn begin(&mut self, _: &[Attempt]) -> Result<(), engine::Error> {
        Ok(())
    }

    fn step(&mut self, slots: &[SlotId]) -> Result<Vec<StepOutcome>, engine::Error> {
        Ok(vec![StepOutcome::Finished; slots.len()])
    }

    fn finish(&mut self, _: &[SlotId]) -> Result<Vec<Hypothesis>, engine::Error> {
        Err(engine::Error::ModelFailed("it hears nothing".into()))
    }

    fn release(&mut self, _: SlotId) {}
}

fn live(organisations: usize) -> Live {
    let info = ModelInfo {
        name: "idle".into(),
        uuid: uuid::Uuid::nil(),
        languages: vec!["en".into()],
        slots: 4,
        encode_batch: 4,
        device: "none".into(),
        prompt_tokens: Default::default(),
    };
    let load = move || Ok::<Box<dyn SpeechModel>, Infallible>(Box::new(Idle(info)));
    let engine = Engine::start(&engine::Config::default(), load).expect("it loads");
    let tenants = Tenants::default();
    tenants.set(organisations);
    Live::new(engine, None, Config::default(), tenants)
}

/// Windows of `tenant` waited for so many seconds, and took half a second then.
fn windows_waited(live: &Live, tenant: u64, seconds: f64) {
    let timings = Timings { queued: Duration::from_secs_f64(seconds), ..Timings::default() };
    let took = Duration::from_secs_f64(seconds + 0.5);
    for _ in 0..50 {
        live.shared.lag.measured(TenantId(tenant), took, Some(timings), Instant::now());
    }
}

#[test]
fn a_tenant_that_overloads_itself_closes_the_door_to_itself_alone() {
    let live = live(2);
    let admit = |tenant: u64| live.admit(TenantId(tenant)).map_err(|full| full.is_over_share);
    let streams = [admit(1).expect("room"), admit(1).expect("room")];
    windows_waited(&live, 1, 60.0);
    assert_eq!(admit(1).err(), Some(true));
    let other = admit(2).expect("it is not late");
    windows_waited(&live, 2, 0.1);
    let second = admit(2).expect("its windows come in time");
    drop((streams, other, second));
}

#[test]
fn where_too_many_tenants_are_late_the_server_is_full() {
    let live = live(200);
    let admit = |tenant: u64| live.admit(TenantId(tenant)).map_err(|full| full.is_over_share);
    let _stream = admit(1).expect("room");
    (1..100).for_each(|tenant| windows_waited(&live, tenant, 60.0));
    assert_eq!(admit(150).err(), Some(false));
}

#[test]
fn a_tenant_alone_is_late_for_itself_and_its_only_stream_is_let_in() {
    let live = live(1);
    let admit = || live.admit(TenantId(1)).map_err(|full| full.is_over_share);
    windows_waited(&live, 1, 60.0);
    let _only = admit().expect("however slow the engine is");
    assert_eq!(admit().err(), Some(false));
}
