//! The kernels by name: `kernels/*.cu`, compiled as one source.

/// The source to compile: all files in order.
pub const SOURCE: &str = concat!(
    include_str!("../../kernels/prelude.cu"),
    include_str!("../../kernels/embed.cu"),
    include_str!("../../kernels/add_norm.cu"),
    include_str!("../../kernels/attention.cu"),
    include_str!("../../kernels/alignment.cu"),
    include_str!("../../kernels/choose.cu"),
    include_str!("../../kernels/log_mel.cu"),
);

/// Audio positions of one block of [`Kernel::CrossAttention`] and [`Kernel::CrossAttentionFp8`]: `SPLIT` in
/// attention.cu.
pub const ATTENTION_SPLIT: usize = 256;

/// Rows of each slot whose scores are kept, by text position modulo this: `KEPT_ROWS` in attention.cu.
pub const KEPT_ROWS: usize = 256;

/// A kernel. Its source describes its arguments and its grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    Embed,
    AddNorm,
    EncoderNorm,
    BiasGelu,
    TextAttention,
    CrossAttention,
    CrossAttentionFp8,
    CrossJoin,
    AlignmentRows,
    AlignmentColumns,
    AlignmentCosts,
    Choose,
    LogMel,
    ClampMel,
}

impl Kernel {
    pub const ALL: [Self; 14] = [
        Self::Embed,
        Self::AddNorm,
        Self::EncoderNorm,
        Self::BiasGelu,
        Self::TextAttention,
        Self::CrossAttention,
        Self::CrossAttentionFp8,
        Self::CrossJoin,
        Self::AlignmentRows,
        Self::AlignmentColumns,
        Self::AlignmentCosts,
        Self::Choose,
        Self::LogMel,
        Self::ClampMel,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Embed => "embed",
            Self::AddNorm => "add_norm",
            Self::EncoderNorm => "encoder_norm",
            Self::BiasGelu => "bias_gelu",
            Self::TextAttention => "text_attention",
            Self::CrossAttention => "cross_attention",
            Self::CrossAttentionFp8 => "cross_attention_fp8",
            Self::CrossJoin => "cross_join",
            Self::AlignmentRows => "alignment_rows",
            Self::AlignmentColumns => "alignment_columns",
            Self::AlignmentCosts => "alignment_costs",
            Self::Choose => "choose",
            Self::LogMel => "log_mel",
            Self::ClampMel => "clamp_mel",
        }
    }

    /// Threads of a block.
    pub fn threads(self) -> u32 {
        match self {
            Self::Embed | Self::AddNorm | Self::BiasGelu | Self::LogMel | Self::ClampMel => 256,
            Self::EncoderNorm | Self::AlignmentRows | Self::AlignmentCosts => 256,
            Self::TextAttention | Self::CrossAttention | Self::CrossAttentionFp8 | Self::AlignmentColumns => {
                128
            }
            Self::CrossJoin => 64,
            Self::Choose => 1024,
        }
    }
}
