//! CAM++; see [`crate::speakers::embedding`]. Pieces of a batch have one length.

use tch::{Kind, TchError, Tensor};

use super::place::{Place, failed};
use crate::speakers::embedding::architecture::{
    BLOCKS, BOTTLENECK, FIRST, FIRST_KERNEL, FIRST_STRIDE, GROWTH, KERNEL, MASK_HIDDEN, NORM_EPSILON, PLANES,
    RESIDUAL_BLOCKS, SEGMENT,
};
use crate::speakers::error::Error;
use crate::speakers::network::{CHANNELS, EMBEDDING, MEL_BINS};
use crate::speakers::weights::Weights;

pub(super) struct Embedding {
    place: Place,
    first: Convolution,
    residual: Vec<(i64, [Convolution; 2], Option<Convolution>)>,
    last: Convolution,
    tdnn: Convolution,
    blocks: Vec<(Vec<Layer>, Norm, Convolution)>,
    dense: Convolution,
}

/// `x · scale + shift` for each channel.
struct Norm {
    scale: Tensor,
    shift: Tensor,
}

/// In one or two dimensions; the norm after it is folded in.
struct Convolution {
    weight: Tensor,
    bias: Option<Tensor>,
}

struct Layer {
    norm: Norm,
    bottleneck: Convolution,
    local: Convolution,
    masking: [Convolution; 2],
}

impl Norm {
    /// In f32.
    fn load(
        weights: &Weights,
        place: Place,
        name: &str,
        channels: usize,
        learnt: bool,
    ) -> Result<Self, Error> {
        let wide = Place { kind: Kind::Float, ..place };
        let part = |part: &str| wide.tensor(weights, &format!("{name}.{part}"), &[channels]);
        let (mean, variance) = (part("running_mean")?, part("running_var")?);
        let learnt = if learnt { Some((part("weight")?, part("bias")?)) } else { None };
        let fold = || -> Result<Self, TchError> {
            let mut scale = variance.f_add_scalar(NORM_EPSILON)?.f_rsqrt()?;
            let mut shift = mean.f_neg()?;
            if let Some((weight, _)) = &learnt {
                scale = scale.f_mul(weight)?;
            }
            shift = shift.f_mul(&scale)?;
            if let Some((_, bias)) = &learnt {
                shift = shift.f_add(bias)?;
            }
            Ok(Self { scale, shift })
        };
        fold().map_err(failed)
    }

    /// In the format of the products, for (pieces, channels, frames).
    fn in_place(self, place: Place) -> Result<Self, Error> {
        let part = |tensor: Tensor| tensor.f_unsqueeze(-1)?.f_to_kind(place.kind);
        let convert = || Ok(Self { scale: part(self.scale)?, shift: part(self.shift)? });
        convert().map_err(failed)
    }

    /// Negative results become zero.
    fn relu(&self, x: &Tensor) -> Result<Tensor, TchError> {
        self.shift.f_addcmul(x, &self.scale)?.f_relu_()
    }
}

impl Convolution {
    fn load(
        weights: &Weights,
        place: Place,
        name: &str,
        shape: &[usize],
        norm: Option<Norm>,
    ) -> Result<Self, Error> {
        let weight = weights.values(&format!("{name}.weight"), shape)?;
        let mut weight = place.put(&weight, shape, Kind::Float)?;
        let fold = || -> Result<Self, TchError> {
            let mut bias = None;
            if let Some(norm) = norm {
                let mut size = vec![1; shape.len()];
                size[0] = -1;
                weight = weight.f_mul(&norm.scale.f_reshape(&size)?)?;
                bias = Some(norm.shift.f_to_kind(place.kind)?);
            }
            Ok(Self { weight: weight.f_to_kind(place.kind)?, bias })
        };
        fold().map_err(failed)
    }

    /// A convolution in one dimension that has a bias of its own.
    fn load_with_bias(weights: &Weights, place: Place, name: &str, shape: &[usize]) -> Result<Self, Error> {
        let bias = place.tensor(weights, &format!("{name}.bias"), &shape[..1])?;
        Ok(Self { weight: place.tensor(weights, &format!("{name}.weight"), shape)?, bias: Some(bias) })
    }

    /// Over time.
    fn one(&self, x: &Tensor, stride: i64, padding: i64, dilation: i64) -> Result<Tensor, TchError> {
        x.f_conv1d(&self.weight, self.bias.as_ref(), stride, padding, dilation, 1)
    }

    /// Over frequency, in steps of `stride`, and time.
    fn two(&self, x: &Tensor, stride: i64, padding: i64) -> Result<Tensor, TchError> {
        x.f_conv2d(&self.weight, self.bias.as_ref(), [stride, 1], [padding, padding], [1, 1], 1)
    }
}

impl Layer {
    fn load(weights: &Weights, place: Place, name: &str, inputs: usize) -> Result<Self, Error> {
        let norm = |norm: &str, channels| {
            Norm::load(weights, place, &format!("{name}.{norm}.batchnorm"), channels, true)
        };
        let part = |part: &str, shape: &[usize], norm| {
            Convolution::load(weights, place, &format!("{name}.{part}"), shape, norm)
        };
        let mask = |part: &str, shape: &[usize]| {
            Convolution::load_with_bias(weights, place, &format!("{name}.cam_layer.{part}"), shape)
        };
        Ok(Self {
            norm: norm("nonlinear1", inputs)?.in_place(place)?,
            bottleneck: part("linear1", &[BOTTLENECK, inputs, 1], Some(norm("nonlinear2", BOTTLENECK)?))?,
            local: part("cam_layer.linear_local", &[GROWTH, BOTTLENECK, KERNEL], None)?,
            masking: [
                mask("linear1", &[MASK_HIDDEN, BOTTLENECK, 1])?,
                mask("linear2", &[GROWTH, MASK_HIDDEN, 1])?,
            ],
        })
    }

    /// The channels that this layer adds.
    fn apply(&self, x: &Tensor, dilation: i64) -> Result<Tensor, TchError> {
        let middle = self.bottleneck.one(&self.norm.relu(x)?, 1, 0, 1)?.f_relu_()?;
        let frames = x.size()[2];
        let segment = SEGMENT as i64;
        let segments = middle.f_avg_pool1d(segment, segment, 0, true, true)?;
        let context = segments.f_add(&middle.f_mean_dim(-1_i64, true, None)?)?;
        let hidden = self.masking[0].one(&context, 1, 0, 1)?.f_relu_()?;
        let masks = self.masking[1].one(&hidden, 1, 0, 1)?.f_sigmoid()?;
        let masks = masks.f_repeat_interleave_self_int(segment, -1, None)?.f_narrow(-1, 0, frames)?;
        self.local.one(&middle, 1, dilation, dilation)?.f_mul(&masks)
    }
}

impl Embedding {
    pub fn load(weights: &Weights, place: Place) -> Result<Self, Error> {
        let norm = |name: &str, channels| Norm::load(weights, place, name, channels, true);
        let load = |name: &str, shape: &[usize], norm| Convolution::load(weights, place, name, shape, norm);
        let mut residual = Vec::with_capacity(RESIDUAL_BLOCKS.len());
        for (name, stride) in RESIDUAL_BLOCKS {
            let part = |convolution: &str, after: &str, size| {
                let after = norm(&format!("head.{name}.{after}"), PLANES)?;
                load(&format!("head.{name}.{convolution}"), &[PLANES, PLANES, size, size], Some(after))
            };
            let shortcut = if stride == 1 { None } else { Some(part("shortcut.0", "shortcut.1", 1)?) };
            residual.push((stride as i64, [part("conv1", "bn1", 3)?, part("conv2", "bn2", 3)?], shortcut));
        }
        let mut channels = FIRST;
        let mut blocks = Vec::with_capacity(BLOCKS.len());
        for (index, (layers, _)) in (1..).zip(BLOCKS) {
            let layer = |layer: usize| {
                let name = format!("xvector.block{index}.tdnnd{}", layer + 1);
                Layer::load(weights, place, &name, channels + layer * GROWTH)
            };
            let layers = (0..layers).map(layer).collect::<Result<Vec<_>, Error>>()?;
            channels += layers.len() * GROWTH;
            let before =
                norm(&format!("xvector.transit{index}.nonlinear.batchnorm"), channels)?.in_place(place)?;
            let last = index == BLOCKS.len();
            let after = last.then(|| norm("xvector.out_nonlinear.batchnorm", channels / 2)).transpose()?;
            let transit = format!("xvector.transit{index}.linear");
            blocks.push((layers, before, load(&transit, &[channels / 2, channels, 1], after)?));
            channels /= 2;
        }
        let tdnn = norm("xvector.tdnn.nonlinear.batchnorm", FIRST)?;
        let wide = Place { kind: Kind::Float, ..place };
        let dense = Norm::load(weights, wide, "xvector.dense.nonlinear.batchnorm", EMBEDDING, false)?;
        Ok(Self {
            place,
            first: load("head.conv1", &[PLANES, 1, 3, 3], Some(norm("head.bn1", PLANES)?))?,
            residual,
            last: load("head.conv2", &[PLANES, PLANES, 3, 3], Some(norm("head.bn2", PLANES)?))?,
            tdnn: load("xvector.tdnn.linear", &[FIRST, PLANES * MEL_BINS / 8, FIRST_KERNEL], Some(tdnn))?,
            blocks,
            dense: Convolution::load(
                weights,
                wide,
                "xvector.dense.linear",
                &[EMBEDDING, 2 * CHANNELS, 1],
                Some(dense),
            )?,
        })
    }

    /// (pieces, frames, bins) to features, (pieces, frames / 2, channels).
    pub fn trunk(&self, pieces: &Tensor) -> Result<Tensor, TchError> {
        let x = pieces.f_transpose(1, 2)?.f_unsqueeze(1)?.f_to_kind(self.place.kind)?;
        let mut x = self.first.two(&x, 1, 1)?.f_relu_()?;
        for (stride, [first, second], shortcut) in &self.residual {
            let y = second.two(&first.two(&x, *stride, 1)?.f_relu_()?, 1, 1)?;
            let past = shortcut.as_ref().map(|shortcut| shortcut.two(&x, *stride, 0)).transpose()?;
            x = y.f_add(past.as_ref().unwrap_or(&x))?.f_relu_()?;
        }
        // Channels, and in each the bins.
        let x = self.last.two(&x, 2, 1)?.f_relu_()?.f_flatten(1, 2)?;
        let mut x = self.tdnn.one(&x, FIRST_STRIDE as i64, FIRST_KERNEL as i64 / 2, 1)?.f_relu_()?;
        for ((layers, norm, transit), (_, dilation)) in self.blocks.iter().zip(BLOCKS) {
            for layer in layers {
                let added = layer.apply(&x, dilation as i64)?;
                x = Tensor::f_cat(&[&x, &added], 1)?;
            }
            x = transit.one(&norm.relu(&x)?, 1, 0, 1)?;
        }
        x.f_relu_()?.f_transpose(1, 2)
    }

    /// (rows, 1, statistics) to embeddings of unit length, (rows, dimensions), in f32.
    pub fn embed(&self, statistics: &Tensor) -> Result<Tensor, TchError> {
        let x = self.dense.one(&statistics.f_transpose(1, 2)?, 1, 0, 1)?.f_squeeze_dim(-1)?;
        let length = x.f_norm_scalaropt_dim(2_i64, -1_i64, true)?.f_clamp_min(1e-9)?;
        x.f_div(&length)
    }
}
