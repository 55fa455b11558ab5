//! The memory budget, checked before anything is loaded: a server that would be killed in its first busy hour does not
//! start.

use std::path::Path;

use crate::audio::{SAMPLE_RATE, SOUND_BYTES_PER_SECOND};
use crate::config::Config;
use crate::models::{self, Footprint, Source};

/// The program, libtorch and the working memory of one batch.
const PROGRAM_BYTES: u64 = 384 << 20;
/// A second of audio: 16 kHz samples in 16 bits, and as f32 in the window that is cut from them.
const SECOND_BYTES: f64 = SOUND_BYTES_PER_SECOND as f64 + SAMPLE_RATE as f64 * size_of::<f32>() as f64;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{needed} MiB of memory are needed and there are {available}: {weights} for the models' weights, \
         {slots} for models.slots, {audio} for engine.max_held_seconds of audio, {program} for the program; \
         lower {setting}"
    )]
    TooLittle {
        needed: u64,
        available: u64,
        weights: u64,
        slots: u64,
        audio: u64,
        program: u64,
        setting: &'static str,
    },
    #[error(transparent)]
    Model(#[from] models::Error),
}

/// Compares the memory that `config` may need, with the models of `sources` loaded, with the memory available.
///
/// # Errors
/// [`Error::TooLittle`], with the setting that would help; [`Error::Model`] if the model's size can't be read.
pub fn check(sources: &[Source], config: &Config) -> Result<(), Error> {
    let Some(available) = available() else { return Ok(()) };
    let mut models = None;
    for source in sources {
        let more = source.footprint(&config.models)?;
        models = more.map(|more| models.map_or(more, |models: Footprint| models.with(more))).or(models);
    }
    let held = config.engine.max_held_seconds;
    // An engine without bounds belongs to a command, which bounds its own work.
    let audio = if held.is_finite() { (held * SECOND_BYTES) as u64 } else { 0 };
    compare(models, audio, available)
}

fn compare(model: Option<Footprint>, audio: u64, available: u64) -> Result<(), Error> {
    let (weights, slots) = model.map_or((0, 0), |model| (model.weights, model.slots));
    let parts = [weights, slots, audio, PROGRAM_BYTES];
    let needed = parts.iter().fold(0u64, |sum, &part| sum.saturating_add(part));
    if needed <= available {
        return Ok(());
    }
    let without = |part: u64| needed - part <= available;
    let setting = if without(audio) && audio >= slots {
        "engine.max_held_seconds"
    } else if without(slots) {
        "models.slots"
    } else if without(slots + audio) {
        "models.slots and engine.max_held_seconds"
    } else {
        "models.model: a smaller one"
    };
    let [weights, slots, audio, program] = parts.map(|bytes| bytes >> 20);
    Err(Error::TooLittle {
        needed: needed >> 20,
        available: available >> 20,
        weights,
        slots,
        audio,
        program,
        setting,
    })
}

/// Memory that this process may use: the machine's, or the lowest limit of its control groups. `None` if neither is known.
fn available() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let machine = total(&read("/proc/meminfo"));
    let groups = groups(&read("/proc/self/cgroup"));
    let limits = groups.iter().filter_map(|file| read(file).trim().parse::<u64>().ok());
    limits.chain(machine).min()
}

/// `MemTotal` of `/proc/meminfo` (proc(5)).
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// Files with the limits of the groups in `/proc/self/cgroup` and of their parents (cgroups(7)): `memory.max` of version 2,
/// `memory.limit_in_bytes` of version 1. A container sees its own root.
fn groups(cgroup: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in cgroup.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            v1 if v1.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for group in Path::new(path).ancestors() {
            let group = group.to_string_lossy();
            files.push(format!("{root}{}/{file}", group.trim_end_matches('/')));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_does_not_fit_is_named_with_what_to_lower() {
        let model =
            |weights: u64, slots: u64| Some(Footprint { weights: weights * MIB, slots: slots * 24 * MIB });
        assert!(compare(model(150, 16), 900 * MIB, 2000 * MIB).is_ok());
        assert!(compare(None, 900 * MIB, 1500 * MIB).is_ok());
        for (weights, slots, audio, available, expected) in [
            (150, 16, 900, 1500, "engine.max_held_seconds"),
            (150, 128, 900, 2000, "models.slots"),
            (150, 40, 900, 900, "models.slots and engine.max_held_seconds"),
            (3000, 16, 900, 2000, "models.model: a smaller one"),
        ] {
            let error = compare(model(weights, slots), audio * MIB, available * MIB).expect_err(expected);
            assert!(error.to_string().ends_with(&format!("lower {expected}")), "{error}");
        }
    }

    #[test]
    fn limits_are_looked_for_in_every_group_around() {
        assert_eq!(
            groups("0::/system.slice/a.service\n"),
            [
                "/sys/fs/cgroup/system.slice/a.service/memory.max",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(
            groups("5:cpu,cpuacct:/a\n4:memory:/b\n"),
            ["/sys/fs/cgroup/memory/b/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        );
        assert_eq!(total("MemTotal:       1000 kB\nMemFree: 1 kB\n"), Some(1_024_000));
        assert!(available().is_some_and(|bytes| bytes > 64 * MIB));
    }
}
