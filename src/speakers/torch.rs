//! Both networks in libtorch's operations: for a GPU. The hand-written ones are their twins on the processor.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tch::{Device, Kind, TchError, Tensor};

use super::error::Error;
use super::network::{CHANNELS, LogProbabilities, MEL_BINS, Networks, WINDOW_FRAMES, WINDOW_SAMPLES};
use super::weights::Weights;
use embedding::Embedding;
use place::{Place, failed};
use segmentation::Segmentation;

mod embedding;
mod place;
mod segmentation;

/// Windows, pieces or statistics that go through a network together; activations of pieces of 6 s take 50 MB each.
const BATCH: usize = 32;

/// The networks on one device.
pub struct Torch {
    place: Place,
    /// One caller computes at a time: a tensor may move to another thread, but isn't shared between them.
    layers: Mutex<(Segmentation, Embedding)>,
}

impl Torch {
    /// Reads the weights of both networks from `folder`. `kind` is the format of the products; a batch's sums are in
    /// f32 in any.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Malformed`], [`Error::Unexpected`]; [`Error::Failed`] if the device has no
    /// memory for them.
    pub fn load(folder: &Path, device: Device, kind: Kind) -> Result<Self, Error> {
        let place = Place { device, kind };
        let read = |file: &str| Weights::read(&folder.join(file));
        tch::no_grad(|| {
            let segmentation = Segmentation::load(&read("segmentation.safetensors")?, place)?;
            let embedding = Embedding::load(&read("embedding.safetensors")?, place)?;
            Ok(Self { place, layers: Mutex::new((segmentation, embedding)) })
        })
    }
}

impl Networks for Torch {
    fn segment(&self, windows: &[Vec<f32>]) -> Result<Vec<Vec<LogProbabilities>>, Error> {
        let apply = |x: &Tensor| self.layers().0.apply(x);
        let found = self.in_batches(windows, [1, WINDOW_SAMPLES], apply)?;
        Ok(found.iter().map(|values| values.as_chunks().0[..WINDOW_FRAMES].to_vec()).collect())
    }

    /// Pieces of one length go through together.
    fn trunk(&self, pieces: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, Error> {
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        order.sort_by_key(|&index| pieces[index].len());
        let mut features = vec![Vec::new(); pieces.len()];
        for alike in order.chunk_by(|&a, &b| pieces[a].len() == pieces[b].len()) {
            let alike_pieces: Vec<&Vec<f32>> = alike.iter().map(|&index| &pieces[index]).collect();
            let values = alike_pieces[0].len();
            if !values.is_multiple_of(MEL_BINS) {
                return Err(Error::Failed);
            }
            if values == 0 {
                continue;
            }
            let apply = |x: &Tensor| self.layers().1.trunk(x);
            let found = self.in_batches(&alike_pieces, [values / MEL_BINS, MEL_BINS], apply)?;
            alike.iter().zip(found).for_each(|(&index, found)| features[index] = found);
        }
        Ok(features)
    }

    fn embed(&self, statistics: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, Error> {
        self.in_batches(statistics, [1, 2 * CHANNELS], |x| self.layers().1.embed(x))
    }
}

impl Torch {
    fn layers(&self) -> MutexGuard<'_, (Segmentation, Embedding)> {
        // The weights are never written to, so that they are whole even after a panic.
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes rows of one shape; the result of each, flat.
    fn in_batches(
        &self,
        rows: &[impl AsRef<[f32]>],
        shape: [usize; 2],
        apply: impl Fn(&Tensor) -> Result<Tensor, TchError>,
    ) -> Result<Vec<Vec<f32>>, Error> {
        if rows.iter().any(|row| row.as_ref().len() != shape[0] * shape[1]) {
            return Err(Error::Failed);
        }
        let mut found = Vec::with_capacity(rows.len());
        for rows in rows.chunks(BATCH) {
            let values: Vec<f32> = rows.iter().flat_map(|row| row.as_ref()).copied().collect();
            let size = [rows.len() as i64, shape[0] as i64, shape[1] as i64];
            let result = tch::no_grad(|| -> Result<Vec<f32>, TchError> {
                let x = Tensor::f_from_slice(&values)?.f_reshape(size)?.f_to_device(self.place.device)?;
                let y = apply(&x)?.f_to_kind(Kind::Float)?.f_to_device(Device::Cpu)?.f_contiguous()?;
                let mut values = vec![0.0; y.numel()];
                y.f_copy_data(&mut values, y.numel())?;
                Ok(values)
            });
            let result = result.map_err(failed)?;
            found.extend(result.chunks_exact(result.len() / rows.len()).map(<[f32]>::to_vec));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter_bank::filter_banks;
    use super::super::filter_bank::tests::sound;
    use super::*;
    use crate::cpu::{Level, Threads};

    fn folder() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.verbatim/models/speakers"))
    }

    fn torch() -> Torch {
        Torch::load(folder(), Device::Cpu, Kind::Float).expect("`./setup` has put the weights there")
    }

    fn threads() -> Threads {
        Threads::new(1)
    }

    #[test]
    fn segmentation_is_that_of_the_processor() {
        let mut window = sound().repeat(5);
        window.resize(WINDOW_SAMPLES, 0.0);
        let windows = [window, vec![0.0; WINDOW_SAMPLES]];
        let twin = super::super::Segmentation::load(folder(), Level::BASELINE).expect("the same weights");
        let expected = twin.segment(&threads(), &windows).expect("whole windows");
        let got = torch().segment(&windows).expect("whole windows");
        let differ = |window: usize, of: fn(f32) -> f32| {
            let values = got[window].as_flattened().iter().zip(expected[window].as_flattened());
            values.map(|(got, expected)| (of(*got) - of(*expected)).abs()).fold(0.0, f32::max)
        };
        assert!(differ(0, |log| log) < 1e-3, "{}", differ(0, |log| log));
        // In silence the norms divide by next to nothing: each enlarges rounding errors 300 times.
        assert!(differ(1, f32::exp) < 1e-2, "{}", differ(1, f32::exp));
    }

    #[test]
    fn embeddings_are_those_of_the_processor() {
        let banks = filter_banks(&sound());
        let piece =
            |frames: usize| banks[..frames * MEL_BINS].iter().map(|value| value + 8.0).collect::<Vec<_>>();
        let pieces = [234, 15, 0, 234, 101].map(piece);
        let twin = super::super::Embedding::load(folder(), Level::BASELINE).expect("the same weights");
        let torch = torch();
        let expected = twin.trunk(&threads(), &pieces).expect("whole frames");
        let got = torch.trunk(&pieces).expect("whole frames");
        for (got, expected) in got.iter().zip(&expected) {
            assert_eq!(got.len(), expected.len());
            assert!(got.iter().zip(expected).all(|(got, expected)| (got - expected).abs() < 1e-3));
        }
        let statistics: Vec<Vec<f32>> =
            expected.iter().filter(|x| x.len() > 2048).map(|x| x[..1024].to_vec()).collect();
        let (expected, got) = (twin.embed(&statistics), torch.embed(&statistics));
        for (got, expected) in got.expect("whole").iter().zip(&expected.expect("whole")) {
            assert!(got.iter().zip(expected).all(|(got, expected)| (got - expected).abs() < 1e-4));
        }
    }

    #[test]
    fn rows_of_another_length_are_refused() {
        let torch = torch();
        assert!(matches!(torch.segment(&[vec![0.0; 5]]), Err(Error::Failed)));
        assert!(matches!(torch.trunk(&[vec![0.0; MEL_BINS + 1]]), Err(Error::Failed)));
        assert!(matches!(torch.embed(&[vec![0.0; 5]]), Err(Error::Failed)));
        assert!(torch.trunk(&[]).is_ok_and(|features| features.is_empty()));
    }
}
