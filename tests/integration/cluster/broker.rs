//! A real nats-server on loopback, which tests kill, stop and rob of its disk.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(30);

pub struct Broker {
    program: PathBuf,
    folder: TempDir,
    pub address: SocketAddr,
    process: Child,
}

/// Outside the range that the system hands out, so that no other program gets it while the server is down.
fn free_port() -> u16 {
    loop {
        let port = 15_000 + rand::random::<u16>() % 17_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Broker {
    /// `None` if there is no server to run.
    pub async fn start() -> Option<Self> {
        Self::start_with(true).await
    }

    pub async fn start_with(jetstream: bool) -> Option<Self> {
        let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join(".verbatim/nats-server");
        let own = std::env::var_os("NATS_SERVER").map(PathBuf::from);
        let program = own.unwrap_or_else(|| cache.join("nats-server"));
        if !program.exists() {
            let was_tried = cache.join("installed").exists();
            assert!(was_tried || std::env::var_os("TEST_ALL_SDKS").is_none(), "run ./setup nats-server");
            eprintln!("skipped: there is no nats-server; ./setup nats-server builds one with Go 1.26");
            return None;
        }
        let folder = TempDir::new().expect("a folder");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let process = run(&program, folder.path(), address, jetstream);
        let broker = Self { program, folder, address, process };
        broker.is_up().await;
        Some(broker)
    }

    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Waits until it says what it is, as it does to every client.
    async fn is_up(&self) {
        let up = async {
            loop {
                if let Ok(mut stream) = TcpStream::connect(self.address).await {
                    let mut said = [0; 4];
                    if stream.read_exact(&mut said).await.is_ok() && said == *b"INFO" {
                        return;
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, up).await.expect("it listens");
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    /// Starts it again where it was, with what is on its disk.
    pub async fn restart(&mut self) {
        self.process = run(&self.program, self.folder.path(), self.address, true);
        self.is_up().await;
    }

    /// Removes all that is on its disk. It must be down.
    pub fn lose_the_disk(&self) {
        std::fs::remove_dir_all(self.folder.path().join("jetstream")).expect("it is there");
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.process.id().to_string()]).status();
        assert!(sent.expect("a command").success());
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(program: &Path, folder: &Path, address: SocketAddr, jetstream: bool) -> Child {
    let mut command = Command::new(program);
    command.args(["-a", "127.0.0.1", "-p", &address.port().to_string(), "-sd"]).arg(folder);
    if jetstream {
        command.arg("-js");
    }
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
}
