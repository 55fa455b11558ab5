//! The settings of diarization.

use serde::{Deserialize, Serialize};

/// The architecture of the models, of which there is one of each: the network that finds local speakers, and the one
/// that knows voices again.
pub const MODEL: &str = "pyannote-segmentation-3.0+campplus";

/// Whether the server does diarization, and where.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Default `auto`.
    pub models: Models,
    /// Default `auto`.
    pub device: DeviceChoice,
    /// Threads for the networks on the processor. Default 0: one per core. They give way to the threads that recognise
    /// words.
    pub threads: usize,
}

/// The models of diarization to load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Models {
    /// Those in the folder `speakers` of the model folder. Without that folder, requests for speakers are refused.
    #[default]
    Auto,
    /// None: requests for speakers are refused.
    Off,
}

/// The device that the networks of diarization run on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DeviceChoice {
    /// The one that recognises words, or the first of them.
    #[default]
    Auto,
    Cpu,
    /// The CUDA device with this index.
    Cuda(usize),
}

impl TryFrom<String> for DeviceChoice {
    type Error = String;

    /// `auto`, `cpu`, `cuda:N`
    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|index| index.parse().ok())
                .map(Self::Cuda)
                .ok_or_else(|| format!("`{text}` is none of auto, cpu, cuda:N")),
        }
    }
}

impl From<DeviceChoice> for String {
    fn from(device: DeviceChoice) -> Self {
        match device {
            DeviceChoice::Auto => "auto".into(),
            DeviceChoice::Cpu => "cpu".into(),
            DeviceChoice::Cuda(index) => format!("cuda:{index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_written_as_it_is_read() {
        for text in ["auto", "cpu", "cuda:0", "cuda:3"] {
            assert_eq!(DeviceChoice::try_from(text.to_owned()).map(String::from).as_deref(), Ok(text));
        }
        for wrong in ["", "gpu", "cuda", "cuda:", "cuda:-1", "cpu:0"] {
            assert!(DeviceChoice::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
    }
}
