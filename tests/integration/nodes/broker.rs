//! A nats-server on loopback, which can be killed, restarted and emptied.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

pub struct Broker {
    program: PathBuf,
    process: Option<Child>,
    address: SocketAddr,
    folder: TempDir,
}

fn program() -> Option<PathBuf> {
    let named = std::env::var_os("NATS_SERVER").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("nats-server"));
    named.into_iter().chain(found).chain(["/usr/sbin/nats-server".into()]).find(|program| program.is_file())
}

impl Broker {
    /// None if there is no nats-server, which a message says.
    pub async fn start() -> Option<Self> {
        let Some(program) = program() else {
            assert!(std::env::var_os("TEST_ALL_SDKS").is_none(), "install nats-server, or set NATS_SERVER");
            eprintln!("skipped: there is no nats-server");
            return None;
        };
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let folder = TempDir::new().expect("a folder");
        let mut broker = Self { program, process: None, address: free.expect("a port"), folder };
        broker.restart().await;
        Some(broker)
    }

    pub fn address(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Where it keeps everything.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts it again after [`Self::kill`].
    pub async fn restart(&mut self) {
        let mut command = Command::new(&self.program);
        command.args(["-a", "127.0.0.1", "-p", &self.address.port().to_string(), "-js", "-sd"]);
        command.arg(self.folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().expect("it starts"));
        let greeted = async {
            loop {
                let mut greeting = [0; 4];
                if let Ok(mut stream) = TcpStream::connect(self.address).await
                    && stream.read_exact(&mut greeting).await.is_ok()
                    && greeting == *b"INFO"
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(super::PATIENCE, greeted).await.expect("it listens");
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it runs");
            process.wait().expect("it ends");
        }
    }

    /// Loses everything, as a broker whose disk is replaced. It must not run.
    pub fn empty(&mut self) {
        assert!(self.process.is_none(), "it runs");
        std::fs::remove_dir_all(self.folder.path().join("jetstream")).expect("what it has kept");
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}
