//! The flags of commands that run the model in this process.

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::config::Flag;
use crate::models::DeviceChoice;

#[derive(Args)]
#[command(next_help_heading = "Engine")]
pub struct Flags {
    /// A known model or a folder.
    #[arg(long, value_name = "NAME|FOLDER")]
    model: Option<String>,
    /// auto, cpu, cuda or cuda:N.
    #[arg(long)]
    device: Option<DeviceChoice>,
    /// Number format that the model computes in.
    #[arg(long, value_name = "TYPE", value_parser = PossibleValuesParser::new(["auto", "f32", "bf16", "int8"]))]
    compute_type: Option<String>,
    /// Threads for inference on the CPU; 0 is one per core.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

impl Flags {
    /// The settings given on the command line.
    pub fn given(&self) -> Vec<Flag> {
        let text = |flag, setting, value: Option<&str>| {
            value.map(|value| Flag { flag, setting, value: value.into() })
        };
        let device = self.device.map(String::from);
        let threads = self.threads.map(|threads| Flag {
            flag: "--threads",
            setting: "models.threads",
            value: threads.into(),
        });
        [
            text("--model", "models.model", self.model.as_deref()),
            text("--device", "models.device", device.as_deref()),
            text("--compute-type", "models.compute_type", self.compute_type.as_deref()),
            threads,
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
