//! Costs for word times on the device: `cross_attention` keeps the scores of the alignment heads while tokens are
//! chosen, and three kernels make costs of them in order with the steps, so that nothing runs twice and the engine's
//! thread does not wait.

#[cfg(test)]
use tch::Tensor;

use super::Decoder;
use super::kept::REQUESTS;
use super::network::address;
use crate::cuda::{Alignment, Argument, DELIVERIES, Delivery, KEPT_ROWS, Kernel, Stage};
use crate::engine::SlotId;
use crate::models::Error;

/// Columns of a block of `alignment_columns`, and of `alignment_costs`.
const COLUMNS: usize = 128;
const COST_COLUMNS: usize = 256;

/// Rows whose costs are wanted.
pub struct CostsRequest {
    pub slot: SlotId,
    /// For each row the position in the slot's text cache whose query is meant, of an attempt that was decoded there
    /// last. At least one, and at most [`KEPT_ROWS`] apart.
    pub text_positions: Vec<usize>,
    /// Audio positions that are no padding.
    pub positions: usize,
}

/// Costs (rows, positions) on their way to the host. Any thread may wait for them.
pub struct PendingCosts {
    delivery: Box<dyn Delivery>,
    pub positions: usize,
}

impl PendingCosts {
    /// # Errors
    /// A failure on the device meanwhile.
    pub fn wait(self) -> Result<Vec<f32>, Error> {
        Ok(self.delivery.wait()?)
    }
}

impl Decoder {
    /// Whether [`Decoder::alignment_costs`] can serve `text_positions`.
    pub fn has_scores(&self, text_positions: &[usize]) -> bool {
        let first = text_positions.iter().min();
        let last = text_positions.iter().max();
        let is_near = first.zip(last).is_some_and(|(first, last)| last - first < KEPT_ROWS);
        self.network.kept.is_some() && is_near && text_positions.len() <= KEPT_ROWS
    }

    /// Enqueues the costs of `requests`, each of which [`Decoder::has_scores`] accepts. The slots may be used again
    /// when this returns, since later work on them is enqueued behind it.
    ///
    /// # Errors
    /// [`Error::BadWeights`] for a request that cannot be served, or a failed device.
    pub fn alignment_costs(&mut self, requests: &[CostsRequest]) -> Result<Vec<PendingCosts>, Error> {
        let mut pending = Vec::with_capacity(requests.len());
        for requests in requests.chunks(REQUESTS) {
            pending.extend(self.launch_costs(requests)?);
        }
        Ok(pending)
    }

    /// Loads the kernels of [`Decoder::alignment_costs`], and allocates the memory that the costs of as many windows as
    /// there are slots are copied to: both would hold up the device later.
    pub(super) fn warm_costs(&mut self) -> Result<(), Error> {
        if self.has_scores(&[0]) {
            let one = |_| CostsRequest { slot: SlotId(0), text_positions: vec![0], positions: 1 };
            let windows = self.network.slots.clamp(REQUESTS, DELIVERIES);
            drop(self.alignment_costs(&(0..windows).map(one).collect::<Vec<_>>())?);
        }
        Ok(())
    }

    /// Kept scores of a slot: (alignment heads, rows, audio positions), f32, on the CPU.
    #[cfg(test)]
    pub fn kept_scores(&mut self, slot: SlotId, text_positions: &[usize]) -> Result<Tensor, Error> {
        let Some(kept) = &self.network.kept else { return Err(Error::BadWeights("none are kept".into())) };
        let rows: Vec<i64> = text_positions.iter().map(|position| (position % KEPT_ROWS) as i64).collect();
        self.device.before_libtorch()?;
        let rows = Tensor::from_slice(&rows).f_to_device(kept.scores.device())?;
        let scores = kept.scores.f_get(slot.0 as i64)?.f_index_select(1, &rows)?;
        Ok(scores.f_to_device(tch::Device::Cpu)?)
    }

    fn launch_costs(&mut self, requests: &[CostsRequest]) -> Result<Vec<PendingCosts>, Error> {
        let is_servable = requests.iter().all(|request| self.has_scores(&request.text_positions));
        let Some(kept) = self.network.kept.as_ref().filter(|_| is_servable) else {
            return Err(Error::BadWeights("no scores of alignment heads are kept".into()));
        };
        let mut bytes = Vec::with_capacity(kept.requests.numel());
        let (mut placed, mut first, mut costs) = (Vec::with_capacity(requests.len()), 0, 0);
        for request in requests {
            let alignment = Alignment {
                slot: self.slot(request.slot)?,
                positions: request.positions.clamp(1, kept.audio_positions),
                rows: request.text_positions.len(),
                first,
                costs,
            };
            alignment.write(&mut bytes);
            first += alignment.rows;
            costs += alignment.rows * alignment.positions;
            placed.push(alignment);
        }
        bytes.resize(REQUESTS * Alignment::BYTES, 0);
        for position in requests.iter().flat_map(|request| &request.text_positions) {
            bytes.extend((*position as i32).to_ne_bytes());
        }
        // SAFETY: contiguous tensors of the network, which the decoder drops after its device, of the sizes and types
        // that the kernels take them for: of as many requests and rows as a launch has at most.
        let [at, text_positions, scores, softmax, columns, costs] = unsafe {
            let positions = kept.requests.f_narrow(0, (REQUESTS * Alignment::BYTES) as i64, 4)?;
            [&kept.requests, &positions, &kept.scores, &kept.softmax, &kept.columns, &kept.costs]
                .map(|tensor| address(tensor))
        };
        let most = |of: fn(&Alignment) -> usize| placed.iter().map(of).max().unwrap_or(0);
        let (rows, positions) = (most(|one| one.rows), most(|one| one.positions));
        let (heads, count) = (kept.heads, placed.len());
        self.device.stage_begins(Stage::Alignment)?;
        self.device.upload(&bytes, at)?;
        let common: [Argument; 4] =
            [at.into(), text_positions.into(), scores.into(), kept.audio_positions.into()];
        let arguments = [&common[..], &[softmax.into()]].concat();
        self.device.launch(Kernel::AlignmentRows, [rows, heads, count], &arguments)?;
        let arguments = [&common[..], &[softmax.into(), columns.into()]].concat();
        let grid = [positions.div_ceil(COLUMNS), heads, count];
        self.device.launch(Kernel::AlignmentColumns, grid, &arguments)?;
        let results: [Argument; 4] = [softmax.into(), columns.into(), heads.into(), costs.into()];
        let arguments = [&common[..], &results].concat();
        let grid = [positions.div_ceil(COST_COLUMNS), rows, count];
        self.device.launch(Kernel::AlignmentCosts, grid, &arguments)?;
        let mut pending = Vec::with_capacity(count);
        for Alignment { rows, positions, costs, .. } in placed {
            let part = kept.costs.f_view([-1])?.f_narrow(0, costs as i64, (rows * positions) as i64)?;
            // SAFETY: as many contiguous f32 numbers as are copied, of a tensor as above.
            let from = unsafe { address(&part) };
            let delivery = self.device.deliver(from, rows * positions)?;
            pending.push(PendingCosts { delivery, positions });
        }
        self.device.stage_ends()?;
        Ok(pending)
    }
}
