//! Checks of the machine: the state folder, its disk, keys, the listener's port, processor and GPUs.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::check::Check;
use crate::config::Config;
use crate::cpu::{Instructions, Level};
use crate::keys::Store;
use crate::models::{self, DeviceChoice};
use crate::state;

/// File systems over a network, on which SQLite's locks are not reliable.
const NETWORK: [&str; 10] =
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "fuse.sshfs"];
const MEMORY: [&str; 2] = ["tmpfs", "ramfs"];
const KEYS: &str = "keys.sqlite3";
/// A key that expires sooner deserves a warning.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 86_400);
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

pub fn state_folder(config: &Config) -> Check {
    const NAME: &str = "state folder";
    const MEND: &str = "give the server's user this folder, or another one by `state_dir`";
    let folder = &config.state_dir;
    let shown = folder.display();
    if !folder.exists() {
        let parent = existing(folder);
        return match try_out(parent) {
            Ok(_) => Check::ok(NAME, format!("{shown} does not exist yet: the server makes it")),
            Err(error) => Check::failed(NAME, format!("{shown} can't be made: {error}"), MEND),
        };
    }
    let writer = match try_out(folder) {
        Ok(writer) => writer,
        Err(error) => return Check::failed(NAME, format!("{shown} can't be written: {error}"), MEND),
    };
    let owner = folder.metadata().map_or(writer, |metadata| metadata.uid());
    let kind = file_system(folder).unwrap_or_default();
    if NETWORK.contains(&kind.as_str()) {
        let message = format!("{shown} is on a network ({kind}), where databases lose their locks");
        return Check::failed(NAME, message, "put `state_dir` on a local disk");
    }
    if MEMORY.contains(&kind.as_str()) {
        let message = format!("{shown} is in memory ({kind}): a restart of the machine loses keys and jobs");
        return Check::warning(NAME, message, "put `state_dir` on a disk");
    }
    if kind == "overlay" {
        let message = format!("{shown} is a container's own layer, and is lost with the container");
        return Check::warning(NAME, message, "mount a volume there, or set `state_dir` to one");
    }
    if owner != writer {
        let message = format!("{shown} belongs to user {owner}, and this is user {writer}");
        return Check::warning(
            NAME,
            message,
            "run the doctor as the server's user: its files would be another's",
        );
    }
    Check::ok(NAME, format!("{shown} is writable, on {}", if kind.is_empty() { "a disk" } else { &kind }))
}

/// The nearest folder above `path` that exists.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|ancestor| ancestor.is_dir()).unwrap_or(Path::new("/"))
}

/// Writes a file there, durably, and removes it. Returns the user that it belonged to.
fn try_out(folder: &Path) -> std::io::Result<u32> {
    let path = folder.join(format!(".doctor-{:016x}", rand::random::<u64>()));
    let written = state::write_whole(&path, &[0; 4096]).and_then(|()| Ok(path.metadata()?.uid()));
    // After a failure it may not exist.
    let removed = std::fs::remove_file(&path);
    let user = written?;
    removed.map(|()| user)
}

/// The kind of file system that holds `path`, by the kernel's table of mounts (proc(5), `mountinfo`).
fn file_system(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mounts = table.lines().filter_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let point = PathBuf::from(head.split(' ').nth(4)?.replace("\\040", " "));
        path.starts_with(&point).then(|| (point.components().count(), tail.split(' ').next().unwrap_or("")))
    });
    // A later mount covers an earlier one on the same point.
    mounts.max_by_key(|(depth, _)| *depth).map(|(_, kind)| kind.to_owned())
}

pub fn disk(config: &Config) -> Check {
    const NAME: &str = "disk space";
    let folder = existing(&config.state_dir);
    let Some(free) = state::free_bytes(folder) else {
        return Check::warning(NAME, "the free space is not known", "look at it by `df`");
    };
    let least = config.jobs.disk_free_bytes_min;
    let (free_mib, least_mib) = (free >> 20, least >> 20);
    let message = format!("{free_mib} MiB are free at {}", folder.display());
    let mend = format!(
        "free some, or lower `jobs.disk_free_bytes_min` ({least_mib} MiB): below it, requests with a callback are refused"
    );
    match free {
        free if free < least || free < 64 << 20 => Check::failed(NAME, message, mend),
        free if free < least.saturating_mul(2) => Check::warning(NAME, message, mend),
        _ => Check::ok(NAME, message),
    }
}

pub fn keys(config: &Config) -> Check {
    const NAME: &str = "keys";
    const MEND: &str = "`verbatim keys create --label NAME`";
    // Opening would make the file, perhaps as another user than the server's.
    if !config.state_dir.join(KEYS).exists() {
        return Check::failed(NAME, "there is no key, so all requests are refused", MEND);
    }
    let listed = Store::open(&config.state_dir).and_then(|store| store.list());
    let keys = match listed {
        Ok(keys) => keys,
        Err(error) => {
            let message = format!("the keys cannot be read: {:#}", anyhow::Error::new(error));
            return Check::failed(NAME, message, "restore `keys.*` of the state folder");
        }
    };
    let now = SystemTime::now();
    let active: Vec<_> = keys.iter().filter(|key| key.is_active(now)).collect();
    let soon = |expires: SystemTime| expires < now + EXPIRES_SOON;
    let lasting = active.iter().filter(|key| key.expires.is_none_or(|expires| !soon(expires))).count();
    match (active.len(), lasting) {
        (0, _) => Check::failed(NAME, "every key is revoked or has expired", MEND),
        (count, 0) => Check::warning(NAME, format!("all of {count} keys expire within 14 days"), MEND),
        (count, _) => Check::ok(NAME, format!("{count} may be used")),
    }
}

/// Whether the port is free, or a server of this program has it already.
pub async fn listener(config: &Config) -> Check {
    const NAME: &str = "port";
    let address = config.listen;
    match std::net::TcpListener::bind(address) {
        Ok(_) => Check::ok(NAME, format!("{address} is free: no server listens there now")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => match asks(config).await {
            Some(true) => Check::ok(NAME, format!("a server answers at {address}")),
            Some(false) => Check::failed(
                NAME,
                format!("another program listens at {address}"),
                "stop it, or set `listen` to another port",
            ),
            None => Check::ok(NAME, format!("a server listens at {address}, with TLS")),
        },
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Check::failed(
            NAME,
            format!("this user may not listen at {address}"),
            "set `listen` to a port above 1023",
        ),
        Err(error) => Check::failed(
            NAME,
            format!("cannot listen at {address}: {error}"),
            "set `listen` to an address of this machine",
        ),
    }
}

/// Whether the program at the port answers as this one does; `None` for TLS, whose certificate has another name.
async fn asks(config: &Config) -> Option<bool> {
    if config.http.tls.is_some() {
        return None;
    }
    let mut address = config.listen;
    if address.ip().is_unspecified() {
        let loopback: std::net::IpAddr = if address.is_ipv4() {
            std::net::Ipv4Addr::LOCALHOST.into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        };
        address.set_ip(loopback);
    }
    let client = crate::outbound::client().ok()?;
    let ask = client.get(format!("http://{address}/livez")).timeout(ASK_TIMEOUT).send();
    let Ok(response) = ask.await else { return Some(false) };
    let alive = crate::outbound::read_json(response).await;
    Some(alive.is_some_and(|alive| alive.get("status").is_some_and(|status| status == "ok")))
}

pub fn device(config: &Config) -> Check {
    const NAME: &str = "device";
    let instructions = [
        (Instructions::Avx512Products, "AVX-512 with VNNI"),
        (Instructions::Avx512, "AVX-512"),
        (Instructions::Avx2, "AVX2"),
    ];
    let level = Level::detect();
    let best = instructions.iter().find(|(set, _)| level.has(*set)).map(|(_, name)| *name);
    let devices = match models::each_device(&config.models) {
        Ok(devices) => devices,
        Err(error) => {
            let message = format!("{:#}", anyhow::Error::new(error));
            return Check::failed(NAME, message, "set `models.device` to one that there is, or to `auto`");
        }
    };
    let gpus = devices.iter().filter(|device| matches!(device.device, DeviceChoice::Cuda(_))).count();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match (gpus, best) {
        (0, None) => Check::warning(
            NAME,
            format!("the CPU ({cores} cores) lacks AVX2: recognition is several times slower"),
            "use a processor with AVX2, or a GPU",
        ),
        (0, Some(best)) => Check::ok(NAME, format!("the CPU, {cores} cores, {best}")),
        (gpus, _) => Check::ok(NAME, format!("{gpus} GPUs, by CUDA")),
    }
}
